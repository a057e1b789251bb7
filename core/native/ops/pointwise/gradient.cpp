// Gradients of pointwise operators: derived expressions, registered as pointwise operators of their own, so that
// they can be differentiated again.
#include "autograd/declared.h"
#include "autograd/forward_level.h"
#include "autograd/meta.h"
#include "autograd/record.h"
#include "autograd/saved_tensor.h"
#include "autograd/shown_edges.h"
#include "dispatch/op_handles.h"
#include "ops/pointwise/info.h"
#include <algorithm>

namespace ts {
namespace {

using pointwise::Expr;

// Of complex operands the gradient of a function of z is grad * conj(f'(z)) = conj(conj(grad) * f'(z)), and of one of
// conj(z) it is conj(grad) * f'(conj(z)): PyTorch's convention, the steepest ascent of a real loss.
void conjugate_gradient(Def& d, const PointwiseInfo& info, int arg, const std::vector<int>& sources) {
  uint64_t bits = 0;
  for (size_t k = 0; k < sources.size(); ++k) {
    int s = sources[k];
    bool conjugate = s == PointwiseGradient::kGrad     ? !info.conjugate_result
                     : s == PointwiseGradient::kResult ? info.conjugate_result
                                                       : info.conjugate >> s & 1;
    if (conjugate) bits |= uint64_t{1} << k;
  }
  d.conjugated(bits, !(info.conjugate >> arg & 1));
}

// One expression's gradient operator: "mul_grad0(Operand grad, Operand other)".
const Operator* declare_gradient(const Operator& op, const PointwiseInfo& info, int arg, const Expr& expr,
                                 PointwiseGradient& g) {
  int n_args = static_cast<int>(info.variables.size()) - 2, result = n_args, grad = n_args + 1;
  std::string schema = op.schema->base + (op.schema->overload.empty() ? "" : "_" + op.schema->overload) + "_grad" +
                       std::to_string(arg) + "(";
  std::vector<int> place(info.variables.size()); // among the arguments
  // The incoming gradient needs a name of its own where an argument is called grad: gradients of gradients.
  std::vector<std::string> names = info.variables;
  auto taken = [&](const std::string& n) {
    return std::find(names.begin(), names.begin() + n_args, n) != names.begin() + n_args;
  };
  for (int special : {result, grad})
    while (taken(names[static_cast<size_t>(special)])) names[static_cast<size_t>(special)] += "_";
  auto add = [&](int variable, int source, const char* type) {
    if (!uses(expr, variable)) return;
    place[static_cast<size_t>(variable)] = static_cast<int>(g.sources.size());
    schema += std::string(g.sources.empty() ? "" : ", ") + type + " " + names[static_cast<size_t>(variable)];
    g.sources.push_back(source);
  };
  add(grad, PointwiseGradient::kGrad, "Operand");
  for (int k = 0; k < n_args; ++k)
    add(k, k, op.schema->args[static_cast<size_t>(k)].type.kind == TypeKind::Scalar ? "Scalar" : "Operand");
  add(result, PointwiseGradient::kResult, "Operand");
  schema += ") -> Tensor";
  Def d(schema.c_str());
  // Gradients are floating: arithmetic promotion of floating operands is exact.
  d.hidden().pointwise(pointwise::renumber(expr, place));
  if (info.round_numbers) d.round_numbers();
  conjugate_gradient(d, info, arg, g.sources);
  return &d.finish();
}

int arguments_of(const Expr& e, size_t variables) {
  int n = 0;
  for (size_t k = 0; k < variables; ++k) n += uses(e, static_cast<int>(k));
  return n;
}

} // namespace

const PointwiseGradient& PointwiseInfo::gradient(const Operator& op, int arg) const {
  const PointwiseGradient* known = gradients_[static_cast<size_t>(arg)].load(std::memory_order_acquire);
  if (known) return *known;
  std::lock_guard lock(mutex_);
  if ((known = gradients_[static_cast<size_t>(arg)].load())) return *known;
  int n_args = static_cast<int>(variables.size()) - 2;
  Expr grad = pointwise::variable(n_args + 1);
  const Expr& declared = derivatives[static_cast<size_t>(arg)];
  auto g = std::make_unique<PointwiseGradient>();
  Expr d = declared;
  if (!d) {
    Expr factor = pointwise::differentiate(expr, arg);
    d = pointwise::instruction(TS_I_MUL, grad, factor);
    if (arguments_of(d, variables.size()) > kMaxPointwiseArgs) {
      d = factor;
      g->times_grad = true;
      g->conjugate_grad = (conjugate >> arg & 1) != conjugate_result;
    }
  }
  if (d->kind == pointwise::ExprNode::Constant)
    g->zero = true; // only 0 is possible: it is a multiple of grad
  else if (!(d->kind == pointwise::ExprNode::Variable && d->variable == n_args + 1) ||
           (conjugate >> arg & 1) != conjugate_result) {
    g->op = declare_gradient(op, *this, arg, d, *g);
    for (int s : g->sources) {
      if (s == PointwiseGradient::kResult)
        g->save_result = true;
      else if (s >= 0)
        g->save_args |= uint64_t{1} << s;
    }
  }
  owned_.push_back(std::move(g));
  gradients_[static_cast<size_t>(arg)].store(owned_.back().get(), std::memory_order_release);
  return *owned_.back();
}

namespace {

constexpr int kMaxArgs = kMaxPointwiseArgs;

struct PointwiseNode final : DeclaredNode, ShowsEdges {
  const Operator* op = nullptr;   // functional
  uint8_t n_args = 0, needed = 0; // bit per argument that has an edge
  uint8_t broadcast = 0;          // bit per argument whose shape differs from the result's
  DType arg_dtypes[kMaxArgs];     // undefined where it is no tensor
  ResultMeta meta;
  Value numbers[kMaxArgs];
  std::unique_ptr<Scalar[]> complex_numbers; // memory of those among them
  bool released = false;                     // numbers beside tensors are freed like the tensors they stand for
  SavedTensor saved[kMaxArgs];
  SavedTensor result;
  std::unique_ptr<Dims[]> arg_sizes;

