#include "graph/plan/claim.h"
#include "graph/plan/card_graph.h"
#include "graph/plan/kept_part.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace ts::graph {
namespace {

// What the card has compiled.
struct Part {
  Part(Backend& b, Device d) : backend(b), device(d), epoch(b.epoch(d.index)) {}
  ~Part() {
    const ts_backend& t = backend.table();
    if (compiled && epoch == backend.epoch(device.index)) t.compiler->destroy(t.ctx, device.index, compiled);
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  Backend& backend;
  Device device;
  uint32_t epoch; // of the device that it was compiled for
  void* compiled = nullptr;
};

int run_part(const ts_call* call) {
  const auto& part = *static_cast<const Part*>(call->kernel_ctx);
  const ts_backend& t = part.backend.table();
  return t.compiler->run(t.ctx, call->device_index, part.compiled, call);
}

// For as long as the process lives, where an error that arrives late may name it.
const char* kept_name(std::string name) {
  static auto* all = new std::set<std::string>;
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  return all->insert(std::move(name)).first->c_str();
}

std::string name_of(std::span<const Work* const> members) {
  constexpr size_t kShown = 4;
  std::string name;
  for (size_t k = 0; k < std::min(members.size(), kShown); ++k)
    name.append(k ? "+" : "").append(members[k]->call ? members[k]->call->op : "copy_within");
  return members.size() > kShown ? name + "+" + std::to_string(members.size() - kShown) : name;
}

// Memory that calls read and write, for what may change places with what.
class Uses {
public:
  void add(const Work& w) {
    for (size_t k = 0; k < w.places.size(); ++k) {
      const Id b = w.places[k].buffer;
      if (b == kNone) continue;
      if (w.reads(k)) reads_.insert(b);
      if (w.writes(k)) writes_.insert(b);
    }
  }
  bool meets(const Work& later) const {
    for (size_t k = 0; k < later.places.size(); ++k) {
      const Id b = later.places[k].buffer;
      if (b != kNone && (writes_.contains(b) || (later.writes(k) && reads_.contains(b)))) return true;
    }
    return false;
  }

private:
  std::unordered_set<Id> reads_, writes_;
};

// The run is done whose plan this is for: a compiler that fails takes nothing from it, now or later.
template <class F> bool succeeds(const Backend& backend, const std::string& on, F&& ask) {
  try {
    return ask();
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::Interrupted) throw;
    warn(concat("compile: the compiler of '", backend.name(), "' failed on ", on,
                ", whose kernels are called one by one: ", error.what()),
         "RuntimeWarning");
    return false;
  }
}

class Claims {
public:
  Claims(std::vector<Work>& work, const ClaimOptions& o) : o_(o), backend_(backend_of(o.device)) {
    for (Work& w : work) items_.push_back({std::move(w), 0});
  }

  size_t run() {
    for (size_t begin = 0; begin < items_.size();) {
      size_t end = begin;
      while (end < items_.size() && calls_before(end) == calls_before(begin)) ++end;
      claim(begin, end);
      begin = end;
    }
    for (int32_t group = 1; group <= groups_; ++group) compile_group(group);
    return went_;
  }

  std::vector<Work> work() {
    std::vector<Work> out;
    for (Item& item : items_) out.push_back(std::move(item.work));
    return out;
  }

private:
  struct Item {
    Work work;
    int32_t group; // 0: none
  };
  Id calls_before(size_t k) const { return o_.calls_before[items_[k].work.node]; }
  void claim(size_t begin, size_t end);
  void compile_group(int32_t group);
  void gather(size_t first, size_t last, int32_t group);
  Work joined(std::span<const Work* const> members, const CardGraph& graph) const;
  CardGraph::Test used(size_t begin, size_t end, const std::vector<bool>& besides) const;

