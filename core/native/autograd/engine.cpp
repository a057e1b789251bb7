#include "autograd/engine.h"
#include "autograd/accumulate.h"
#include "autograd/anomaly.h"
#include "autograd/meta.h"
#include "autograd/node_index.h"
#include "autograd/node_streams.h"
#include "autograd/saved_tensor.h"
#include "dispatch/op_handles.h"
#include "runtime/backend.h"
#include "runtime/interpreter.h"
#include "runtime/interrupts.h"
#include "runtime/stream.h"
#include "tensor/home.h"
#include "tensor/inline_array.h"
#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <thread>

namespace ts {
namespace {

struct State {
  Node* node = nullptr; // the roots hold it: edges never change once a graph is recorded
  int32_t dependencies = 0;
  uint32_t first_grad = 0; // in Scratch::grads
  bool needed = true;
  std::vector<int32_t> captures; // indices of inputs; `capture_results` says of which result
};

struct Scratch {
  int64_t run = 0; // counts the runs of the process
  bool has_inputs = false, keeps_graph = false;
  NodeIndex index;
  std::vector<State> states;
  std::vector<Tensor> grads;
  std::vector<std::pair<uint64_t, int32_t>> heap; // sequence, state
  std::vector<int32_t> stack;
  std::vector<std::function<void()>> callbacks;
  void clear() {
    index.clear();
    states.clear();
    grads.clear();
    heap.clear();
    callbacks.clear();
  }
};

Scratch* take_spare() {
  void*& spare = thread_state().backward_spare;
  return spare ? static_cast<Scratch*>(std::exchange(spare, nullptr)) : new Scratch;
}
// Frees a thread's spare when the thread ends.
struct SpareOwner {
  ~SpareOwner() {
    if (tls_state) delete static_cast<Scratch*>(std::exchange(tls_state->backward_spare, nullptr));
  }
};
void keep_spare(std::unique_ptr<Scratch> s) {
  static thread_local SpareOwner owner;
  (void)owner;
  if (!thread_state().backward_spare) thread_state().backward_spare = s.release();
}

class Run {
public:
  Run(TensorList inputs, const BackwardOptions& options)
      : inputs_(inputs), options_(options), tls_(thread_state()), scratch_(take_spare()), s_(*scratch_),
        outer_(std::exchange(tls_.backward_running, scratch_.get())), outer_node_(tls_.backward_node) {
    static std::atomic<int64_t> runs{0};
    s_.run = ++runs;
    s_.has_inputs = !inputs.empty();
    s_.keeps_graph = options.retain_graph;
  }
  ~Run() {
    tls_.backward_running = outer_;
    tls_.backward_node = outer_node_;
    scratch_->clear();
    keep_spare(std::move(scratch_));
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  std::vector<Tensor> execute(std::span<const Edge> roots, std::span<Tensor> grads) {
    discover(roots);
    if (!inputs_.empty()) mark_needed();
    for (size_t i = 0; i < roots.size(); ++i) {
      streams_.hand_from_caller(grads[i], roots[i].node->streams);
      streams_.enter(roots[i].node->streams);
      deliver(roots[i], state_of(roots[i]), std::move(grads[i]));
    }
    // Roots were numbered first; those that other roots lead to wait for them.
    for (size_t s = 0; s < root_states_; ++s)
      if (s_.states[s].dependencies == 0) push(static_cast<int32_t>(s));
    GradMode mode(options_.create_graph);
    while (!s_.heap.empty()) {
      std::pop_heap(s_.heap.begin(), s_.heap.end());
      int32_t s = s_.heap.back().second;
      s_.heap.pop_back();
      evaluate(static_cast<size_t>(s));
    }
    streams_.join();
    for (size_t i = 0; i < s_.callbacks.size(); ++i) s_.callbacks[i]();
    return std::move(captured_);
  }

private:
  // Numbers every reachable node and counts the edges into it.
  void discover(std::span<const Edge> roots) {
    std::vector<int32_t>& stack = s_.stack;
    auto visit = [&](const Edge& e) -> int32_t {
      int32_t next = static_cast<int32_t>(s_.states.size());
      int32_t known = s_.index.find_or_add(e.node.get(), next);
      if (known >= 0) return known;
      State& state = s_.states.emplace_back();
      state.node = e.node.get();
      state.first_grad = static_cast<uint32_t>(s_.grads.size());
      s_.grads.resize(s_.grads.size() + e.node->num_results());
      stack.push_back(next);
      return next;
    };
    for (const Edge& e : roots) visit(e);
    root_states_ = s_.states.size();
    while (!stack.empty()) {
      Node* n = s_.states[static_cast<size_t>(stack.back())].node;
      stack.pop_back();
      for (const Edge& e : n->edges())
        if (leads_on(e)) ++s_.states[static_cast<size_t>(visit(e))].dependencies;
    }
  }

  // With inputs given, only nodes on a path to one of them run. States are walked in topological order backwards.
  void mark_needed() {
    captured_.resize(inputs_.size());
    std::vector<int32_t> order, left(s_.states.size());
    for (size_t i = 0; i < s_.states.size(); ++i) {
      s_.states[i].needed = false;
      if ((left[i] = s_.states[i].dependencies) == 0) order.push_back(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < order.size(); ++i)
      for (const Edge& e : s_.states[static_cast<size_t>(order[i])].node->edges())
        if (leads_on(e))
          if (int32_t s = s_.index.find(e.node.get()); --left[static_cast<size_t>(s)] == 0) order.push_back(s);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Edge e = gradient_edge(inputs_[i]);
      int32_t s = e.node ? s_.index.find(e.node.get()) : -1;
      if (s < 0) continue;
      State& state = s_.states[static_cast<size_t>(s)];
      if (options_.accumulate) {
        state.needed =
            true; // with all its hooks, though what it computes be for nobody; a result's gradient is retained
        continue;
      }
      state.captures.push_back(static_cast<int32_t>(i));
      capture_results_.resize(inputs_.size());
      capture_results_[i] = e.input;
    }
    for (size_t i = order.size(); i-- > 0;) {
      State& state = s_.states[static_cast<size_t>(order[i])];
      if (options_.arrivals && !state.captures.empty()) continue;
      for (const Edge& e : state.node->edges()) {
        if (!leads_on(e)) continue;
        state.needed |= is_awaited(state_of(e));
      }
    }
    if (options_.arrivals) forget_beyond_inputs(order);
  }

  // What only inputs lead to does not run, though it lead to inputs in its turn. `order`: topological.
  void forget_beyond_inputs(std::span<const int32_t> order) {
    std::vector<bool> reached(s_.states.size());
    std::fill_n(reached.begin(), root_states_, true);
    for (int32_t i : order) {
      State& state = s_.states[static_cast<size_t>(i)];
      state.needed = state.needed && reached[static_cast<size_t>(i)];
      if (!reached[static_cast<size_t>(i)] || !state.captures.empty()) continue;
      for (const Edge& e : state.node->edges())
        if (leads_on(e)) reached[static_cast<size_t>(s_.index.find(e.node.get()))] = true;
    }
  }

  void push(int32_t s) {
    s_.heap.emplace_back(s_.states[static_cast<size_t>(s)].node->sequence, s);
    std::push_heap(s_.heap.begin(), s_.heap.end());
  }

  State& state_of(const Edge& e) { return s_.states[static_cast<size_t>(s_.index.find(e.node.get()))]; }

  void deliver(const Edge& e, const State& state, Tensor g) {
    if (!g.defined()) return;
    fit(*e.node, e.input, g);
    if (options_.arrivals && note_arrival(e, state, g)) [[unlikely]]
      return;
    Tensor& slot = s_.grads[state.first_grad + e.input];
    if (!slot.defined())
      slot = std::move(g);
    else if (!options_.create_graph && private_buffer(slot) && slot.dtype() == g.dtype() &&
             same(slot.sizes(), g.sizes()))
      ops::add_(slot, g);
    else if (slot->payload && !g->payload)
      slot = ops::add(g, slot); // dense and sparse make dense
    else
      slot = ops::add(slot, g);
  }

  bool note_arrival(const Edge& e, const State& state, const Tensor& g) {
    bool noted = false;
    for (int32_t i : state.captures) {
      if (capture_results_[static_cast<size_t>(i)] != e.input) continue;
      options_.arrivals->emplace_back(static_cast<size_t>(i), g);
      noted = true;
    }
    return noted;
  }

  static bool private_buffer(const Tensor& t) {
    return t->refs.load() == 1 && t->storage && t->storage->refs.load() == 1 && t.is_contiguous() &&
           !t->has(TensorImpl::kConstantData) && !t->wrapper;
  }

  // A gradient must have the shape, dtype and device of the forward result; broadcast dims are summed, dtypes cast.
  static void fit(const Node& node, uint32_t k, Tensor& g) {
    const ResultMeta& m = node.result_meta(k);
    if (m.dtype == DType::Undefined) return;
    if (!same(g.sizes(), m.sizes)) {
      bool reducible = g.ndim() >= static_cast<int64_t>(m.sizes.size());
      for (size_t i = 0; reducible && i < m.sizes.size(); ++i) {
        int64_t have = g.sizes()[g.sizes().size() - m.sizes.size() + i];
        reducible = have == m.sizes[i] || m.sizes[i] == 1;
      }
      TS_CHECK(reducible, node.name(), ": returned an invalid gradient: got ", g.sizes(),
               " but expected shape compatible with ", m.sizes.span());
      g = ops::sum_to_size(g, m.sizes);
    }
    if (is_complex(g.dtype()) && !is_complex(m.dtype)) g = ops::real(g); // a real input has a real gradient
    if (g.dtype() != m.dtype) g = ops::to_dtype(g, m.dtype);
    TS_CHECK(g.device() == m.device, node.name(), ": received a gradient on another device than its forward result");
  }

  // Those of tensors; a leaf keeps its own.
  void run_tensor_hooks(State& state, std::span<Tensor> grads) {
    if (Tensor* leaf = state.node->accumulates_into())
      if (AutogradMeta* meta = autograd_meta(leaf->impl())) run_leaf_hooks(*meta, grads[0]);
    if (!state.node->hooks) return;
    NodeHooks& hooks = *state.node->hooks;
    auto each = [&](auto& list) {
      for (auto& entry : snapshot(list)) {
        Tensor& g = grads[entry.output];
        if (Tensor r = entry.fn(g); r.defined()) {
          fit(*state.node, entry.output, r);
          g = std::move(r);
        }
      }
    };
    each(hooks.tensor);
    each(hooks.retain);
  }

  static void run_pre_hooks(Node& node, std::span<Tensor> grads) {
    if (!node.hooks) return;
    for (auto& hook : snapshot(node.hooks->pre)) {
      std::vector<Tensor> list(grads.begin(), grads.end());
      hook.fn(list);
      TS_CHECK(list.size() == grads.size(), node.name(), ": a pre-hook returned ", list.size(), " gradients, expected ",
               grads.size());
      std::move(list.begin(), list.end(), grads.begin());
    }
  }

  void capture(State& state, std::span<Tensor> grads) {
    for (int32_t i : state.captures) {
      Tensor g = grads[capture_results_[static_cast<size_t>(i)]];
      streams_.hand_to_caller(g);
      captured_[static_cast<size_t>(i)] = g;
    }
  }

  void evaluate(size_t s) {
    Node* node = s_.states[s].node;
    size_t n = node->num_results();
    // Nested runs never touch this scratch, so the span stays valid.
    std::span<Tensor> grads(s_.grads.data() + s_.states[s].first_grad, n);
    tls_.backward_node = node;
    streams_.enter(node->streams);
    const bool ends = options_.arrivals && !s_.states[s].captures.empty(); // all that was wanted has arrived
    if (ends)
      for (int32_t i : s_.states[s].captures) options_.arrivals->emplace_back(static_cast<size_t>(i), Tensor());
    if (is_awaited(s_.states[s]) && !ends) run_tensor_hooks(s_.states[s], grads);
    if (!s_.states[s].captures.empty() && !ends) capture(s_.states[s], grads);
    bool run = s_.states[s].needed;
    std::vector<Tensor> out;
    std::array<Tensor, 4> few;
    std::span<Tensor> produced(few.data(), node->n_edges);
    if (node->n_edges > few.size()) {
      out.resize(node->n_edges);
      produced = out;
    }
    if (run) {
      run_pre_hooks(*node, grads);
      compute(*node, grads, produced, wanted_edges(*node));
      restore_modes();
      if (!options_.retain_graph) node->release_saved();
      if (Tensor* leaf = node->accumulates_into())
        if (AutogradMeta* meta = autograd_meta(leaf->impl())) streams_.hand_to_caller(meta->grad);
    }
    for (Tensor& g : grads) g = Tensor();
    int64_t elements = 0;
    auto edges = node->edges();
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!leads_on(edges[i])) continue;
      if (produced[i].defined()) elements += produced[i].numel();
      int32_t next = s_.index.find(edges[i].node.get());
      State& state = s_.states[static_cast<size_t>(next)];
      streams_.enter(node->streams);
      streams_.hand_over(produced[i], state.node->streams);
      streams_.enter(state.node->streams);
      deliver(edges[i], state, std::move(produced[i]));
      if (--state.dependencies == 0) push(next);
    }
    asking_.after(elements, "backward");
  }

