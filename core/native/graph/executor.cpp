#include "graph/executor.h"
#include "autograd/meta.h"
#include "graph/executor_state.h"
#include "graph/plan/cache.h"
#include "graph/plan/record.h"
#include "runtime/interrupts.h"
#include <algorithm>
#include <bit>

namespace ts::graph {

namespace {

ts::Value constant(const Graph& g, const Item& item, std::vector<std::unique_ptr<int64_t[]>>& words) {
  ts::Value v;
  v.tag = item.tag;
  switch (item.tag) {
  case Tag::Str: v.str = g.strings[item.at].c_str(); return v;
  case Tag::Generator: v.generator = g.generators[item.at].get(); return v;
  case Tag::Ints:
  case Tag::Floats:
  case Tag::Complex: {
    auto list = std::make_unique<int64_t[]>(std::max(item.len, 1u));
    for (uint32_t k = 0; k < item.len; ++k) list[k] = g.items[item.at + k].i; // a double's bits, too
    v.len = static_cast<int32_t>(item.len);
    v.ints = list.get();
    words.push_back(std::move(list));
    return v;
  }
  case Tag::Tensors: v.len = static_cast<int32_t>(item.len); return v;
  default: v.i = item.i; return v;
  }
}

bool holds_values(const Graph& g, const Item& item) {
  if (item.is_value || item.tag == Tag::Tensors) return true;
  return item.is_list() && std::ranges::any_of(g.elements(item), [](const Item& e) { return e.is_value; });
}

// The last node that needs each value: it goes then.
std::vector<std::vector<Id>> deaths(const Graph& g) {
  std::vector<Id> last(g.values.size(), kNone);
  for (Id n = 0; n < g.nodes.size(); ++n) {
    g.each_def(g.nodes[n], [&](Id v) { last[v] = n; });
    g.each_use(g.nodes[n], [&](Id v) { last[v] = n; });
  }
  for (Id v : g.outputs) last[v] = kNone;
  std::vector<std::vector<Id>> dead(g.nodes.size());
  for (Id v = 0; v < last.size(); ++v)
    if (last[v] != kNone && g.values[v].tag == Tag::Tensor) dead[last[v]].push_back(v);
  return dead;
}

} // namespace

Executor::~Executor() { delete spare_.load(); }

std::unique_ptr<Executor::State> Executor::take_state() const {
  std::unique_ptr<State> state(spare_.exchange(nullptr));
  if (state) return state;
  state = std::make_unique<State>();
  state->tensors.resize(g_.values.size());
  state->numbers.resize(g_.values.size());
  state->args.resize(most_args_);
  state->words.resize(most_words_);
  state->lists.resize(most_tensors_);
  return state;
}

// Holds no tensor while nobody runs.
void Executor::give_back(std::unique_ptr<State> state) const {
  for (Tensor& t : state->tensors)
    if (t.defined()) t = Tensor();
  delete spare_.exchange(state.release());
}

Executor::Executor(Graph g, Plans plans) : g_(std::move(g)), when_(plans), plans_(std::make_unique<PlanCache>()) {
  verify(g_);
  auto dead = deaths(g_);
  for (Id n = 0; n < g_.nodes.size(); ++n) {
    const Node& node = g_.nodes[n];
    TS_CHECK(!g_.is_scope(n), "graph: expected one level of calls, got scopes; take outer_level or leaf_level");
    TS_CHECK(!node.op || node.n_results <= static_cast<uint32_t>(Results::kMax), "graph: ", node.op->name(),
             " has too many results");
    Step step;
    step.node = n;
    step.dead = std::move(dead[n]);
    uint32_t words = 0, tensors = 0;
    for (uint32_t k = 0; k < node.n_args; ++k) {
      const Item& item = g_.args(node)[k];
      step.args.push_back(item.is_value ? ts::Value() : constant(g_, item, step.words));
      if (!holds_values(g_, item)) continue;
      step.fill.emplace_back(k, item);
      if (item.tag == Tag::Tensors) tensors += item.len;
      if (item.tag == Tag::Ints || item.tag == Tag::Floats) words += item.len;
    }
    most_words_ = std::max(most_words_, words);
    most_tensors_ = std::max(most_tensors_, tensors);
    most_args_ = std::max(most_args_, node.n_args);
    steps_.push_back(std::move(step));
  }
}

namespace {

void expect_tensors(const Graph& g, const std::vector<Id>& ids, std::span<const Tensor> given, const char* what) {
  TS_CHECK(given.size() == ids.size(), "graph: expected ", ids.size(), ' ', what, "s, got ", given.size());
  for (size_t k = 0; k < ids.size(); ++k) {
    uint32_t name = g.values[ids[k]].name;
    TS_CHECK(given[k].defined(), "graph: expected a tensor for the ", what, ' ',
             name == kNone ? std::to_string(k) : g.strings[name], ", got none");
  }
}

bool tells_more(const Error& error) { // than its text: a Python exception, an interruption
  return error.kind() == ErrorKind::Python || error.kind() == ErrorKind::Interrupted;
}

} // namespace

std::vector<Tensor> Executor::run_last(std::vector<Tensor> inputs) const {
  std::vector<Tensor> out;
  run_any(inputs, {}, {}, out, &inputs);
  return out;
}

void Executor::run_any(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                       const std::function<void(Id)>& on_guard, std::vector<Tensor>& out,
                       std::vector<Tensor>* last) const {
  if (captures.empty()) captures = g_.captured;
  expect_tensors(g_, g_.inputs, inputs, "input");
  expect_tensors(g_, g_.captures, captures, "capture");
  if (when_ != Plans::Never && may_plan()) {
    PlanCache::Found found = plans_->find(inputs, captures, when_ != Plans::Again);
    if (found.plan && found.plan->run(inputs, captures, on_guard, out, last)) return;
    if (found.make) return void(out = run_watched(inputs, captures, on_guard));
    if (found.region)
      return void(out = run_region(*this, found.region, inputs, captures, on_guard, when_ != Plans::Again));
  }
  std::unique_ptr<State> taken = state_with(inputs, captures); // after an error it goes
  if (last) last->clear();
  taken->outer = Tracer::current();
  if (taken->outer) taken->outer_ids.assign(g_.values.size(), kNone);
  out = run_steps(*taken, on_guard, nullptr);
  give_back(std::move(taken));
}

std::vector<Tensor> Executor::call_operators(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                                             const std::function<void(Id)>& on_guard, Id* now) const {
  if (captures.empty()) captures = g_.captured;
  std::unique_ptr<State> taken = state_with(inputs, captures);
  taken->outer = nullptr;
  std::vector<Tensor> out = run_steps(*taken, on_guard, now);
  give_back(std::move(taken));
  return out;
}

std::unique_ptr<Executor::State> Executor::state_with(std::span<const Tensor> inputs,
                                                      std::span<const Tensor> captures) const {
  std::unique_ptr<State> state = take_state();
  for (size_t k = 0; k < inputs.size(); ++k) state->tensors[g_.inputs[k]] = inputs[k];
  for (size_t k = 0; k < captures.size(); ++k) state->tensors[g_.captures[k]] = captures[k];
  return state;
}

std::vector<Tensor> Executor::run_steps(State& state, const std::function<void(Id)>& on_guard, Id* now) const {
  AskForInterrupts asking;
  for (const Step& step : steps_) {
    if (now) *now = step.node;
    run_step(step, state, on_guard);
    asking.after(elements_of(step, state), "graph");
    for (Id v : step.dead) state.tensors[v] = Tensor();
  }
  return outputs_of(state);
}

// That its first result has.
int64_t Executor::elements_of(const Step& step, const State& state) const {
  const Node& node = g_.nodes[step.node];
  if (!node.op || !node.n_results || !g_.results(node)[0].is_value) return 0;
  const Tensor& t = state.tensors[g_.results(node)[0].id()];
  return t.defined() ? t.numel() : 0;
}

std::vector<Tensor> Executor::outputs_of(const State& state) const {
  std::vector<Tensor> out;
  out.reserve(g_.outputs.size());
  for (Id v : g_.outputs) out.push_back(state.tensors[v]);
  return out;
}

// As run_steps; what is seen makes a plan.
std::vector<Tensor> Executor::run_watched(std::span<const Tensor> inputs, std::span<const Tensor> captures,
                                          const std::function<void(Id)>& on_guard) const {
  PlanKey key(inputs, captures);
  std::unique_ptr<State> taken = state_with(inputs, captures);
  State& state = *taken;
  state.outer = nullptr;
  std::vector<const TensorImpl*> given;
  for (const Tensor& t : inputs) given.push_back(t.impl());
  for (const Tensor& t : captures) given.push_back(t.impl());
  const Device device = given[0]->device;
  Recorder recorder(g_, device, std::move(given));
  AskForInterrupts asking;
  for (const Step& step : steps_) {
    recorder.begin(step.node);
    run_step(step, state, on_guard);
    asking.after(elements_of(step, state), "graph");
    recorder.end(state.tensors);
    for (Id v : step.dead) state.tensors[v] = Tensor();
  }
  recorder.leave();
  std::vector<Tensor> out = outputs_of(state);
  std::vector<uint32_t> versions;
  for (const Tensor& t : out) versions.push_back(t.defined() ? t.version() : 0);
  plans_->put(std::move(key), Plan::make(*this, recorder, state.numbers, std::move(versions)));
  give_back(std::move(taken));
  return out;
}

void Executor::rethrow(const Error& error, Id node) const {
  const uint32_t line = node == kNone ? kNone : g_.nodes[node].line;
  if (line == kNone || tells_more(error)) throw;
  fail(error.kind(), error.what(), "\n  written down at ", g_.strings[line]);
}

bool Executor::fits(std::span<const Tensor> inputs, std::span<const Tensor> captures) const {
  if (captures.empty()) captures = g_.captured;
  auto same = [&](const std::vector<Id>& ids, std::span<const Tensor> given) {
    if (ids.size() != given.size()) return false;
    for (size_t k = 0; k < ids.size(); ++k) {
      const ValueInfo& v = g_.values[ids[k]];
      const Tensor& t = given[k];
      if (!t.defined() || v.dtype != t.dtype() || !(v.device == t.device()) || t.pending() || t->payload ||
          !std::ranges::equal(g_.sizes(v), t.sizes()) || !std::ranges::equal(g_.strides(v), t.strides()))
        return false;
    }
    return true;
  };
  return same(g_.inputs, inputs) && same(g_.captures, captures);
}

void Executor::run_step(const Step& step, State& state, const std::function<void(Id)>& on_guard) const {
  const Node& node = g_.nodes[step.node];
  if (node.op) {
    GradMode mode(grad_enabled() && !node.no_grad);
    try {
      return call_operator(step, state);
    } catch (const Error& error) {
      rethrow(error, step.node);
    }
  }
  if (node.size_op == SizeOp::Forward) return check_forward(node, state);
  if (!is_guard(node.size_op)) return compute_number(node, state);
  std::span<const Item> args = g_.args(node);
  bool now = compute(node.size_op, state.number(args[0]), state.number(args[1])).i != 0;
  if (state.outer) state.outer->guard(node.size_op, state.outer_item(args[0]), state.outer_item(args[1]), now);
  if (now != (args[2].i != 0) && on_guard) on_guard(step.node);
}

void Executor::compute_number(const Node& node, State& state) const {
  std::span<const Item> args = g_.args(node);
  const Item& result = g_.results(node)[0];
  Id id = result.id();
  Item& out = state.numbers[id];
  const Tensor* tensor = args[0].tag == Tag::Tensor ? &state.tensors[args[0].id()] : nullptr;
  if (node.size_op == SizeOp::Size)
    out = Item::integer(tensor->size(args[1].i));
  else if (node.size_op == SizeOp::Stride)
    out = Item::integer(tensor->strides()[static_cast<size_t>(args[1].i)]);
  else if (node.size_op == SizeOp::Numel)
    out = Item::integer(tensor->numel());
  else if (node.size_op == SizeOp::Read)
    out = read_number(*tensor);
  else
    out = compute(node.size_op, state.number(args[0]), arity(node.size_op) == 2 ? state.number(args[1]) : Item());
  TS_CHECK_VALUE(out.tag == result.tag, name_of(node.size_op),
                 ": a whole number was a fraction, or the reverse, when "
                 "it was written down");
  if (!state.outer) return;
  Id& there = state.outer_ids[id];
  if (node.size_op == SizeOp::Size)
    there = state.outer->size_of(*tensor, args[1].i);
  else if (node.size_op == SizeOp::Stride)
    there = state.outer->stride_of(*tensor, args[1].i);
  else if (node.size_op == SizeOp::Numel)
    there = state.outer->numel_of(*tensor);
  else if (node.size_op == SizeOp::Read)
    there = state.outer->read(*tensor);
  else
    there = state.outer->arithmetic(node.size_op, state.outer_item(args[0]),
                                    arity(node.size_op) == 2 ? state.outer_item(args[1]) : Item());
}

void Executor::check_forward(const Node& node, const State& state) const {
  if (!grad_enabled() || node.no_grad) return;
  g_.each_use(node, [&](Id v) {
    TS_CHECK(!requires_grad(state.tensors[v]), "graph: an autograd.Function, at ",
             node.line == kNone ? "a line that is not known" : g_.strings[node.line],
             ", was written down as what its forward computes, without its gradient; call the traced program under "
             "no_grad(), or write the function with operators");
  });
}

void Executor::call_operator(const Step& step, State& state) const {
  const Node& node = g_.nodes[step.node];
  const std::vector<Argument>& types = node.op->schema->args;
  std::copy(step.args.begin(), step.args.end(), state.args.begin());
  int64_t* words = state.words.data();
  Tensor* lists = state.lists.data();
  for (const auto& [k, item] : step.fill) {
    ts::Value& v = state.args[k];
    if (item.is_value) {
      v = item.tag == Tag::Tensor ? ts::Value(state.tensors[item.id()]) : state.argument(item, types[k].type.kind);
      if (item.is_number()) state.link(&v, item);
    } else if (item.tag == Tag::Ints || item.tag == Tag::Floats) {
      v = Value();
      v.tag = item.tag;
      v.len = static_cast<int32_t>(item.len);
      v.ints = words; // or doubles' bits
      for (const Item& e : g_.elements(item)) {
        const Item& number = state.number(e);
        *words = item.tag == Tag::Ints ? number.i : std::bit_cast<int64_t>(number.as_double());
        state.link(words++, e);
      }
    } else {
      v = ts::Value(TensorList(lists, item.len));
      for (const Item& e : g_.elements(item)) *lists++ = e.is_value ? state.tensors[e.id()] : Tensor();
    }
  }
  Results results;
  Frame f{state.args.data(), results.data(), static_cast<int32_t>(node.n_args), static_cast<int32_t>(node.n_results)};
  call(*node.op, f);
  for (Tensor* t = state.lists.data(); t != lists; ++t) *t = Tensor();
  for (uint32_t k = 0; k < node.n_results; ++k) {
    const Item& item = g_.results(node)[k];
    if (item.is_value) {
      state.tensors[item.id()] = results.take(static_cast<int>(k));
    } else if (item.tag == Tag::Tensors) {
      std::vector<Tensor> list = results.take_list(static_cast<int>(k));
      TS_CHECK(list.size() == item.len, node.op->name(), ": expected ", item.len,
               " results, as when it was written down, got ", list.size(), "; trace again with such inputs");
      for (uint32_t j = 0; j < item.len; ++j)
        if (g_.items[item.at + j].is_value) state.tensors[g_.items[item.at + j].id()] = std::move(list[j]);
    }
  }
}

} // namespace ts::graph
