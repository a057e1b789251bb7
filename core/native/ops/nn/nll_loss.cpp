// Negative log likelihood of class indices, and cross entropy on top of it.
#include "autograd/traced.h"
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/no_gradient.h"
#include "ops/common/raw.h"
#include "ops/nn/losses.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

const Op nll_loss_forward_op("nll_loss_forward"), nll_loss_backward_op("nll_loss_backward"),
    log_softmax_op("log_softmax"), gather_op("gather");

void check_classes(const Tensor& target, const Tensor& weight, int64_t n_classes, DType dtype) {
  TS_CHECK(target.dtype() == DType::Int64 || target.dtype() == DType::UInt8,
           "nll_loss: expected scalar type Long or Byte for target but found ", target.dtype());
  if (!weight.defined()) return;
  TS_CHECK(weight.ndim() == 1 && weight.numel() == n_classes,
           "nll_loss: weight tensor should be defined either for all ", n_classes,
           " classes or no classes but got weight tensor of shape: ", weight.sizes());
  TS_CHECK(weight.dtype() == dtype, "nll_loss: expected weight of the input's dtype ", dtype, ", got ", weight.dtype());
}
// Of targets for as many inputs; others are told how many there are.
void check_one_class(const char* op, const Tensor& input, const Tensor& target) {
  TS_CHECK(target.ndim() <= 1 || target.size(0) != input.size(0), op,
           ": 0D or 1D target tensor expected, multi-target not supported: for an input (N, C) ",
           "expected target (N), got ", target.sizes(), "; try target.squeeze(1), or target.argmax(1) of one-hot rows");
}
// The sizes of targets: without that of the classes, the second.
Dims beside_classes(IntSpan sizes) {
  Dims rest(sizes);
  rest.erase(rest.begin() + 1);
  return rest;
}
void check_nll(const Tensor& self, const Tensor& target, const Tensor& weight) {
  TS_CHECK(is_floating(self.dtype()), "nll_loss: expected a floating input, got ", self.dtype());
  TS_CHECK(self.ndim() >= 2 && same(target.sizes(), beside_classes(self.sizes())),
           "nll_loss: expected input (N, C, ...) and target (N, ...), got ", self.sizes(), " and ", target.sizes());
  check_classes(target, weight, self.size(1), self.dtype());
}

// Weight of every target: 1 or its class weight, 0 where ignored.
struct Targets {
  Tensor rows, weights; // rows (N, 1, ...): class indices, 0 where ignored
  Targets(const Tensor& target, const Tensor& weight, int64_t n_classes, DType dtype, int64_t ignore_index) {
    Tensor kept = ops::ne(target, ignore_index);
    Tensor safe = ops::where(kept, target, filled(Dims{}, 0, DType::Int64, target.device()));
    Tensor outside = ops::logical_or(ops::lt(safe, 0), ops::ge(safe, n_classes));
    TS_CHECK_INDEX(!raw_truth(ops::any(outside)), "nll_loss: Target is out of bounds: expected values from 0 to ",
                   n_classes - 1, " or ignore_index ", ignore_index);
    rows = ops::unsqueeze(safe, int64_t{1});
    weights = ops::to_dtype(kept, dtype);
    if (!weight.defined()) return;
    Tensor each = ops::index_select(raw_cast(weight, dtype), int64_t{0}, ops::flatten(safe));
    weights = ops::mul(weights, ops::reshape(each, target.sizes()));
  }
};

using Two = std::tuple<Tensor, Tensor>;

Two nll_forward_rule(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction, int64_t) {
  check_nll(self, target, weight);
  return {outline(reduction == kReduceNone ? target.sizes() : IntSpan(), self.dtype(), self.device()),
          outline({}, self.dtype(), self.device())};
}

Two nll_forward_parts(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t reduction,
                      int64_t ignore_index) {
  auto nothing = [&]() -> Two {
    return {filled(reduction == kReduceNone ? target.sizes() : IntSpan(), reduction == kReduceMean ? std::nan("") : 0.0,
                   self.dtype(), self.device()),
            filled({}, 0.0, self.dtype(), self.device())};
  };
  if (target.numel() == 0) return nothing();
  DType wide = accumulate_type(self);
  Tensor t = as_dtype(target, DType::Int64);
  Targets at(t, weight, self.size(1), wide, ignore_index);
  if (self.numel() == 0) return nothing(); // no classes, so every target is ignored
  Tensor picked = ops::select(ops::gather(as_dtype(self, wide), int64_t{1}, at.rows), int64_t{1}, int64_t{0});
  // An ignored row counts nothing, whatever it holds.
  Tensor ignored = ops::eq(t, ignore_index);
  Tensor losses = ops::masked_fill(ops::neg(ops::mul(picked, at.weights)), ignored, 0.0);
  if (reduction == kReduceNone) return {losses, filled({}, 0.0, self.dtype(), self.device())};
  Tensor weights = ops::sum(at.weights), sum = ops::sum(losses);
  return {reduction == kReduceMean ? ops::div(sum, weights) : sum, weights};
}

