// Losses of elementwise differences, distances and probabilities.
#include "dispatch/op_handles.h"
#include "ops/common/declare.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "ops/nn/losses.h"
#include "ops/reduce/reduce_arrange.h"

namespace ts {
namespace {

Tensor reduced(const char* op, const Tensor& losses, const char* name) {
  switch (reduction_of(op, name)) {
  case kReduceMean: return ops::mean(losses);
  case kReduceSum: return ops::sum(losses);
  default: return losses;
  }
}

void refuse_complex(const Tensor& input, const Tensor& target, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, !is_complex(input.dtype()) && !is_complex(target.dtype()), op,
                ": not implemented for complex tensors, got ", input.dtype(), " and ", target.dtype(),
                "; try view_as_real");
}

Tensor mse_loss(const Tensor& input, const Tensor& target, const char* reduction) {
  refuse_complex(input, target, "mse_loss");
  static const Op squares("_squared_difference");
  return reduced("mse_loss", squares(input, target), reduction);
}
Tensor l1_loss(const Tensor& input, const Tensor& target, const char* reduction) {
  return reduced("l1_loss", ops::abs(ops::sub(input, target)), reduction);
}

Tensor huber_loss(const Tensor& input, const Tensor& target, const char* reduction, double delta) {
  TS_CHECK(delta > 0, "huber_loss: does not support non-positive values for delta, got ", delta);
  static const Op elements("_huber_loss");
  return reduced("huber_loss", elements(input, target, Scalar(delta)), reduction);
}
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const char* reduction, double beta) {
  TS_CHECK(beta >= 0, "smooth_l1_loss: does not support negative values for beta, got ", beta);
  if (beta == 0) return l1_loss(input, target, reduction);
  static const Op elements("_smooth_l1_loss");
  return reduced("smooth_l1_loss", elements(input, target, Scalar(beta)), reduction);
}

Tensor weighted(const Tensor& losses, const Tensor& weight) {
  return weight.defined() ? ops::mul(losses, weight) : losses;
}

const Op bce_op("_binary_cross_entropy"), log_sigmoid("log_sigmoid");

void check_probabilities(const Tensor& p) {
  Tensor outside = ops::logical_not(ops::logical_and(ops::ge(ops::detach(p), 0), ops::le(ops::detach(p), 1)));
  TS_CHECK(!raw_truth(ops::any(outside)), "binary_cross_entropy: all elements of input should be between 0 and 1");
}
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight, const char* reduction) {
  TS_CHECK_VALUE(same(input.sizes(), target.sizes()), "binary_cross_entropy: Using a target size (", target.sizes(),
                 ") that is different to the input size (", input.sizes(),
                 ") is deprecated. Please ensure they have the same size.");
  TS_CHECK(is_floating(input.dtype()) && input.dtype() == target.dtype(),
           "binary_cross_entropy: expected input and target of one floating dtype, got ", input.dtype(), " and ",
           target.dtype());
  check_probabilities(input);
  return reduced("binary_cross_entropy", weighted(bce_op(input, target), weight), reduction);
}

Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight,
                                        const Tensor& pos_weight, const char* reduction) {
  TS_CHECK_VALUE(same(input.sizes(), target.sizes()), "binary_cross_entropy_with_logits: Target size (", target.sizes(),
                 ") must be the same as input size (", input.sizes(), ")");
  static const Op elements("_bce_with_logits"), weighing("_bce_with_logits_weighing");
  Tensor losses = pos_weight.defined() ? weighing(input, target, pos_weight) : elements(input, target);
  return reduced("binary_cross_entropy_with_logits", weighted(losses, weight), reduction);
}

// target * (log(target) - input), zero where the target is.
Tensor kl_div(const Tensor& input, const Tensor& target, const char* reduction, bool log_target) {
  refuse_complex(input, target, "kl_div");
  Tensor losses;
  if (log_target)
    losses = ops::mul(ops::exp(target), ops::sub(target, input));
  else {
    static const Op xlogy("xlogy");
    losses = ops::sub(xlogy(target, target), ops::mul(target, input));
  }
  if (std::strcmp(reduction, "batchmean") != 0) return reduced("kl_div", losses, reduction);
  Tensor total = ops::sum(losses);
  return input.ndim() == 0 ? total : ops::div(total, static_cast<double>(input.size(0)));
}

