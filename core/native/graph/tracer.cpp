#include "graph/tracer.h"
#include "autograd/accumulate.h"
#include "autograd/meta.h"
#include "dispatch/op_handles.h"
#include "dispatch/watch.h"
#include "extend/autocast.h"
#include <algorithm>
#include <atomic>
#include <bit>

namespace ts::graph {
namespace {

thread_local Tracer* t_tracer = nullptr;
std::atomic<uint32_t> g_numbers{0}, g_serials{0};
std::atomic<int> g_tracing{0}; // threads
constexpr KeySet kKeys = key_bit(key::Tracer) | key_bit(key::Leaf);

// Composite operators are made of calls that come here themselves, unless the card answers for the whole.
bool has_parts(const Operator& op, KeySet keys) { return op.composite() && !(op.overridden & keys); }

void scope_kernel(void*, const Operator& op, Frame& f, KeySet keys) {
  if (Tracer* t = Tracer::current()) return t->run_scope(op, f, keys);
  redispatch(op, f, keys & below(key::Tracer));
}
void leaf_kernel(void*, const Operator& op, Frame& f, KeySet keys) {
  Tracer* t = Tracer::current();
  if (t && !has_parts(op, keys)) return t->run_leaf(op, f, keys);
  redispatch(op, f, keys & below(key::Leaf));
}
void on_kernel(const ts_call& call) {
  if (Tracer* t = Tracer::current()) t->kernel_seen(call);
}

void on_draw() {
  if (Tracer* t = Tracer::current()) t->draw_seen();
}

struct InstallKernels {
  InstallKernels() {
    set_key_default(key::Tracer, {scope_kernel, nullptr, "tesserack"});
    set_key_default(key::Leaf, {leaf_kernel, nullptr, "tesserack"});
    kernel_hook = on_kernel;
    draw_hook = on_draw;
    held_by_tracer = [](const Storage* s) { return t_tracer && t_tracer->holds(s); };
  }
} install;

const Op kAsStrided("as_strided"), kClone("clone");
constexpr const char* kPythonCall = "tesserack::_python_call"; // which enters its autocast regions again
constexpr const char* kOwnRegion = "is called in an autocast region of the program's own, ";

} // namespace

// None within a call that stands whole: sizes and values that it looks at are its own affair.
Tracer* Tracer::current() {
  const bool whole = thread_state().exclude & key_bit(key::Leaf);
  return t_tracer && !whole && t_tracer->failed_.empty() ? t_tracer : nullptr;
}

Tracer::Tracer(Surroundings around, bool lenient, bool whole)
    : around_(std::move(around)), serial_(g_serials.fetch_add(1) + 1), lenient_(lenient),
      takes_views_(!lenient || whole) {}

template <class F> bool Tracer::attempt(F write) {
  if (!failed_.empty()) return false;
  if (!lenient_) return write(), true;
  try {
    write();
    return true;
  } catch (const Error& error) {
    failed_ = error.what();
    return false;
  }
}

void Tracer::cancel() noexcept {
  if (!std::exchange(running_, false)) return;
  t_tracer = nullptr;
  thread_state().include = (thread_state().include & ~kKeys) | include_before_;
  if (g_tracing.fetch_sub(1) == 1) kernel_watchers.fetch_and(~uint32_t{kWatchTrace});
  made_.reset();
  let_go(); // now: an error may hold this for long, and memory that is held twice is not taken for one tensor's own
}

void Tracer::let_go() noexcept {
  for (auto& [storage, values] : at_) release(storage);
  at_.clear();
}

Tracer::~Tracer() {
  cancel();
  let_go();
}

void Tracer::add_input(const Tensor& t, std::string_view name) {
  Id v = known(*t.impl());
  if (v == kNone) {
    v = new_value(t, kNone);
    graph_.values[v].name = graph_.intern(name);
  }
  graph_.inputs.push_back(v);
}

void Tracer::begin() {
  TS_CHECK(!t_tracer, "trace: this thread writes a program down already");
  include_before_ = thread_state().include & kKeys;
  thread_state().include |= kKeys;
  grad_before_ = grad_enabled();
  regions_ = autocast_regions();
  made_ = std::make_unique<WatchStorage>();
  running_ = true;
  t_tracer = this;
  g_tracing.fetch_add(1);
  kernel_watchers.fetch_or(kWatchTrace);
}

Graph Tracer::end(std::span<const Tensor> outputs) {
  TS_CHECK(running_ && t_tracer == this, "trace: this thread does not write this program down");
  TS_CHECK(failed_.empty(), failed_);
  TS_CHECK(scopes_.empty(), "trace: expected the end of the program, got the end within a call of an operator");
  for (const Tensor& t : outputs) graph_.outputs.push_back(value_of(t));
  cancel();
  drop_unused_numbers(graph_);
  verify(graph_);
  return std::move(graph_);
}

// --- tensors -----------------------------------------------------------------------------------------------------

bool Tracer::same_geometry(const ValueInfo& v, const Tensor& t) const {
  return v.dtype == t.dtype() && v.device == t.device() && std::ranges::equal(graph_.sizes(v), t.sizes()) &&
         std::ranges::equal(graph_.strides(v), t.strides());
}

Id Tracer::known(const TensorImpl& t) const {
  auto found = t.traced ? numbers_.find(t.traced) : numbers_.end();
  if (found == numbers_.end()) return kNone;
  const Seen& seen = seen_[found->second];
  const ValueInfo& v = graph_.values[found->second];
  bool same = seen.storage == t.storage && seen.offset == t.byte_offset && v.dtype == t.dtype &&
              std::ranges::equal(graph_.sizes(v), t.sizes()) && std::ranges::equal(graph_.strides(v), t.strides());
  return same ? found->second : kNone;
}

void Tracer::mark(const Tensor& t, Id v) {
  uint32_t number = g_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  if (!number) number = g_numbers.fetch_add(1, std::memory_order_relaxed) + 1;
  t->traced = number;
  numbers_[number] = v;
}

Id Tracer::new_value(const Tensor& t, Id producer) {
  Id v = graph_.add_value(t, producer);
  seen_.resize(v + 1);
  seen_[v] = {t->storage, t->byte_offset, t.pending()};
  if (t->storage) {
    auto [at, added] = at_.try_emplace(t->storage);
    if (added) {
      retain(t->storage);
      if (t->storage->handle) handles_[t->storage->handle] = t->storage;
    } else if (!at->second.empty()) {
      graph_.values[v].alias = graph_.values[at->second.front()].alias;
    }
    at->second.push_back(v);
  }
  mark(t, v);
  return v;
}

// Memory that only this tracer holds will not come back: a call must have it from somebody.
void Tracer::sweep() {
  for (auto at = at_.begin(); at != at_.end();) {
    Storage* s = at->first;
    if (s->refs.load(std::memory_order_acquire) != 1) {
      ++at;
      continue;
    }
    for (Id v : at->second) seen_[v].storage = nullptr;
    handles_.erase(s->handle);
    release(s);
    at = at_.erase(at);
  }
  next_sweep_ = graph_.nodes.size() + std::max<size_t>(256, at_.size());
}

Id Tracer::in_memory(const Tensor& t) {
  auto found = t->storage ? at_.find(t->storage) : at_.end();
  if (found == at_.end() || found->second.empty()) return kNone;
  const std::vector<Id>& there = found->second;
  for (auto at = there.rbegin(); at != there.rend(); ++at)
    if (seen_[*at].offset == t->byte_offset && seen_[*at].pending == t.pending() &&
        same_geometry(graph_.values[*at], t))
      return *at;
  auto fits = [&](Id v) { return graph_.values[v].dtype == t.dtype() && seen_[v].pending == t.pending(); };
  auto base = std::find_if(there.begin(), there.end(), fits);
  TS_CHECK(base != there.end(), "trace: expected a tensor that operators made, got one of ", t.dtype(),
           " that sees the memory of another of ", graph_.values[there.front()].dtype, "; use view(dtype)");
  Item sizes, strides, args[4];
  std::vector<Item> numbers;
  for (int64_t n : t.sizes()) numbers.push_back(Item::integer(n));
  sizes.tag = strides.tag = Tag::Ints;
  sizes.len = strides.len = static_cast<uint32_t>(t.ndim());
  sizes.at = graph_.add_items(numbers);
  numbers.clear();
  for (int64_t n : t.strides()) numbers.push_back(Item::integer(n));
  strides.at = graph_.add_items(numbers);
  args[0] = Item::value(Tag::Tensor, *base);
  args[1] = sizes, args[2] = strides, args[3] = Item::integer(t.storage_offset());
  return call_here(kAsStrided.get(), args, t);
}

Node Tracer::blank() const {
  Node n;
  n.parent = scopes_.empty() ? kNone : scopes_.back();
  n.no_grad = grad_before_ && !grad_enabled() && !thread_state().backward_running;
  n.backward = thread_state().backward_running != nullptr;
  return n;
}

Id Tracer::call_here(const Operator& op, std::span<const Item> args, const Tensor& result) {
  Node n = blank();
  n.op = &op;
  n.args = graph_.add_items(args);
  n.n_args = static_cast<uint32_t>(args.size());
  auto at = static_cast<Id>(graph_.nodes.size());
  n.end = at + 1;
  Id v = new_value(result, at);
  Item item = Item::value(Tag::Tensor, v);
  n.results = graph_.add_items({&item, 1});
  n.n_results = 1;
  if (std::string line = around_.line(); !line.empty()) n.line = graph_.intern(line);
  graph_.nodes.push_back(n);
  return v;
}

// What was made meanwhile, of data of the host, is kept as it is now; where it may be written, each run has its own.
Id Tracer::capture(const Tensor& t) {
  bool constant = t->storage && made_ && made_->made(t->storage);
  Tensor kept = t;
  if (constant) {
    ExcludeKeys hidden(kKeys | key_bit(key::Autograd));
    kept = ops::clone(t);
    if (!std::ranges::equal(kept.strides(), t.strides())) kept = t;
  }
  Id v = new_value(kept.is(t) ? t : kept, kNone);
  graph_.captures.push_back(v);
  graph_.captured.push_back(kept);
  graph_.constant.push_back(constant && !kept.is(t));
  if (!graph_.constant.back()) return v;
  Item args[2] = {Item::value(Tag::Tensor, v), Item::integer(static_cast<int64_t>(MemoryFormat::Preserve))};
  return call_here(kClone.get(), {args, kClone.get().schema->args.size()}, t);
}

Id Tracer::value_of(const Tensor& t) {
  if (Id v = known(*t.impl()); v != kNone) return v;
  TS_CHECK(!t->payload, "trace: sparse tensors are not written down; trace what is made of their dense parts");
  Id v = in_memory(t);
  // A run that is repeated with gradients must know how a tensor of the program came to be; trace warns of less.
  TS_CHECK(v == kNone || takes_views_ || !scopes_.empty(),
           "a tensor is used that sees the memory of another, and no operator has made it, as `.data` is");
  return v != kNone ? v : capture(t);
}

// --- arguments and results ---------------------------------------------------------------------------------------

bool Tracer::Link::is(const Item& n) const {
  if (n.tag == Tag::Int) return number.tag == Tag::Int && number.i == n.i;
  return std::bit_cast<uint64_t>(number.as_double()) == std::bit_cast<uint64_t>(n.f);
}

void Tracer::link(const void* place, const Item& number, Id value) { links_.push_back({place, number, value, false}); }

// Numbers that stand where they were put are no one else's, however many others are equal.
void Tracer::find_places(const Frame& f) {
  auto found = [&](const void* place, const Item& number) {
    for (const Link& link : links_)
      if (link.place == place && link.is(number))
        for (Link& other : links_) // other attempts at the same call noted it elsewhere
          other.used = other.used || other.value == link.value;
  };
  for (int32_t k = 0; k < f.nargs; ++k) {
    const ts::Value& v = f.args[k];
    if (v.tag == Tag::Int) found(&v, Item::integer(v.i));
    if (v.tag == Tag::Float) found(&v, Item::real(v.f));
    if (v.tag == Tag::Ints)
      for (const int64_t& i : v.as_ints()) found(&i, Item::integer(i));
    if (v.tag == Tag::Floats)
      for (const double& d : v.as_floats()) found(&d, Item::real(d));
  }
}

Item Tracer::number_item(const Item& number, const void* place, bool linked) {
  if (!linked || links_.empty()) return number;
  // Newest first: an attempt at another overload may have left places that were filled again.
  for (auto at = links_.rbegin(); at != links_.rend(); ++at)
    if (at->place == place && at->is(number)) return Item::value(at->number.tag, at->value);
  for (Link& link : links_) // of a number that was copied on its way
    if (!link.used && link.is(number)) {
      link.used = true;
      return Item::value(link.number.tag, link.value);
    }
  return number;
}

Item Tracer::item_of(const ts::Value& v, bool linked) {
  Item item;
  item.tag = v.tag;
  std::vector<Item> list;
  switch (v.tag) {
  case Tag::Tensor: return Item::value(Tag::Tensor, value_of(v.as_tensor()));
  case Tag::Int: return number_item(Item::integer(v.i), &v, linked);
  case Tag::Float: return number_item(Item::real(v.f), &v, linked);
  case Tag::Str: item.at = graph_.intern(v.str); return item;
  case Tag::Bool:
  case Tag::DType:
  case Tag::Device: item.i = v.i; return item;
  case Tag::Ints:
    for (const int64_t& i : v.as_ints()) list.push_back(number_item(Item::integer(i), &i, linked));
    break;
  case Tag::Floats:
    for (const double& d : v.as_floats()) list.push_back(number_item(Item::real(d), &d, linked));
    break;
  case Tag::Complex:
    for (double d : v.as_floats()) list.push_back(Item::real(d));
    break;
  case Tag::Tensors:
    for (const Tensor& t : v.as_tensors()) list.push_back(t.defined() ? Item::value(Tag::Tensor, value_of(t)) : Item());
    break;
  case Tag::Generator: item.at = graph_.add_generator(v.generator); return item;
  default: return Item();
  }
  item.len = static_cast<uint32_t>(list.size());
  item.at = graph_.add_items(list);
  return item;
}

Id Tracer::result_value(const Tensor& t, Id node, Id first_own) {
  Id v = known(*t.impl());
  if (v == kNone && t->storage) {
    auto found = at_.find(t->storage); // what autograd made another of
    if (found != at_.end())
      for (auto at = found->second.rbegin(); at != found->second.rend() && *at >= first_own; ++at)
        if (seen_[*at].offset == t->byte_offset && seen_[*at].pending == t.pending() &&
            same_geometry(graph_.values[*at], t)) {
          v = *at;
          break;
        }
  }
  if (v != kNone && v >= first_own) { // of a part, below autograd
    graph_.values[v].requires_grad = requires_grad(t);
    if (known(*t.impl()) != v) mark(t, v);
    return v;
  }
  Id fresh = new_value(t, node);
  graph_.values[fresh].same_as = v;
  if (v != kNone) graph_.values[fresh].alias = graph_.values[v].alias;
  return fresh;
}

Item Tracer::result_item(const ts::Value& v, Id node, Id first_own) {
  if (v.tag == Tag::Tensor) return Item::value(Tag::Tensor, result_value(v.as_tensor(), node, first_own));
  if (v.tag == Tag::Tensors) {
    std::vector<Item> list;
    for (const Tensor& t : v.as_tensors())
      list.push_back(t.defined() ? Item::value(Tag::Tensor, result_value(t, node, first_own)) : Item());
    Item item;
    item.tag = Tag::Tensors;
    item.len = static_cast<uint32_t>(list.size());
    item.at = graph_.add_items(list);
    return item;
  }
  Item item;
  item.tag = v.tag;
  item.i = v.i;
  return item;
}

// --- nodes -------------------------------------------------------------------------------------------------------

Id Tracer::open(const Operator& op, const Frame& f, bool linked) {
  if (graph_.nodes.size() >= next_sweep_) sweep();
  std::vector<Item> args;
  if (linked && !links_.empty()) find_places(f);
  for (int32_t k = 0; k < f.nargs; ++k) args.push_back(item_of(f.args[k], linked));
  if (linked) links_.clear();
  Node n = blank();
  n.op = &op;
  n.args = graph_.add_items(args);
  n.n_args = static_cast<uint32_t>(args.size());
  if (std::string line = around_.line(); !line.empty()) n.line = graph_.intern(line);
  if (!modules_.empty() && !modules_.back().empty()) n.path = graph_.intern(modules_.back());
  graph_.nodes.push_back(n);
  return static_cast<Id>(graph_.nodes.size() - 1);
}

void Tracer::close(Id node, const Frame& f, Id first_own) {
  std::vector<Item> results;
  for (int32_t k = 0; k < f.nrets; ++k) results.push_back(result_item(f.rets[k], node, first_own));
  Node& n = graph_.nodes[node];
  n.results = graph_.add_items(results);
  n.n_results = static_cast<uint32_t>(results.size());
  n.end = static_cast<Id>(graph_.nodes.size());
}

// An operator without parts stands once.
void Tracer::collapse(Id node) {
  Node& n = graph_.nodes[node];
  if (graph_.nodes.size() != node + 2 || graph_.nodes[node + 1].op != n.op || graph_.is_scope(node + 1)) return;
  auto same = [](const Item& a, const Item& b) { return a.tag == b.tag && (a.tag != Tag::Tensor || a.at == b.at); };
  if (!std::ranges::equal(graph_.args(n), graph_.args(graph_.nodes[node + 1]), same)) return;
  graph_.each_def(graph_.nodes[node + 1], [&](Id v) { graph_.values[v].producer = node; });
  graph_.nodes.pop_back();
  n.end = node + 1;
}

bool Tracer::in_other_region() const {
  const bool any = (thread_state().include & key_bit(key::Autocast)) || !regions_.empty();
  return any && regions_ != autocast_regions();
}

// A run calls the operator in the region that it was begun in: there it must do what it did in one of the program's
// own, whose casts around the call are calls of their own.
void Tracer::check_region(Id node) const {
  static const Op cast("_autocast_cast"), to("to.dtype");
  const Operator* called = graph_.nodes[node].op;
  if (called == &cast.get() || called == &to.get()) return;
  if (called->name() == kPythonCall) return;
  for (Id k = node; k < graph_.nodes[node].end; ++k) {
    const Operator* op = graph_.nodes[k].op;
    const bool casts = regions_.empty() ? k > node && (op == &cast.get() || op == &to.get())
                                        : op && op->table.find(key::Autocast) != nullptr;
    TS_CHECK(!casts, called->name(), " ", kOwnRegion, regions_.empty() ? "and casts within" : "within another one");
  }
}

void Tracer::run_scope(const Operator& op, Frame& f, KeySet keys) {
  // What is done to memory whose conjugation is pending is no operator of its own: such a call stays whole.
  if (keys & pending_bits()) return run_whole(op, f, keys & below(key::Tracer), scopes_.empty());
  Id node = kNone;
  if (!attempt([&] { node = open(op, f, scopes_.empty()); })) return redispatch(op, f, keys & below(key::Tracer));
  auto first_own = static_cast<Id>(graph_.values.size());
  const bool other_region = scopes_.empty() && in_other_region();
  scopes_.push_back(node);
  try {
    redispatch(op, f, keys & below(key::Tracer));
  } catch (...) {
    scopes_.pop_back();
    graph_.nodes.resize(node); // what it did not do is not done again
    throw;
  }
  scopes_.pop_back();
  attempt([&] {
    close(node, f, first_own);
    if (other_region) check_region(node);
    collapse(node);
  });
}

void Tracer::run_leaf(const Operator& op, Frame& f, KeySet keys) { run_whole(op, f, keys & below(key::Leaf), false); }

void Tracer::run_whole(const Operator& op, Frame& f, KeySet keys, bool linked) {
  Id node = kNone;
  bool open_now = attempt([&] { node = open(op, f, linked); });
  const bool watches = in_other_region() && op.name() != kPythonCall;
  const uint64_t asked = autocast_asked();
  {
    ExcludeKeys within(kKeys);
    IncludeKeys asking(watches ? key_bit(key::Autocast) : 0); // in a region that is off, too
    try {
      redispatch(op, f, keys & ~kKeys);
    } catch (...) {
      if (open_now) graph_.nodes.resize(node);
      throw;
    }
  }
  // What is written in place is another value from here on.
  attempt([&] {
    close(node, f, static_cast<Id>(graph_.values.size()));
    graph_.each_def(graph_.nodes[node], [&](Id v) { graph_.values[v].same_as = kNone; });
    TS_CHECK(!watches || autocast_asked() == asked, op.name(), " ", kOwnRegion, "and calls what casts");
  });
}

// A kernel that no operator of the graph launches would be left out by every run.
void Tracer::kernel_seen(const ts_call& call) {
  if (thread_state().exclude & key_bit(key::Leaf)) return;
  auto touches = [&](const ts_tensor* list, int32_t n) {
    for (int32_t k = 0; k < n; ++k)
      if (list[k].handle && handles_.contains(list[k].handle)) return true;
    return false;
  };
  attempt([&] {
    TS_CHECK(!touches(call.inputs, call.n_inputs) && !touches(call.outputs, call.n_outputs), "trace: the kernel ",
             call.op, " works on tensors of the program outside of any operator, at ", around_.line(),
             ", and a graph would leave it out");
  });
}

// What an operator's parts do not draw would be in a graph of them as it was drawn once.
void Tracer::draw_seen() {
  attempt([&] {
    fail(ErrorKind::Runtime, "trace: random numbers are drawn outside of any operator, at ", around_.line());
  });
}

// --- the program's surroundings ----------------------------------------------------------------------------------

void Tracer::enter_module(std::string_view path) { modules_.emplace_back(path); }
void Tracer::leave_module() {
  if (!modules_.empty()) modules_.pop_back();
}

void Tracer::host_read(const Tensor& t, const char* what) {
  if (thread_state().exclude & key_bit(key::Leaf)) return;
  // One whose run is repeated counts on what was there before, too; not on what is made of data of the host.
  const bool of_run = made_ && t->storage && made_->made(t->storage);
  const bool of_program =
      known(*t.impl()) != kNone || (t->storage && at_.contains(t->storage)) || (lenient_ && !of_run);
  if (of_program && !(around_.reading && around_.reading(t)))
    around_.warning(
        concat("Converting a tensor to a ", what,
               " might cause the trace to be incorrect. We can't record the data flow of Python values, so "
               "this value will be treated as a constant in the future. This means that the trace might not "
               "generalize to other inputs!"));
}

} // namespace ts::graph