  std::string name() const override { return backward_name(*op); }
  const ResultMeta& result_meta(size_t) const override { return meta; }

  void backward(std::span<Tensor> grads, std::span<Tensor> out, EdgeMask wanted) override {
    const Tensor& grad = grads[0];
    if (!grad.defined()) return;
    size_t edge = 0;
    for (int k = 0; k < n_args; ++k) {
      if (!(needed >> k & 1)) continue;
      if (is_wanted(wanted, edge)) out[edge] = argument_gradient(k, grad);
      ++edge;
    }
  }

  Tensor argument_gradient(int k, const Tensor& grad) {
    const PointwiseGradient& g = op->pointwise->gradient(*op, k);
    if (g.zero) {
      IntSpan sizes = broadcast >> k & 1 ? IntSpan(arg_sizes[static_cast<size_t>(k)]) : IntSpan(meta.sizes);
      return ops::zeros(sizes, arg_dtypes[k], grad.device());
    }
    Tensor d = g.op ? evaluate(g, grad) : grad;
    if (is_complex(d.dtype()) && !is_complex(arg_dtypes[k])) d = ops::real(d);
    if (broadcast >> k & 1) d = ops::sum_to_size(d, arg_sizes[static_cast<size_t>(k)]);
    if (d.dtype() != arg_dtypes[k]) d = ops::to_dtype(d, arg_dtypes[k]);
    return d;
  }