Tensor at_least_zero(const Tensor& t) { return ops::clamp(t, 0); }

Tensor margin_ranking_loss(const Tensor& first, const Tensor& second, const Tensor& target, double margin,
                           const char* reduction) {
  Tensor violation = ops::add(ops::mul(ops::neg(target), ops::sub(first, second)), margin);
  return reduced("margin_ranking_loss", at_least_zero(violation), reduction);
}
Tensor hinge_embedding_loss(const Tensor& self, const Tensor& target, double margin, const char* reduction) {
  Tensor zero = filled({}, 0.0, self.dtype(), self.device());
  Tensor apart = ops::where(ops::ne(target, 1), at_least_zero(ops::add(ops::neg(self), margin)), zero);
  Tensor together = ops::where(ops::ne(target, -1), self, zero);
  return reduced("hinge_embedding_loss", ops::add(apart, together), reduction);
}
Tensor soft_margin_loss(const Tensor& self, const Tensor& target, const char* reduction) {
  return reduced("soft_margin_loss", ops::neg(log_sigmoid(ops::mul(target, self))), reduction);
}

const Op cosine_similarity("cosine_similarity"), pairwise_distance("pairwise_distance");

Tensor cosine_embedding_loss(const Tensor& first, const Tensor& second, const Tensor& target, double margin,
                             const char* reduction) {
  TS_CHECK(target.ndim() <= 1 && first.ndim() == target.ndim() + 1 && second.ndim() == first.ndim(),
           "cosine_embedding_loss: expected inputs (N, D) with a target (N), or (D) with a 0-d one, got ",
           first.sizes(), ", ", second.sizes(), " and ", target.sizes());
  auto floating = [](const Tensor& t) { return is_floating(t.dtype()) ? t : ops::to_dtype(t, default_dtype()); };
  Tensor cosine = cosine_similarity(floating(first), floating(second), target.ndim());
  Tensor zero = filled({}, 0.0, cosine.dtype(), cosine.device());
  Tensor together = ops::where(ops::eq(target, 1), ops::add(ops::neg(cosine), 1.0), zero);
  Tensor apart = ops::where(ops::eq(target, -1), at_least_zero(ops::sub(cosine, margin)), zero);
  return reduced("cosine_embedding_loss", ops::add(together, apart), reduction);
}
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin,
                           double p, double eps, bool swap, const char* reduction) {
  TS_CHECK_VALUE(margin > 0, "triplet_margin_loss: margin must be greater than 0, got ", margin);
  TS_CHECK(anchor.ndim() == positive.ndim() && anchor.ndim() == negative.ndim(),
           "triplet_margin_loss: All inputs should have same dimension, got ", anchor.sizes(), ", ", positive.sizes(),
           " and ", negative.sizes(), "; try unsqueeze()");
  Tensor near = pairwise_distance(anchor, positive, p, eps), far = pairwise_distance(anchor, negative, p, eps);
  if (swap) far = ops::minimum(far, pairwise_distance(positive, negative, p, eps));
  return reduced("triplet_margin_loss", at_least_zero(ops::sub(ops::add(near, margin), far)), reduction);
}
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input, bool full, double eps,
                        const char* reduction) {
  Tensor loss = log_input ? ops::sub(ops::exp(input), ops::mul(target, input))
                          : ops::sub(input, ops::mul(target, ops::log(ops::add(input, eps))));
  if (full) { // Stirling's approximation of log(target!)
    Tensor counted = ops::gt(target, 1),
           safe = ops::where(counted, target, filled({}, 1.0, target.dtype(), target.device()));
    Tensor stirling = ops::add(ops::sub(ops::mul(safe, ops::log(safe)), safe),
                               ops::mul(ops::log(ops::mul(safe, 6.283185307179586)), 0.5));
    loss = ops::add(loss, ops::masked_fill(stirling, ops::logical_not(counted), 0.0));
  }
  return reduced("poisson_nll_loss", loss, reduction);
}

} // namespace