  const ClaimOptions& o_;
  Backend& backend_;
  std::vector<Item> items_;
  int32_t groups_ = 0;
  size_t went_ = 0;
};

// Whether memory is used by the calls from begin to end, or besides.
CardGraph::Test Claims::used(size_t begin, size_t end, const std::vector<bool>& besides) const {
  auto buffers = std::make_shared<std::unordered_set<Id>>();
  for (size_t k = begin; k < end; ++k)
    for (const Place& p : items_[k].work.places)
      if (p.buffer != kNone) buffers->insert(p.buffer);
  return [buffers, &besides](Id b) { return besides[b] || buffers->contains(b); };
}

// Asks for the calls between two that are made as ever.
void Claims::claim(size_t begin, size_t end) {
  std::vector<const Work*> shown;
  for (size_t k = begin; k < end; ++k) shown.push_back(&items_[k].work);
  const CardGraph graph(shown, used(0, begin, o_.there), used(end, items_.size(), o_.stays));
  std::vector<int32_t> groups(shown.size(), 0);
  const ts_backend& t = backend_.table();
  const bool told = succeeds(backend_, "a graph's claim", [&] {
    const int status = t.compiler->claim(t.ctx, o_.device.index, &graph.view(), groups.data());
    if (status == TS_DECLINED) return false;
    backend_.check(status, "compiler.claim");
    for (size_t k = 0; k < groups.size(); ++k)
      TS_CHECK(groups[k] >= 0, "compiler.claim: expected the number of a part, from 1 on, or 0, got ", groups[k],
               " for node ", k, ", ", graph.view().nodes[k].op);
    return true;
  });
  std::unordered_map<int32_t, int32_t> numbers; // those of the card: ours
  for (size_t k = 0; told && k < groups.size(); ++k) {
    if (!groups[k] || !graph.is_told(k)) continue;
    const auto [found, is_new] = numbers.try_emplace(groups[k], groups_ + 1);
    groups_ += is_new;
    items_[begin + k].group = found->second;
  }
}

// The calls of a part side by side. One that cannot run before what must come behind the part begins another part.
void Claims::gather(size_t first, size_t last, int32_t group) {
  Uses part, behind;
  std::vector<bool> waits(last - first + 1);
  bool is_cut = false;
  for (size_t k = first; k <= last; ++k) {
    Item& item = items_[k];
    const bool meets_behind = behind.meets(item.work);
    if (item.group == group && (is_cut || meets_behind)) {
      item.group = is_cut ? groups_ : ++groups_;
      is_cut = true;
    }
    if (item.group == group) {
      part.add(item.work);
    } else if (meets_behind || part.meets(item.work)) {
      behind.add(item.work);
      waits[k - first] = true;
    }
  }
  std::vector<Item> order;
  for (int pass = 0; pass < 3; ++pass) // before, the part, behind
    for (size_t k = first; k <= last; ++k) {
      const int place = waits[k - first] ? 2 : items_[k].group == group ? 1 : 0;
      if (place == pass) order.push_back(std::move(items_[k]));
    }
  std::move(order.begin(), order.end(), items_.begin() + static_cast<ptrdiff_t>(first));
}

void Claims::compile_group(int32_t group) {
  auto in_group = [&](const Item& item) { return item.group == group; };
  auto found = std::ranges::find_if(items_, in_group);
  if (found == items_.end()) return;
  const auto last = std::find_if(items_.rbegin(), items_.rend(), in_group);
  gather(static_cast<size_t>(found - items_.begin()), static_cast<size_t>(items_.rend() - last) - 1, group);
  const auto begin = static_cast<size_t>(std::ranges::find_if(items_, in_group) - items_.begin());
  size_t end = begin;
  std::vector<const Work*> members;
  for (; end < items_.size() && in_group(items_[end]); ++end) members.push_back(&items_[end].work);
  const CardGraph graph(members, used(0, begin, o_.there), used(end, items_.size(), o_.stays));
  if (!graph.view().n_outputs) return; // all that it could do is to find a fault
  auto part = std::make_shared<Part>(backend_, o_.device);
  const bool made = succeeds(backend_, name_of(members), [&] {
    const int status = compile_part(backend_, o_.device.index, graph.view(), &part->compiled);
    if (status == TS_DECLINED) return false;
    backend_.check(status, "compiler.compile");
    return true;
  });
  if (!made) return;
  Work whole = joined(members, graph);
  whole.kernel.ctx = part.get();
  whole.owned = std::move(part);
  went_ += members.size();
  items_[begin] = {std::move(whole), 0};
  items_.erase(items_.begin() + static_cast<ptrdiff_t>(begin) + 1, items_.begin() + static_cast<ptrdiff_t>(end));
}

Work Claims::joined(std::span<const Work* const> members, const CardGraph& graph) const {
  Work out;
  ts_call call{};
  for (const Work* w : members) {
    if (w->call && !call.struct_size) call = *w->call;
    out.work += w->work;
    out.node = out.node == kNone ? w->node : std::max(out.node, w->node);
  }
  const std::vector<ts_tensor> outputs = graph.tensors(true), inputs = graph.tensors(false);
  call.struct_size = sizeof call;
  call.op = kept_name(name_of(members));
  call.compute_dtype = -1;
  call.opcode = 0;
  call.n_outputs = static_cast<int32_t>(outputs.size());
  call.n_inputs = static_cast<int32_t>(inputs.size());
  call.n_params = 0;
  call.params = nullptr;
  call.program = call.prologue = call.epilogue = nullptr;
  call.tensor_size = sizeof(ts_tensor);
  call.outputs = outputs.data();
  call.inputs = inputs.data();
  out.call.reset(copy_call(call));
  if (!out.call) throw std::bad_alloc();
  out.call->op = call.op;
  out.kernel.struct_size = sizeof out.kernel;
  out.kernel.run = run_part;
  out.is_part = true;
  out.places = graph.places(true);
  const std::vector<Place> read = graph.places(false);
  out.places.insert(out.places.end(), read.begin(), read.end());
  return out;
}

} // namespace

size_t claim_parts(std::vector<Work>& work, const ClaimOptions& options) {
  if (!backend_of(options.device).table().compiler) return 0;
  Claims claims(work, options);
  const size_t went = claims.run();
  work = claims.work();
  return went;
}

} // namespace ts::graph