Tensor nll_backward_rule(const Tensor& grad, const Tensor& target, const Tensor& weight, const Tensor& total,
                         IntSpan input_size, int64_t reduction, int64_t) {
  TS_CHECK(input_size.size() >= 2 && same(target.sizes(), beside_classes(input_size)),
           "nll_loss_backward: expected input_size (N, C, ...) and target (N, ...), got ", input_size, " and ",
           target.sizes());
  TS_CHECK(reduction == kReduceNone ? same(grad.sizes(), target.sizes()) : grad.numel() == 1,
           "nll_loss_backward: grad of shape ", grad.sizes(), " does not fit the loss");
  TS_CHECK(total.dtype() == grad.dtype() && total.numel() == 1, "nll_loss_backward: expected a 0-d total_weight in ",
           grad.dtype(), ", got ", total.dtype());
  TS_CHECK(is_floating(grad.dtype()), "nll_loss_backward: expected a floating grad, got ", grad.dtype());
  check_classes(target, weight, input_size[1], grad.dtype());
  return outline(input_size, grad.dtype(), grad.device());
}

Tensor nll_backward_parts(const Tensor& grad, const Tensor& target, const Tensor& weight, const Tensor& total,
                          IntSpan input_size, int64_t reduction, int64_t ignore_index) {
  DType wide = accumulate_type(grad);
  Tensor t = as_dtype(target, DType::Int64);
  Targets at(t, weight, input_size[1], wide, ignore_index);
  Tensor each = ops::neg(ops::mul(as_dtype(grad, wide), at.weights));
  if (reduction == kReduceMean) each = ops::div(each, as_dtype(total, wide));
  each = ops::masked_fill(each, ops::eq(t, ignore_index), 0.0);
  Tensor zeros = filled(input_size, 0.0, wide, grad.device());
  return ops::scatter(zeros, int64_t{1}, at.rows, ops::unsqueeze(each, int64_t{1}));
}

void nll_gradient(GradContext& c) {
  no_gradient_by(c, {2}); // the classes' weights
  c.set(0, nll_loss_backward_op(c.grad(), c.arg(1), c.arg(2), c.result(1), c.sizes(0), c.value(3), c.value(4)));
}
// The gradient is linear in grad, with the coefficients of the forward pass.
void nll_backward_gradient(GradContext& c) {
  auto [loss, total] = nll_loss_forward_op.multi<2>(c.grad(), c.arg(1), c.arg(2), c.value(5), c.value(6));
  c.set(0, loss);
}

// Classes in dim 1 of (N, C, d1, ...), or the only dim of (C): seen as (rows, C) and (rows).
void check_weight_dtype(const char* op, const Tensor& weight, DType dtype) {
  TS_CHECK(!weight.defined() || weight.dtype() == dtype, op, ": expected scalar type ", dtype, " but found ",
           weight.dtype(), " for weight; try weight.to(input.dtype)");
}

Tensor nll_loss(const Tensor& self, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                const char* reduction_name) {
  int64_t reduction = reduction_of("nll_loss", reduction_name);
  TS_CHECK(self.ndim() >= 1, "nll_loss: expected an input of at least one dimension, got a 0-d tensor");
  check_weight_dtype("nll_loss", weight, self.dtype());
  if (self.ndim() == 2) {
    check_one_class("nll_loss", self, target);
    TS_CHECK_VALUE(target.ndim() == 1 && target.numel() == self.size(0), "nll_loss: Expected input batch_size (",
                   self.size(0), ") to match target batch_size (", target.ndim() ? target.size(0) : 1,
                   "), got target of shape ", target.sizes());
    return nll_loss_forward_op(self, target, weight, reduction, ignore_index);
  }
  if (self.ndim() == 1) {
    TS_CHECK(target.ndim() == 0, "nll_loss: expected a 0-d target for an input (C), got shape ", target.sizes());
    Tensor loss = nll_loss_forward_op(ops::unsqueeze(self, int64_t{0}), ops::unsqueeze(target, int64_t{0}), weight,
                                      reduction, ignore_index);
    return reduction == kReduceNone ? ops::select(loss, int64_t{0}, int64_t{0}) : loss;
  }
  const Dims want = beside_classes(self.sizes());
  TS_CHECK(same(target.sizes(), want), "nll_loss: Expected target size ", IntSpan(want), ", got ", target.sizes());
  if (self.is_contiguous()) return nll_loss_forward_op(self, target, weight, reduction, ignore_index);
  // Classes that lie side by side, as of channels-last images, are rows as they are.
  Dims order = {0};
  for (int64_t d = 2; d < self.ndim(); ++d) order.push_back(d);
  order.push_back(1);
  int64_t rows_sizes[] = {target.numel(), self.size(1)}, flat[] = {target.numel()};
  Tensor rows = ops::reshape(ops::permute(self, order), IntSpan(rows_sizes));
  Tensor loss = nll_loss_forward_op(rows, ops::reshape(target, IntSpan(flat)), weight, reduction, ignore_index);
  return reduction == kReduceNone ? ops::reshape(loss, want) : loss;
}