  // Every edge, or with inputs given those on a path to one of them.
  EdgeMask wanted_edges(const Node& node) {
    if (inputs_.empty()) return ~EdgeMask{0};
    EdgeMask wanted = 0;
    for (size_t i = 0; i < std::min<size_t>(node.n_edges, 64); ++i)
      if (const Edge& e = node.edges()[i]; leads_on(e) && is_awaited(state_of(e))) wanted |= EdgeMask{1} << i;
    return wanted;
  }
  // Gradients go no further than to what was made under no_grad, except for tangents.
  bool leads_on(const Edge& e) const { return e.node && (!e.node->forward_only || options_.forward); }
  struct Hidden { // what a gradient computes is of the kind of its node
    Hidden(ThreadState& tls, bool on) : tls(tls), before(std::exchange(tls.hidden_no_grad, on)) {}
    ~Hidden() { tls.hidden_no_grad = before; }
    Hidden(const Hidden&) = delete;
    Hidden& operator=(const Hidden&) = delete;
    ThreadState& tls;
    bool before;
  };
  static bool is_awaited(const State& state) { return state.needed || !state.captures.empty(); }

  void compute(Node& node, std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) {
    std::vector<Tensor> incoming;
    std::optional<OfferedHomes> homes;
    if (homes_known.load(std::memory_order_relaxed) && !options_.create_graph && inputs_.empty()) [[unlikely]]
      offer_homes(node, homes.emplace());
    bool has_post = node.hooks && !node.hooks->post.empty();
    if (has_post) incoming.assign(grads.begin(), grads.end());
    const Hidden as_recorded(tls_, node.forward_only);
    if (!node.location && !tls_.anomaly) [[likely]]
      node.backward(grads, out, wanted);
    else
      compute_anomaly(node, grads, out, wanted);
    if (!has_post) return;
    for (auto& hook : snapshot(node.hooks->post)) {
      std::vector<Tensor> list(out.begin(), out.end());
      hook.fn(list, incoming);
      TS_CHECK(list.size() == out.size(), node.name(), ": a hook returned ", list.size(), " gradients, expected ",
               out.size());
      std::move(list.begin(), list.end(), out.begin());
    }
  }

