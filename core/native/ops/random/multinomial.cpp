// Draws of categories by weight.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/pointwise/fused_programs.h"
#include "ops/random/random_bits.h"
#include "ops/reduce/reduce_arrange.h"
#include "runtime/computed_dtypes.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kMultinomialCode = "draws numbers, then walks over sums of weights";

// Sums along rows of what is NaN where a weight is negative or not finite.
Tensor sums_of_weights(const Tensor& p) {
  Tensor sums = empty_tensor(Dims{p.size(0)}, p.dtype(), p.device());
  if (reduce_program_into(sums, TS_R_SUM, p, dim_set(IntSpan(Dims{-1}), 2, "multinomial"),
                          program_of("x + (sqrt(x) - sqrt(x))")))
    return sums;
  Tensor root = ops::sqrt(p);
  return ops::sum_dim(ops::add(p, ops::sub(root, root)), Dims{-1});
}

const KernelId kCheckWeights("check_weights");
// By a kernel where the device can report it: nothing waits for it, and what is wrong is told at the next wait.
void check_weights(const Tensor& p) {
  if (Launch(kCheckWeights, p.device()).in(p).run()) return;
  Tensor sums = sums_of_weights(p);
  if (sums.numel() == 1) { // launches are what one row costs
    alignas(8) char sum[8];
    copy_bytes_to_host(sum, sums, static_cast<size_t>(sums.item_size()));
    if (read_scalar(sum, sums.dtype()).to_double() > 0) return;
  } else if (raw_truth(ops::all(ops::gt(sums, Scalar(0))))) { // one wait where all is well
    return;
  }
  Tensor bad = ops::logical_not(ops::logical_and(ops::ge(p, Scalar(0)), ops::lt(p, Scalar(INFINITY))));
  TS_CHECK(!raw_truth(ops::any(bad)), "multinomial: probability tensor contains either `inf`, `nan` or element < 0");
  TS_CHECK(false, "multinomial: invalid multinomial distribution (sum of probabilities <= 0)");
}

// Inverse of the cumulative distribution.
Tensor with_replacement(const Tensor& p, int64_t n, Generator& g) {
  static const Op searchsorted("searchsorted.Tensor");
  Tensor cumulative = ops::cumsum(p, -1);
  Tensor total = raw_narrow(cumulative, 1, p.size(1) - 1, 1);
  Tensor draws = ops::mul(uniform_tensor(Dims{p.size(0), n}, p.dtype(), p.device(), g), total);
  // Rounding may lift a draw to the total: it belongs to the last category with any weight.
  Tensor positions = searchsorted(raw_contiguous(cumulative), raw_contiguous(draws), false, true);
  Tensor reached = ops::sum_dim(ops::ge(cumulative, total), Dims{-1}, true);
  return ops::minimum(positions, ops::sub(filled({}, Scalar(p.size(1)), DType::Int64, p.device()), reached));
}

// The n smallest of exponential times with these rates come in the order of draws without replacement; what has no
// weight comes last, where too little else is left, as in PyTorch. One of each row is written to where it belongs.
Tensor without_replacement(const Tensor& out, const Tensor& p, int64_t n, Generator& g) {
  static const Op time_of_weight("time_of_weight");
  Tensor times = time_of_weight(uniform_tensor(p.sizes(), p.dtype(), p.device(), g), p);
  if (n > 1 || !out.is_contiguous()) return ops::topk.multi<2>(times, n, -1, false, true)[1];
  reduce_into(out, TS_R_ARGMIN, times, DimSet{2});
  return out;
}

Tensor multinomial_rule(const Tensor& self, int64_t num_samples, bool replacement, Generator* given) {
  TS_CHECK(is_floating(self.dtype()),
           "multinomial: only supports floating-point dtypes for input, got: ", self.dtype());
  TS_CHECK(self.ndim() == 1 || self.ndim() == 2, "multinomial: prob_dist must be 1 or 2 dim, got sizes ", self.sizes());
  TS_CHECK(num_samples > 0, "multinomial: cannot sample n_sample <= 0 samples, got ", num_samples);
  int64_t categories = self.sizes().back();
  TS_CHECK(categories > 0, "multinomial: expected at least one category, got sizes ", self.sizes());
  TS_CHECK(categories < int64_t{1} << 24, "multinomial: number of categories cannot exceed 2^24, got ", categories);
  TS_CHECK(replacement || num_samples <= categories,
           "multinomial: cannot sample n_sample > prob_dist.size(-1) samples without replacement, got ", num_samples,
           " of ", categories);
  if (!self.device().is_meta()) generator_for(given, self.device(), "multinomial");
  Dims sizes(self.sizes());
  sizes.back() = num_samples;
  return outline(sizes, DType::Int64, self.device());
}
void multinomial(const Tensor& out, const Tensor& self, int64_t num_samples, bool replacement, Generator* given) {
  Generator& g = generator_for(given, self.device(), "multinomial");
  Tensor p = raw_contiguous(raw_cast(self, accumulate_type(self)));
  if (self.ndim() == 1) p = raw_view(p, Dims{1, self.numel()});
  check_weights(p);
  Tensor drawn = replacement ? with_replacement(p, num_samples, g) : without_replacement(out, p, num_samples, g);
  if (!drawn.is(out)) raw_copy(out, raw_view(drawn, out.sizes()));
}

} // namespace

TS_OPERATORS(multinomial) {
  def("multinomial(Tensor self, int num_samples, bool replacement=False, *, Generator? generator=None) -> Tensor")
      .facts("kernel:check_weights")
      .rule<multinomial_rule>()
      .computation<multinomial>(kMultinomialCode)
      .reads_host()
      .not_differentiable()
      .out(kSameDtype)
      .doc("Indices drawn by the weights in each row of self, which need not sum to one. Without "
           "replacement, categories of no weight come when all others are drawn. Waits for the device where "
           "its card has no kernel that checks weights.");
  def("time_of_weight(Tensor self, Tensor weight) -> Tensor")
      .pointwise("select(weight > 0, -log1p(-self), 1) / abs(weight)") // of -0, too
      .not_differentiable()
      .out()
      .hidden()
      .doc("When what has this rate happens first, drawn from [0, 1); infinite where it has no weight.");
}

} // namespace ts