// -sum over classes of weight * target * log_probs, for targets that are probabilities.
Tensor soft_cross_entropy(const Tensor& log_probs, const Tensor& target, const Tensor& weight, int64_t dim,
                          int64_t reduction, double smoothing) {
  double n_classes = static_cast<double>(log_probs.size(dim));
  Tensor t = smoothing > 0 ? ops::add(ops::mul(target, 1 - smoothing), smoothing / n_classes) : target;
  Tensor terms = ops::mul(log_probs, t);
  if (weight.defined()) terms = ops::mul(terms, weight);
  int64_t dims[] = {dim};
  // Sums over classes and samples in float32 at least: of halves they may be more than a mean is.
  Tensor losses = ops::neg(ops::sum_dim(terms, IntSpan(dims), false, accumulate_type(terms)));
  if (reduction != kReduceNone) losses = ops::sum(losses);
  double count = static_cast<double>(log_probs.numel()) / n_classes;
  if (reduction == kReduceMean) losses = ops::div(losses, count);
  return as_dtype(losses, terms.dtype());
}

// (1 - s) * nll + s / C * (mean over classes of -log_probs), both weighted.
Tensor smoothed(const Tensor& log_probs, const Tensor& target, const Tensor& weight, const Tensor& class_weight,
                int64_t dim, int64_t reduction, int64_t ignore_index, double smoothing, const char* name) {
  double n_classes = static_cast<double>(log_probs.size(dim));
  Tensor hard = nll_loss(log_probs, target, weight, ignore_index, name);
  Tensor all_classes = class_weight.defined() ? ops::mul(log_probs, class_weight) : log_probs;
  int64_t dims[] = {dim};
  Tensor ignored = ops::eq(target, ignore_index);
  const DType wide = accumulate_type(log_probs); // of all classes, halves may not hold the sum
  Tensor uniform = ops::masked_fill(ops::neg(ops::sum_dim(all_classes, IntSpan(dims), false, wide)), ignored, 0.0);
  if (reduction != kReduceNone) uniform = ops::sum(uniform);
  if (reduction == kReduceMean) {
    Tensor kept = ops::logical_not(ignored);
    Tensor count = ops::sum(kept);
    if (weight.defined()) {
      Tensor safe = ops::where(kept, target, filled({}, 0, target.dtype(), target.device()));
      Tensor flat = ops::index_select(weight, int64_t{0}, ops::flatten(safe));
      count = ops::sum(ops::mul(as_dtype(flat, wide), ops::flatten(kept)));
    }
    uniform = ops::div(uniform, count);
  }
  Tensor both = ops::add(ops::mul(hard, 1 - smoothing), ops::mul(uniform, smoothing / n_classes));
  return as_dtype(both, log_probs.dtype());
}