  // Leaves without a gradient may have a place for one. None is offered where gradients have a history, which may keep
  // more than the gradient.
  static void offer_homes(const Node& node, OfferedHomes& homes) {
    for (const Edge& e : node.edges())
      if (Tensor* leaf = e.node ? e.node->accumulates_into() : nullptr)
        if (!grad_of(*leaf).defined()) homes.add(Home::find(leaf->impl()));
  }

  // What code of the user's entered within a node and did not leave.
  void restore_modes() {
    if (tls_.saved_tensor_hooks > hooks_.depth()) [[unlikely]]
      hooks_.restore();
    if (grad_enabled() != options_.create_graph) [[unlikely]]
      set_grad_enabled(options_.create_graph);
  }

  // Errors and NaNs come with a warning of the forward calls that recorded the node.
  void compute_anomaly(Node& node, std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) {
    try {
      node.backward(grads, out, wanted);
      if (tls_.anomaly && anomaly_checks_nan()) check_no_nan(node, out);
    } catch (const Error& e) {
      if (e.kind() == ErrorKind::Interrupted) throw;
      warn_of_forward(node);
      throw;
    }
  }

  TensorList inputs_;
  const BackwardOptions& options_;
  ThreadState& tls_;
  std::unique_ptr<Scratch> scratch_;
  Scratch& s_;
  void* outer_;
  const void* outer_node_;
  NodeStreams streams_;
  KeepSavedTensorHooks hooks_;
  std::vector<Tensor> captured_;
  std::vector<uint32_t> capture_results_;
  size_t root_states_ = 0;
  AskForInterrupts asking_;
};

Tensor initial_gradient(const Tensor& root, const Tensor& given, size_t i) {
  if (given.defined()) {
    TS_CHECK(same(given.sizes(), root.sizes()), "Mismatch in shape: grad_output[", i, "] has a shape of torch.Size(",
             given.sizes(), ") and output[", i, "] has a shape of torch.Size(", root.sizes(), ").");
    TS_CHECK(is_complex(given.dtype()) == is_complex(root.dtype()), "backward: gradient of dtype ", given.dtype(),
             " for output of dtype ", root.dtype());
    return given;
  }
  TS_CHECK(root.numel() == 1, "grad can be implicitly created only for scalar outputs, got shape ", root.sizes());
  TS_CHECK(is_floating(root.dtype()), "grad can be implicitly created only for real scalar outputs, got ",
           root.dtype());
  ExcludeKeys off(key_bit(key::Autograd));
  return ops::ones_like(root);
}

// How many runs within runs a thread takes on: each is a good piece of its stack, and of what Python lets recurse.
constexpr int kMostNested = 60;
thread_local int t_nested = 0;

std::vector<Tensor> run_here(TensorList inputs, const BackwardOptions& options, std::span<const Edge> roots,
                             std::span<Tensor> grads) {
  struct Level {
    Level() { ++t_nested; }
    ~Level() { --t_nested; }
  } level;
  return Run(inputs, options).execute(roots, grads);
}

// Deeper ones go to a thread of their own, in the modes of this one.
std::vector<Tensor> run_nested(TensorList inputs, const BackwardOptions& options, std::span<const Edge> roots,
                               std::span<Tensor> grads) {
  if (t_nested < kMostNested) return run_here(inputs, options, roots, grads);
  const ThreadState& caller = thread_state();
  const bool checks_nan = anomaly_checks_nan();
  std::vector<Tensor> result;
  std::exception_ptr failed;
  std::shared_ptr<void> exception; // of the interpreter
  auto work = [&] {
    ThreadState& own = thread_state();
    own.include = caller.include;
    own.exclude = caller.exclude;
    own.inference = caller.inference;
    own.anomaly = caller.anomaly;
    set_anomaly_checks_nan(checks_nan);
    const InterpreterHooks& interpreter = interpreter_hooks();
    void* attached = interpreter.attach ? interpreter.attach() : nullptr;
    try {
      result = run_here(inputs, options, roots, grads);
    } catch (const Error& e) {
      failed = std::current_exception();
      std::string text;
      if (e.kind() == ErrorKind::Python && interpreter.take_exception) exception = interpreter.take_exception(text);
    } catch (...) {
      failed = std::current_exception();
    }
    if (attached) interpreter.detach(attached);
  };
  {
    SuspendInterpreter waiting(kSuspendThreshold + 1); // the other thread needs it
    std::thread(work).join();
  }
  if (!failed) return result;
  if (exception) interpreter_hooks().put_exception(exception);
  std::rethrow_exception(failed);
}

} // namespace