TS_OPERATORS(loss) {
  auto loss = [](const char* schema) { return def(schema); };
  loss("mse_loss(Tensor self, Tensor target, str reduction='mean') -> Tensor")
      .facts("leaf autocast:float32")
      .body<mse_loss>()
      .in("nn.functional")
      .function_only()
      .doc("Squared differences, reduced.");
  loss("_squared_difference(Tensor self, Tensor other) -> Tensor")
      .pointwise("(self - other) * (self - other)")
      .no_bool()
      .promote(Promote::Number)
      .derivative("self", "grad * 2 * (self - other)")
      .derivative("other", "grad * -2 * (self - other)")
      .node_name("MseLossBackward0")
      .hidden()
      .doc("(self - other)^2, elementwise.");
  loss("l1_loss(Tensor self, Tensor target, str reduction='mean') -> Tensor")
      .facts("autocast:float32")
      .body<l1_loss>()
      .in("nn.functional")
      .function_only()
      .doc("Absolute differences, reduced.");
  loss("smooth_l1_loss(Tensor self, Tensor target, str reduction='mean', float beta=1.0) -> Tensor")
      .facts("leaf autocast:float32")
      .body<smooth_l1_loss>()
      .in("nn.functional")
      .function_only()
      .doc("With d = abs(self - target): d^2 / (2 beta) where d < beta, else d - beta / 2.");
  loss("huber_loss(Tensor self, Tensor target, str reduction='mean', float delta=1.0) -> Tensor")
      .facts("leaf autocast:float32")
      .body<huber_loss>()
      .in("nn.functional")
      .function_only()
      .doc("With d = abs(self - target): d^2 / 2 where d < delta, else delta (d - delta / 2).");
  // The gradients name the branch, so that an infinite or overflowing one multiplies nothing.
  loss("_smooth_l1_loss(Tensor self, Tensor target, Scalar beta=1) -> Tensor")
      .pointwise("min(abs(self - target), beta) / beta * (abs(self - target) - 0.5 * min(abs(self - target), beta))")
      .promote(Promote::Float)
      .derivative("self",
                  "grad * select(self - target >= beta, 1, select(self - target <= -beta, -1, (self - target) / beta))")
      .derivative("target",
                  "grad * select(target - self >= beta, 1, select(target - self <= -beta, -1, (target - self) / beta))")
      .hidden()
      .doc("The elements of smooth_l1_loss.");
  loss("_huber_loss(Tensor self, Tensor target, Scalar delta) -> Tensor")
      .pointwise("min(abs(self - target), delta) * (abs(self - target) - 0.5 * min(abs(self - target), delta))")
      .promote(Promote::Float)
      .derivative(
          "self",
          "grad * select(self - target >= delta, delta, select(self - target <= -delta, -delta, self - target))")
      .derivative(
          "target",
          "grad * select(target - self >= delta, delta, select(target - self <= -delta, -delta, target - self))")
      .hidden()
      .doc("The elements of huber_loss.");
  loss("binary_cross_entropy(Tensor self, Tensor target, Tensor? weight=None, str reduction='mean') -> Tensor")
      .facts("leaf autocast:float32/-")
      .body<binary_cross_entropy>()
      .in("nn.functional")
      .function_only()
      .doc("-(target log(self) + (1 - target) log(1 - self)) of probabilities; logs are cut off at -100.");
  loss("_binary_cross_entropy(Tensor self, Tensor target) -> Tensor")
      // Logarithms are cut off at -100; the gradient is that of the loss, not of the cut, its bound float32's 1e-12.
      .pointwise("-(target * max(log(self), -100) + (1 - target) * max(log(1 - self), -100))")
      .promote(Promote::Keep)
      .derivative("self", "grad * (self - target) / max(self * (1 - self), 9.999999960041972e-13)")
      .derivative("target", "grad * (log(1 - self) - log(self))")
      .hidden()
      .doc("The elements of binary_cross_entropy.");
  // (1 - t) x - log(sigmoid(x)), in an order that leaves the logarithm alone where t is 0 and x far below.
  loss("_bce_with_logits(Tensor self, Tensor target) -> Tensor")
      .pointwise("((1 - target) * self - min(self, 0)) + log1p(exp(-abs(self)))")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "grad * ((1 - target) * sigmoid(self) - target * sigmoid(-self))")
      .derivative("target", "-grad * self")
      .node_name("BinaryCrossEntropyWithLogitsBackward0")
      .hidden()
      .doc("The elements of binary_cross_entropy_with_logits.");
  loss("_bce_with_logits_weighing(Tensor self, Tensor target, Tensor weight) -> Tensor")
      .pointwise("((1 - target) * self - (1 + (weight - 1) * target) * min(self, 0)) + (1 + (weight - 1) * target) * "
                 "log1p(exp(-abs(self)))")
      .no_complex()
      .promote(Promote::Float)
      .derivative("self", "grad * ((1 - target) * sigmoid(self) - weight * target * sigmoid(-self))")
      .derivative("target", "grad * ((weight - 1) * (log1p(exp(-abs(self))) - min(self, 0)) - self)")
      .derivative("weight", "grad * target * (log1p(exp(-abs(self))) - min(self, 0))")
      .hidden()
      .doc("The same with a weight of the positive term.");
  // Some of PyTorch's functions beside those of nn.functional reduce nothing where they are not asked to.
  loss("binary_cross_entropy_with_logits(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, "
       "str reduction='none') -> Tensor")
      .facts("leaf autocast:float32")
      .body<binary_cross_entropy_with_logits>()
      .in("nn.functional")
      .function_only()
      .doc("binary_cross_entropy of sigmoid(self), without overflow; pos_weight weighs the positive term.");
  loss("kl_div(Tensor self, Tensor target, str reduction='none', bool log_target=False) -> Tensor")
      .facts("autocast:float32")
      .body<kl_div>()
      .in("nn.functional")
      .function_only()
      .doc("target (log(target) - self) for log probabilities self; reduction may also be 'batchmean'.");
  loss("margin_ranking_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, str reduction='none') -> "
       "Tensor")
      .facts("autocast:float32")
      .body<margin_ranking_loss>()
      .in("nn.functional")
      .function_only()
      .doc("max(0, -target (input1 - input2) + margin).");
  loss("hinge_embedding_loss(Tensor self, Tensor target, float margin=1.0, str reduction='none') -> Tensor")
      .facts("autocast:float32")
      .body<hinge_embedding_loss>()
      .in("nn.functional")
      .function_only()
      .doc("self where target is 1, max(0, margin - self) where it is -1.");
  loss("soft_margin_loss(Tensor self, Tensor target, str reduction='mean') -> Tensor")
      .facts("leaf autocast:float32")
      .body<soft_margin_loss>()
      .in("nn.functional")
      .function_only()
      .doc("log(1 + exp(-target self)).");
  loss("cosine_embedding_loss(Tensor input1, Tensor input2, Tensor target, float margin=0.0, str reduction='none') -> "
       "Tensor")
      .facts("autocast:float32")
      .body<cosine_embedding_loss>()
      .in("nn.functional")
      .function_only()
      .doc("1 - cos where target is 1, max(0, cos - margin) where it is -1.");
  loss("triplet_margin_loss(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float "
       "eps=1e-06, bool swap=False, str reduction='none') -> Tensor")
      .facts("autocast:float32")
      .body<triplet_margin_loss>()
      .in("nn.functional")
      .function_only()
      .doc("max(0, |anchor - positive| - |anchor - negative| + margin).");
  loss("poisson_nll_loss(Tensor self, Tensor target, bool log_input=True, bool full=False, float eps=1e-08, str "
       "reduction='mean') -> Tensor")
      .facts("autocast:float32")
      .body<poisson_nll_loss>()
      .in("nn.functional")
      .function_only()
      .doc("Negative log likelihood of counts under a Poisson distribution.");
}

} // namespace ts
