// From a run that was watched to a plan: which nodes are called as ever, where each buffer lies, what is done when.
#include "dispatch/prepared_call.h"
#include "graph/executor_state.h"
#include "graph/plan/arena.h"
#include "graph/plan/claim.h"
#include "graph/plan/fuse.h"
#include "graph/plan/plan.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

namespace ts::graph {

class PlanMaker {
public:
  PlanMaker(Plan& plan, const Graph& g, Recorder& r, const std::vector<uint32_t>& versions)
      : plan_(plan), g_(g), r_(r), versions_(versions) {}

  // False where nothing would be gained, or something is not understood.
  bool make() {
    choose_calls();
    settle();
    if (!r_.work.empty()) drop_called_work();
    if (r_.work.empty() || !find_results()) return false;
    fuse();
    find_homes();
    lay_out();
    return true;
  }

private:
  struct Event { // a kernel, or a node that is called; in order
    bool call;
    Id at; // in work, a node
  };
  bool tensor(Id v) const { return g_.values[v].tag == Tag::Tensor; }
  bool external(Id v) const { return is_given_[v]; }
  bool from_call(Id v) const { return producer_[v] != kNone && called_[producer_[v]]; }

  void choose_calls();
  void settle();
  bool need(Id v);
  bool call(Id node);
  bool read_before_written();
  void drop_called_work();
  bool find_results();
  void fuse();
  void find_homes();
  void lay_out();
  void prepare(Work& w);
  void reach(Id buffer, int64_t low, int64_t high);
  void use(Id buffer, size_t at);
  void make_before(Id v, size_t at);
  void share_places();
  void find_order();
  Arena arena_of(const std::vector<Id>& blocks) const;
  bool join_operand(Arena& arena, const Event& e, const std::vector<size_t>& index) const;
  void find_drops();
  void emit(size_t at);