std::vector<Tensor> run_backward(TensorList roots, TensorList grads, TensorList inputs,
                                 const BackwardOptions& options) {
  InlineArray<Edge, 1> edges;
  InlineArray<Tensor, 1> initial;
  edges.resize(roots.size());
  initial.resize(roots.size());
  const Tensor none;
  for (size_t i = 0; i < roots.size(); ++i) {
    TS_CHECK(requires_grad(roots[i]), "element ", i, " of tensors does not require grad and does not have a grad_fn");
    edges[i] = gradient_edge(roots[i]);
    TS_CHECK(edges[i].node && (options.forward || !edges[i].node->forward_only), "element ", i,
             " of tensors does not require grad and does not have a grad_fn");
    initial[i] = initial_gradient(roots[i], i < grads.size() ? grads[i] : none, i);
  }
  for (size_t i = 0; i < inputs.size(); ++i)
    TS_CHECK(requires_grad(inputs[i]), "One of the differentiated Tensors (input ", i, ") does not require grad");
  if (options.accumulate)
    for (const Tensor& input : inputs) retain_grad(input); // leaves keep theirs anyway
  std::vector<Tensor> captured =
      run_nested(inputs, options, {edges.begin(), edges.size()}, {initial.begin(), initial.size()});
  captured.resize(inputs.size());
  if (options.accumulate) return {};
  for (size_t i = 0; i < captured.size(); ++i)
    TS_CHECK(captured[i].defined() || options.allow_unused, "The differentiated Tensor at index ", i,
             " appears to not have been used in the graph. Set allow_unused=True if this is the desired behavior.");
  return captured;
}