  Tensor evaluate(const PointwiseGradient& g, const Tensor& grad) {
    Tensor held[kMaxArgs + 2];
    Value args[kMaxArgs + 2];
    size_t n = g.sources.size();
    for (size_t i = 0; i < n; ++i) {
      int s = g.sources[i];
      if (s == PointwiseGradient::kGrad) {
        args[i] = grad;
      } else if (s == PointwiseGradient::kResult) {
        args[i] = held[i] = result.unpack(this);
      } else if (numbers[s].is_number()) {
        check_not_freed(released && op->schema->args[static_cast<size_t>(s)].type.kind != TypeKind::Scalar);
        args[i] = numbers[s];
      } else {
        args[i] = held[i] = saved[s].unpack(this);
      }
    }
    Value out;
    Frame f{args, &out, static_cast<int32_t>(n), 1};
    call(*g.op, f);
    Tensor d = Tensor::adopt(out.tensor);
    if (!g.times_grad) return d;
    return ops::mul(g.conjugate_grad && is_complex(grad.dtype()) ? ops::conj(grad) : grad, d);
  }

  std::vector<SavedPart> saved_parts() override {
    std::vector<SavedPart> parts;
    uint64_t kept = 0, known = 0; // known: some argument's gradient would have read it
    for (int k = 0; k < n_args; ++k) {
      uint64_t read = op->pointwise->gradient(*op, k).save_args;
      known |= read;
      if (needed >> k & 1 || numbers[k].is_number()) kept |= read;
    }
    for (size_t k = 0; k < n_args; ++k) {
      const Argument& arg = op->schema->args[k];
      if (numbers[k].is_number())
        parts.push_back({.name = arg.name, .value = &numbers[k], .type = &arg.type});
      else if (kept >> k & 1)
        parts.push_back({.name = arg.name,
                         .tensor = [this, k](size_t) { return saved[k].unpack(this); },
                         .raw = [this, k](size_t) { return &saved[k]; }});
      else if (known >> k & 1)
        parts.push_back({.name = arg.name,
                         .tensor = [](size_t) { return Tensor(); },
                         .raw = [this, k](size_t) { return &saved[k]; }});
    }
    bool of_result = false;
    for (int k = 0; k < n_args; ++k) of_result |= needed >> k & 1 && op->pointwise->gradient(*op, k).save_result;
    if (of_result)
      parts.push_back({.name = "result",
                       .tensor = [this](size_t) { return result.unpack(this); },
                       .raw = [this](size_t) { return &result; }});
    return parts;
  }

  // Numbers beside tensors of these operators are tensors to PyTorch; masks never have an edge.
  std::vector<int32_t> shown_edges() const override {
    static constexpr std::string_view kTakesTensors[] = {"add", "sub", "mul", "div", "where"};
    const bool wraps = std::ranges::find(kTakesTensors, op->schema->base) != std::end(kTakesTensors);
    std::vector<int32_t> shown;
    int32_t edge = 0;
    for (size_t k = 0; k < n_args; ++k) {
      if (needed >> k & 1)
        shown.push_back(edge++);
      else if (numbers[k].is_number() ? wraps && k < 3 && op->schema->args[k].name != "alpha"
                                      : arg_dtypes[k] != DType::Undefined && arg_dtypes[k] != DType::Bool)
        shown.push_back(-1);
    }
    return shown;
  }