  Plan& plan_;
  const Graph& g_;
  Recorder& r_;
  const std::vector<uint32_t>& versions_;
  std::vector<bool> called_, needed_, is_given_, stays_;
  std::vector<Id> producer_, calls_before_;
  std::vector<Event> events_;
  std::vector<Plan::Home> homes_;
  static constexpr size_t kNever = SIZE_MAX, kLarge = 16384; // bytes
  static constexpr size_t kMostWider = size_t{32} << 20;     // bytes that branches side by side may take more
  std::vector<size_t> first_, last_;                         // by buffer: events
  std::vector<size_t> forget_;                               // by value: the last event that needs the tensor
  std::vector<std::vector<Id>> makes_, forgets_, allocates_, frees_, drops_; // by event
  std::vector<bool> made_;
  std::optional<BranchFinder> branches_;            // where some run side by side: of the kernels, in order
  std::vector<BranchFinder::Counts> before_, used_; // by buffer: what its users are behind, and who they are
};

// What follows from values that only a call knows, too.
void PlanMaker::choose_calls() {
  const size_t n = g_.nodes.size();
  called_ = r_.opaque;
  is_given_.resize(g_.values.size());
  needed_.resize(g_.values.size());
  producer_.assign(g_.values.size(), kNone);
  for (const auto* list : {&g_.inputs, &g_.captures})
    for (Id v : *list) is_given_[v] = true;
  std::vector<bool> unknown(g_.values.size());
  for (Id k = 0; k < n; ++k) {
    const Node& node = g_.nodes[k];
    bool follows = false;
    g_.each_use(node, [&](Id v) { follows = follows || unknown[v]; });
    if (follows) called_[k] = true;
    g_.each_def(node, [&](Id v) {
      producer_[v] = k;
      unknown[v] = follows || r_.varies[k] || node.size_op == SizeOp::Read;
    });
    if (!node.op && !follows) called_[k] = node.size_op == SizeOp::Read; // else its number is known
  }
}

// Until nothing changes: what calls and the caller are given exists as tensors.
void PlanMaker::settle() {
  for (bool changed = true; changed;) {
    changed = false;
    for (Id v : g_.outputs) changed |= need(v);
    for (Id k = 0; k < g_.nodes.size(); ++k)
      if (called_[k]) g_.each_use(g_.nodes[k], [&](Id v) { changed |= tensor(v) && need(v); });
    changed |= read_before_written();
  }
}

bool PlanMaker::call(Id node) {
  if (called_[node]) return false;
  called_[node] = true;
  return true;
}

bool PlanMaker::need(Id v) {
  bool changed = !needed_[v];
  needed_[v] = true;
  if (external(v) || from_call(v)) return changed;
  const Seen& s = r_.seen[v];
  if (!s.defined) return changed;
  if (s.same_as != kNone) return need(s.same_as) || changed;
  if (s.base != kNone) return need(s.base) || changed;
  if (!s.plain) changed = call(producer_[v]) || changed;
  return changed;
}

// Memory that no kernel fills, such as what empty() gives: whoever made it is called.
bool PlanMaker::read_before_written() {
  std::vector<bool> written(r_.buffers.size());
  bool changed = false;
  for (const Work& w : r_.work) {
    if (called_[w.node]) continue;
    for (size_t k = w.places.size(); k-- > 0;) { // inputs first
      const Id b = w.places[k].buffer;
      if (b == kNone || r_.buffers[b].external != kNone) continue;
      if (!w.reads(k))
        written[b] = true;
      else if (!written[b] && r_.buffers[b].node != kNone)
        changed |= call(r_.buffers[b].node);
    }
  }
  return changed;
}

void PlanMaker::drop_called_work() {
  std::erase_if(r_.work, [&](const Work& w) { return called_[w.node]; });
}

// Memory that a call brings is known by one of the call's results.
bool PlanMaker::find_results() {
  homes_.resize(r_.buffers.size());
  std::vector<bool> used(r_.buffers.size());
  for (const Work& w : r_.work)
    for (const Place& p : w.places)
      if (p.buffer != kNone) used[p.buffer] = true;
  for (Id v = 0; v < g_.values.size(); ++v)
    if (needed_[v] && !from_call(v) && r_.seen[v].buffer != kNone) used[r_.seen[v].buffer] = true;
  plan_.made_.resize(g_.nodes.size());
  for (Id b = 0; b < homes_.size(); ++b) {
    const Buffer& buffer = r_.buffers[b];
    Plan::Home& home = homes_[b];
    home.nbytes = buffer.nbytes;
    if (!used[b]) continue;
    if (buffer.external != kNone) {
      home.lies = Plan::Lies::Given;
      home.external = buffer.external;
    } else if (called_[buffer.node]) {
      home.lies = Plan::Lies::Result;
      g_.each_def(g_.nodes[buffer.node], [&](Id v) {
        if (home.value == kNone && tensor(v) && r_.seen[v].defined && r_.seen[v].buffer == b) home.value = v;
      });
      if (home.value == kNone) return false;
      plan_.made_[buffer.node].push_back(b);
    } else {
      home.lies = Plan::Lies::Arena;
    }
  }
  for (Id v = 0; v < g_.values.size(); ++v) // tensors that outlive the run, or that others are given, have their own
    if (needed_[v] && tensor(v) && !external(v) && r_.seen[v].buffer != kNone)
      if (Plan::Home& home = homes_[r_.seen[v].buffer]; home.lies == Plan::Lies::Arena) home.lies = Plan::Lies::Apart;
  for (size_t k = 0; k < g_.outputs.size(); ++k)
    if (Id b = r_.seen[g_.outputs[k]].buffer; b != kNone) homes_[b].version = versions_[k];
  return true;
}

void PlanMaker::fuse() {
  stays_.resize(homes_.size());
  for (size_t b = 0; b < homes_.size(); ++b) stays_[b] = homes_[b].lies != Plan::Lies::Arena;
  calls_before_.resize(g_.nodes.size());
  Id calls = 0;
  for (Id n = 0; n < g_.nodes.size(); ++n) {
    calls_before_[n] = calls;
    calls += called_[n];
  }
  std::vector<bool> there(homes_.size());
  for (size_t b = 0; b < homes_.size(); ++b)
    there[b] = homes_[b].lies == Plan::Lies::Given || homes_[b].lies == Plan::Lies::Result;
  plan_.summary_.claimed = claim_parts(r_.work, {plan_.device_, there, stays_, calls_before_});
  plan_.summary_.fused = fuse_pointwise(r_.work, {plan_.device_, stays_, calls_before_});
  if (plan_.executor_.is_sparing())
    for (Plan::Home& home : homes_)
      if (home.lies == Plan::Lies::Arena && home.nbytes >= kLarge) home.lies = Plan::Lies::Apart;
}

void PlanMaker::reach(Id buffer, int64_t low, int64_t high) {
  Plan::Home& home = homes_[buffer];
  home.low = std::min(home.low, low);
  home.high = std::max(home.high, high);
}

void PlanMaker::use(Id buffer, size_t at) {
  first_[buffer] = std::min(first_[buffer], at);
  last_[buffer] = last_[buffer] == kNever ? at : std::max(last_[buffer], at);
}

// The tensor of a value exists before an event, and so do those that it is made of.
void PlanMaker::make_before(Id v, size_t at) {
  if (!tensor(v) || external(v)) return;
  const Seen& s = r_.seen[v];
  forget_[v] = std::max(forget_[v] == kNever ? 0 : forget_[v], at);
  if (s.buffer != kNone) use(s.buffer, at);
  if (s.buffer != kNone && homes_[s.buffer].lies == Plan::Lies::Result) {
    size_t& until = forget_[homes_[s.buffer].value];
    until = std::max(until == kNever ? 0 : until, at);
  }
  if (from_call(v) || !s.defined || made_[v]) return;
  made_[v] = true;
  if (s.same_as != kNone) make_before(s.same_as, at);
  if (s.base != kNone && s.same_as == kNone) make_before(s.base, at);
  makes_[at].push_back(v);
}

void PlanMaker::find_homes() {
  // Parts of the card's may have changed the order of kernels, but of none with a node that is called.
  size_t next = 0;
  auto kernels = [&](auto&& belongs) {
    while (next < r_.work.size() && belongs(r_.work[next].node)) events_.push_back({false, static_cast<Id>(next++)});
  };
  for (Id n = 0; n < g_.nodes.size(); ++n) {
    const Node& node = g_.nodes[n];
    // A decision on sizes that comes out otherwise is told in every run.
    const bool told = !node.op && is_guard(node.size_op) && node.size_op != SizeOp::Forward && !called_[n] &&
                      (compute(node.size_op, plan_.number(g_.args(node)[0]), plan_.number(g_.args(node)[1])).i != 0) !=
                          (g_.args(node)[2].i != 0);
    if (called_[n]) kernels([&](Id of) { return calls_before_[of] <= calls_before_[n]; });
    if (told) kernels([&](Id of) { return of < n; });
    if (called_[n] || told) events_.push_back({true, n});
  }
  kernels([](Id) { return true; });
  const size_t end = events_.size();
  first_.assign(homes_.size(), kNever);
  last_.assign(homes_.size(), kNever);
  forget_.assign(g_.values.size(), kNever);
  made_.resize(g_.values.size());
  for (auto* lists : {&makes_, &forgets_, &allocates_, &frees_, &drops_}) lists->resize(end + 1);
  for (size_t e = 0; e < end; ++e) {
    if (events_[e].call) {
      g_.each_use(g_.nodes[events_[e].at], [&](Id v) { make_before(v, e); });
      g_.each_def(g_.nodes[events_[e].at], [&](Id v) {
        if (tensor(v)) forget_[v] = std::max(forget_[v] == kNever ? 0 : forget_[v], e);
        if (tensor(v) && r_.seen[v].buffer != kNone) use(r_.seen[v].buffer, e);
      });
      continue;
    }
    const Work& w = r_.work[events_[e].at];
    for (size_t k = 0; k < w.places.size(); ++k) {
      const Place& p = w.places[k];
      if (p.buffer == kNone) continue;
      use(p.buffer, e);
      if (homes_[p.buffer].lies == Plan::Lies::Result) {
        size_t& until = forget_[homes_[p.buffer].value];
        until = std::max(until == kNever ? 0 : until, e);
      }
      if (homes_[p.buffer].lies != Plan::Lies::Given) continue;
      int64_t low = 0, high = static_cast<int64_t>(w.bytes);
      if (w.call) {
        const ts_tensor& t = w.tensor(k);
        const auto nd = static_cast<size_t>(t.ndim);
        std::tie(low, high) = byte_extent({t.sizes, nd}, {t.strides, nd}, item_size(static_cast<DType>(t.dtype)));
      }
      reach(p.buffer, p.offset + low, p.offset + high);
      plan_.writes_given_ = plan_.writes_given_ || w.writes(k);
    }
  }
  for (Id v : g_.outputs) make_before(v, end);
  for (Id v = 0; v < g_.values.size(); ++v) {
    const Seen& s = r_.seen[v];
    if (!needed_[v] || s.buffer == kNone || homes_[s.buffer].lies != Plan::Lies::Given) continue;
    auto [low, high] = byte_extent(s.sizes, s.strides, item_size(s.dtype));
    reach(s.buffer, s.offset + low, s.offset + high);
  }
}

// What would run side by side if no kernel had to wait for another's place in the arena.
void PlanMaker::find_order() {
  BranchFinder finder;
  std::vector<BranchFinder::Range> ranges;
  before_.assign(homes_.size(), BranchFinder::kAll);
  used_.assign(homes_.size(), {});
  for (const Event& e : events_) {
    if (e.call) {
      finder.meet();
      continue;
    }
    const Work& w = r_.work[e.at];
    ranges_of(w, ranges);
    finder.add(ranges, w.work);
    for (const BranchFinder::Range& r : ranges) {
      before_[r.space] = least(before_[r.space], finder.before(e.at));
      used_[r.space] = most(used_[r.space], finder.through(e.at));
    }
  }
  if (finder.streams() > 1) branches_ = std::move(finder);
}

// A pointwise result may lie where an operand lay that nobody needs afterwards, or side by side with it.
bool PlanMaker::join_operand(Arena& arena, const Event& e, const std::vector<size_t>& index) const {
  const Work& w = r_.work[e.at];
  const auto at = static_cast<size_t>(&e - events_.data());
  if (!w.call || !w.call->program || w.call->n_outputs != 1 || std::strcmp(w.call->op, "pointwise") != 0) return false;
  const Id out = w.places[0].buffer;
  if (out == kNone || index[out] == kNever || first_[out] != at) return false;
  for (size_t k = 1; k < w.places.size(); ++k) {
    const Id in = w.places[k].buffer;
    if (in == kNone || index[in] == kNever || in == out || last_[in] != at) continue;
    if (branches_ && !is_within(used_[in], branches_->through(e.at))) continue;
    auto same_place = [&](size_t j) {
      const ts_tensor &a = w.tensor(0), &b = w.tensor(j);
      return w.places[j].offset == w.places[0].offset && a.dtype == b.dtype && a.ndim == b.ndim &&
             std::equal(a.strides, a.strides + a.ndim, b.strides);
    };
    bool every = true;
    for (size_t j = 1; j < w.places.size(); ++j) every = every && (w.places[j].buffer != in || same_place(j));
    if (every && homes_[in].nbytes == homes_[out].nbytes && arena.join(index[in], index[out])) return true;
  }
  return false;
}

Arena PlanMaker::arena_of(const std::vector<Id>& blocks) const {
  std::vector<Arena::Span> spans;
  std::vector<size_t> index(homes_.size(), kNever);
  for (Id b : blocks) {
    index[b] = spans.size();
    Arena::Span& span = spans.emplace_back(Arena::Span{homes_[b].nbytes, first_[b], last_[b]});
    if (!branches_) continue;
    span.before = before_[b];
    span.used = used_[b];
  }
  Arena arena(std::move(spans));
  for (const Event& e : events_)
    if (!e.call) join_operand(arena, e, index);
  return arena;
}

// Where branches run side by side each has its own part, unless that takes much more.
void PlanMaker::share_places() {
  std::vector<Id> blocks;
  for (Id b = 0; b < homes_.size(); ++b) {
    if (homes_[b].lies != Plan::Lies::Arena || first_[b] == kNever) continue;
    blocks.push_back(b);
    plan_.summary_.apart += homes_[b].nbytes;
  }
  Arena arena = arena_of(blocks);
  size_t bytes = arena.lay_out();
  if (!blocks.empty() && LaunchRecording::spans_streams(plan_.device_)) find_order();
  if (branches_) {
    Arena wider = arena_of(blocks);
    if (const size_t needed = wider.lay_out(); needed <= bytes + kMostWider) {
      arena = std::move(wider);
      bytes = needed;
    }
  }
  plan_.arena_ = plan_.summary_.arena = bytes;
  for (size_t k = 0; k < blocks.size(); ++k) homes_[blocks[k]].offset = arena.offset(k);
}

void PlanMaker::emit(size_t at) {
  using Do = Plan::Do;
  for (Id b : allocates_[at]) plan_.steps_.push_back({Do::Allocate, b});
  for (Id v : makes_[at]) plan_.steps_.push_back({Do::Make, v});
  if (at < events_.size()) plan_.steps_.push_back({events_[at].call ? Do::Call : Do::Kernel, events_[at].at});
  for (Id v : forgets_[at]) plan_.steps_.push_back({Do::Forget, v});
  for (Id b : frees_[at]) plan_.steps_.push_back({Do::Free, b});
  for (Id k : drops_[at]) plan_.steps_.push_back({Do::Drop, k});
}

// Inputs that are no one's tensors: behind the last kernel that uses their memory.
void PlanMaker::find_drops() {
  if (plan_.writes_given_) return;
  for (Id k = 0; k < g_.inputs.size(); ++k) {
    const Id v = g_.inputs[k], b = r_.seen[v].buffer;
    if (!needed_[v] && b != kNone && last_[b] < events_.size()) drops_[last_[b]].push_back(k);
  }
}

// Where a run's memory will be is not known yet.
void PlanMaker::prepare(Work& w) {
  if (!w.call) return;
  for (int32_t k = 0; k < w.call->n_outputs + w.call->n_inputs; ++k)
    const_cast<ts_tensor&>(w.tensor(static_cast<size_t>(k))).handle = nullptr;
  std::shared_ptr<PreparedCall> prepared = PreparedCall::make(plan_.backend_, w.kernel, *w.call);
  if (!prepared) return;
  w.kernel = prepared->kernel();
  w.owned = std::make_shared<std::pair<std::shared_ptr<void>, std::shared_ptr<void>>>(std::move(w.owned), prepared);
}

void PlanMaker::lay_out() {
  const size_t end = events_.size();
  for (Id b = 0; b < homes_.size(); ++b) {
    if (homes_[b].lies != Plan::Lies::Apart || first_[b] == kNever) continue;
    allocates_[first_[b]].push_back(b);
    if (last_[b] < end) frees_[last_[b]].push_back(b);
  }
  for (Id v = 0; v < forget_.size(); ++v)
    if (forget_[v] < end) forgets_[forget_[v]].push_back(v);
  share_places();
  for (Id n = 0; n < g_.nodes.size(); ++n)
    if (!called_[n])
      for (const auto& [k, times] : r_.bumps[n]) {
        auto known = std::ranges::find(plan_.bumps_, k, &std::pair<Id, uint32_t>::first);
        if (known == plan_.bumps_.end())
          plan_.bumps_.emplace_back(k, times);
        else
          known->second += times;
      }
  plan_.writes_given_ = plan_.writes_given_ || !plan_.bumps_.empty();
  find_drops();
  for (size_t e = 0; e <= end; ++e) emit(e);
  for (Work& w : r_.work) {
    prepare(w);
    Plan::Kernel& kernel = plan_.kernels_.emplace_back();
    kernel.first_tensor = static_cast<uint32_t>(plan_.n_tensors_);
    kernel.first_patch = static_cast<uint32_t>(plan_.patches_.size());
    for (size_t k = 0; k < w.places.size(); ++k)
      if (w.places[k].buffer != kNone)
        plan_.patches_.push_back({static_cast<uint32_t>(plan_.n_tensors_ + k), w.places[k].buffer, w.places[k].offset});
    kernel.n_patches = static_cast<uint32_t>(plan_.patches_.size()) - kernel.first_patch;
    plan_.n_tensors_ += w.places.size();
    kernel.work = std::move(w);
  }
  for (Id b = 0; b < homes_.size(); ++b) {
    if (homes_[b].lies == Plan::Lies::Given) plan_.given_.push_back(b);
    if (homes_[b].lies == Plan::Lies::Arena && first_[b] != kNever) plan_.arena_buffers_.push_back(b);
    if (homes_[b].lies == Plan::Lies::Apart && first_[b] != kNever) plan_.apart_buffers_.push_back(b);
  }
  Id given = 0;
  for (const auto* list : {&g_.inputs, &g_.captures})
    for (Id v : *list) {
      if (needed_[v]) plan_.given_values_.emplace_back(v, given);
      ++given;
    }
  plan_.summary_.kernels = r_.work.size();
  for (Id n = 0; n < g_.nodes.size(); ++n) {
    if (!called_[n]) continue;
    ++plan_.summary_.called;
    plan_.summary_.operators.push_back(g_.nodes[n].op ? g_.nodes[n].op->name() : name_of(g_.nodes[n].size_op));
  }
  plan_.homes_ = std::move(homes_);
  plan_.seen_ = std::move(r_.seen);
  plan_.find_stretches();
}

Plan::Plan(const Executor& executor, Device device)
    : executor_(executor), device_(device), backend_(backend_of(device)) {}

std::shared_ptr<const Plan> Plan::make(const Executor& executor, Recorder& seen, std::vector<Item> numbers,
                                       std::vector<uint32_t> versions) {
  std::shared_ptr<Plan> plan(new Plan(executor, seen.device));
  plan->numbers_ = std::move(numbers);
  plan->sharing_ = seen.sharing();
  bool worth = PlanMaker(*plan, executor.graph(), seen, versions).make();
  return worth ? plan : nullptr;
}

} // namespace ts::graph