bool will_run(const Node* node, bool alone) {
  auto* running = static_cast<Scratch*>(thread_state().backward_running);
  TS_CHECK(running, "expected to be called during a backward");
  const int32_t at = running->index.find(const_cast<Node*>(node));
  if (at < 0) return false;
  const State& state = running->states[static_cast<size_t>(at)];
  TS_CHECK(!alone || state.needed || state.captures.empty() || !state.node->accumulates_into(),
           "expected a node that runs, got a leaf's, but we are currently running autograd.grad(), which does not");
  return state.needed || !state.captures.empty();
}
int64_t current_run() {
  auto* running = static_cast<const Scratch*>(thread_state().backward_running);
  return running ? running->run : -1;
}
bool run_keeps_graph() {
  auto* running = static_cast<const Scratch*>(thread_state().backward_running);
  return running && running->keeps_graph;
}
bool run_has_inputs() {
  auto* running = static_cast<const Scratch*>(thread_state().backward_running);
  return running && running->has_inputs;
}
bool in_backward() { return thread_state().backward_running != nullptr; }
const Node* current_node() { return static_cast<const Node*>(thread_state().backward_node); }

void queue_callback(std::function<void()> callback) {
  TS_CHECK(in_backward(), "queue_callback: expected to be called during backward");
  static_cast<Scratch*>(thread_state().backward_running)->callbacks.push_back(std::move(callback));
}

} // namespace ts