// Its result; every check but those of classes' values.
Tensor cross_entropy_rule(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                          const char* reduction, double smoothing) {
  const char* op = "cross_entropy";
  TS_CHECK(input.ndim() >= 1, op, ": expected an input of at least one dimension, got a 0-d tensor");
  TS_CHECK(smoothing >= 0 && smoothing <= 1, op, ": label_smoothing must be between 0.0 and 1.0. Got: ", smoothing);
  int64_t dim = input.ndim() == 1 ? 0 : 1;
  TS_CHECK(!weight.defined() || (weight.ndim() == 1 && weight.numel() == input.size(dim)), op,
           ": weight tensor should be defined either for all ", input.size(dim),
           " classes or no classes but got weight tensor of shape: ", weight.defined() ? weight.sizes() : IntSpan());
  bool soft = same(input.sizes(), target.sizes());
  TS_CHECK(!soft || is_floating(target.dtype()), op,
           ": Expected floating point type for target with class probabilities, got ", target.dtype());
  TS_CHECK(!soft || ignore_index < 0, op, ": ignore_index is not supported for floating point target");
  Dims sizes(input.sizes());
  sizes.erase(sizes.begin() + dim);
  if (!soft && input.ndim() == 2) check_one_class(op, input, target);
  TS_CHECK_VALUE(soft || input.ndim() > 2 || same(target.sizes(), sizes), "nll_loss: Expected input batch_size (",
                 input.size(0), ") to match target batch_size (", target.ndim() ? target.size(0) : 1,
                 "), got target of shape ", target.sizes());
  TS_CHECK(soft || same(target.sizes(), sizes), "nll_loss: Expected target size ", IntSpan(sizes), ", got ",
           target.sizes());
  return outline(reduction_of(op, reduction) == kReduceNone ? sizes.span() : IntSpan(), input.dtype(), input.device());
}
Tensor cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                     const char* reduction_name, double smoothing) {
  cross_entropy_rule(input, target, weight, ignore_index, reduction_name, smoothing);
  int64_t reduction = reduction_of("cross_entropy", reduction_name), dim = input.ndim() == 1 ? 0 : 1;
  const bool soft = same(input.sizes(), target.sizes());
  if (!soft) check_weight_dtype("cross_entropy", weight, input.dtype());
  Tensor w = weight.defined() ? as_dtype(weight, input.dtype()) : weight, class_weight = w;
  if (w.defined() && input.ndim() > 1) {
    Dims beside(static_cast<size_t>(input.ndim()), 1);
    beside[1] = w.numel();
    class_weight = ops::reshape(w, beside);
  }
  Tensor log_probs = log_softmax_op(input, dim);
  if (soft) return soft_cross_entropy(log_probs, target, class_weight, dim, reduction, smoothing);
  if (smoothing > 0)
    return smoothed(log_probs, target, w, class_weight, dim, reduction, ignore_index, smoothing, reduction_name);
  return nll_loss(log_probs, target, w, ignore_index, reduction_name);
}

} // namespace

TS_OPERATORS(nll_loss) {
  def("nll_loss(Tensor self, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction='mean') -> "
      "Tensor")
      .facts("autocast:float32")
      .body<nll_loss>()
      .reads_host()
      .in("nn.functional")
      .function_only()
      .doc("-weight[target] * self[target] for log probabilities (N, C), (C) or (N, C, d1, ...) and class indices "
           "without C. The mean is over the "
           "weights of targets that are not ignore_index. IndexError for a target that is no class.");
  def("cross_entropy(Tensor self, Tensor target, Tensor? weight=None, int ignore_index=-100, str reduction='mean', "
      "float label_smoothing=0.0) -> Tensor")
      .facts("autocast:float32")
      .body<cross_entropy>()
      .rule<cross_entropy_rule>()
      .saves("self target weight")
      .gradient_if_replaced(traced_gradient<cross_entropy>)
      .reads_host()
      .in("nn.functional")
      .function_only()
      .doc("nll_loss of log_softmax(self) for class indices; for a floating target of the input's shape, the cross "
           "entropy with those probabilities.");
  def("nll_loss_forward(Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, "
      "Tensor)")
      .rule<nll_forward_rule>()
      .kernel("nll_loss_forward", "self: contiguous; target: contiguous int64; weight: contiguous",
              "reduction, ignore_index")
      .decompose<nll_forward_parts>()
      .reads_host()
      .saves("target weight result1")
      .gradient(nll_gradient)
      .node_name("NllLossBackward0")
      .hidden()
      .doc("nll_loss of (N, C, ...) and (N, ...); reduction 0 none, 1 mean, 2 sum. Also the total weight.");
  def("nll_loss_backward(Tensor grad, Tensor target, Tensor? weight, Tensor total_weight, int[] input_size, int "
      "reduction, int ignore_index) -> Tensor")
      .rule<nll_backward_rule>()
      .kernel("nll_loss_backward", "grad: contiguous; target: contiguous int64; weight: contiguous; total_weight: any",
              "input_size, reduction, ignore_index")
      .decompose<nll_backward_parts>()
      .reads_host()
      .saves("target weight")
      .gradient(nll_backward_gradient)
      .hidden()
      .doc("Gradient of nll_loss_forward by its input.");
}

} // namespace ts