  void visit_held(HeldVisitor& visitor) const override {
    for (const SavedTensor& s : saved) s.visit_held(visitor);
    result.visit_held(visitor);
  }
  void release_saved() override {
    if (saves_constants) return;
    for (SavedTensor& s : saved) s.reset();
    result.reset();
    released = true;
  }
};

// Everything that must be read before an in-place kernel overwrites it.
Ref<PointwiseNode> prepare(const Operator& op, const Operator& functional, Frame& f, uint8_t needed,
                           bool& save_result) {
  auto node = Ref<PointwiseNode>::adopt(new PointwiseNode);
  const PointwiseInfo& info = *functional.pointwise;
  node->op = &functional;
  node->n_args = static_cast<uint8_t>(functional.schema->args.size());
  node->needed = needed;
  uint64_t save = 0;
  size_t edges = 0;
  for (int k = 0; k < node->n_args; ++k)
    if (needed >> k & 1) {
      const PointwiseGradient& g = info.gradient(functional, k);
      save |= g.save_args;
      save_result |= g.save_result;
      ++edges;
    }
  node->resize_edges(edges);
  size_t e = 0;
  for (int k = 0; k < node->n_args; ++k) {
    const Value& v = f.args[k];
    if (v.tag != Tag::Tensor) {
      node->numbers[k] = v;
      node->arg_dtypes[k] = DType::Undefined;
      if (v.tag == Tag::Complex) {
        if (!node->complex_numbers) node->complex_numbers = std::make_unique<Scalar[]>(kMaxArgs);
        node->numbers[k] = Value(node->complex_numbers[static_cast<size_t>(k)] = v.as_scalar());
      }
      continue;
    }
    node->arg_dtypes[k] = v.tensor->dtype;
    bool overwritten = op.variant == Variant::Inplace && k == 0;
    if (needed >> k & 1) node->edges()[e++] = overwritten ? inplace_edge(v.as_tensor()) : gradient_edge(v.as_tensor());
    if (!(save >> k & 1)) continue;
    if (overwritten) {
      // The gradient needs the value that is about to go, and its history too when differentiated again.
      node->saved[k] = SavedTensor(ops::clone(v.as_tensor()), false);
    } else {
      node->saved[k] = SavedTensor(v.as_tensor(), false);
    }
  }
  return node;
}

void note_shapes(PointwiseNode& node, const Frame& f, const Tensor& out) {
  node.meta = {Dims(out.sizes()), out.dtype(), out.device()};
  for (int k = 0; k < node.n_args; ++k) {
    const Value& v = f.args[k];
    if (!(node.needed >> k & 1) || same(v.tensor->sizes(), out.sizes())) continue;
    if (!node.arg_sizes) node.arg_sizes = std::make_unique<Dims[]>(node.n_args);
    node.arg_sizes[static_cast<size_t>(k)] = Dims(v.tensor->sizes());
    node.broadcast |= static_cast<uint8_t>(1 << k);
  }
}

} // namespace

void pointwise_autograd(void*, const Operator& op, Frame& f, KeySet keys) {
  if (run_complex_form(op, f)) return;
  const Operator& functional = op.functional ? *op.functional : op;
  KeySet rest = keys & below(key::Autograd);
  uint8_t needed = 0;
  for (int32_t k = 0; k < f.nargs && k < kMaxArgs; ++k) {
    const Value& v = f.args[k];
    if (v.tag == Tag::Tensor && requires_grad(v.tensor) && is_differentiable(v.tensor->dtype))
      needed |= static_cast<uint8_t>(1 << k);
  }
  bool inplace = op.variant == Variant::Inplace;
  // A comparison has no gradient, but written in place it cuts its target off from what that was computed from.
  if (!functional.differentiable) needed = inplace ? needed & 1 : 0;
  if (!needed || (inplace && is_unrecorded_write(f.args[0].as_tensor()))) return redispatch(op, f, rest);
  if (op.variant == Variant::Out) refuse_out_gradient(op);
  // out of in-place: the target is arg 0 whether or not it requires a gradient itself.
  if (inplace) check_inplace_history(op, f.args[0].as_tensor());
  bool save_result = false;
  Ref<PointwiseNode> node = prepare(op, functional, f, needed, save_result);
  redispatch(op, f, rest);
  const Tensor& out = f.rets[0].as_tensor();
  if (!is_differentiable(out.dtype())) return;
  note_shapes(*node, f, out);
  PointwiseNode& recorded = *node;
  if (inplace)
    record_inplace(f.args[0].as_tensor(), node);
  else
    set_history(out, std::move(node), 0);
  if (save_result) recorded.result = SavedTensor(out, true, 0);
}

} // namespace ts
