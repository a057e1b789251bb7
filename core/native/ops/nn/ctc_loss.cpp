// Connectionist temporal classification where a backend has the kernel; the package decomposes otherwise.
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "runtime/empty.h"

namespace ts {
namespace {

const char* const kCtcLossName = "ctc_loss";

// log_probs (T, N, C), labels (N, S), and N lengths of each.
void ctc_loss_check_arguments(const Tensor& log_probs, const Tensor& labels, const Tensor& lengths, const Tensor& sizes,
                              int64_t blank) {
  TS_CHECK(log_probs.ndim() == 3 && is_floating(log_probs.dtype()), kCtcLossName,
           ": expected floating log_probs (T, N, C), got ", log_probs.dtype(), " ", log_probs.sizes());
  int64_t batch = log_probs.size(1);
  TS_CHECK(labels.ndim() == 2 && labels.size(0) == batch, kCtcLossName, ": expected labels (", batch, ", S), got ",
           labels.sizes());
  for (const Tensor* t : {&labels, &lengths, &sizes}) {
    TS_CHECK(t->dtype() == DType::Int64, kCtcLossName, ": expected labels and lengths of int64, got ", t->dtype());
  }
  for (const Tensor* t : {&lengths, &sizes})
    TS_CHECK(t->ndim() == 1 && t->numel() == batch, kCtcLossName, ": expected ", batch, " lengths, got ", t->sizes());
  TS_CHECK(blank >= 0 && blank < log_probs.size(2), kCtcLossName, ": blank must be in label range, got ", blank,
           " for ", log_probs.size(2), " classes");
}
Dims table_sizes(const Tensor& log_probs, const Tensor& labels) {
  return {log_probs.size(1), log_probs.size(0), 2 * labels.size(1) + 1};
}

using Two = std::tuple<Tensor, Tensor>;
Two ctc_loss_forward_rule(const Tensor& log_probs, const Tensor& labels, const Tensor& lengths, const Tensor& sizes,
                          int64_t blank) {
  ctc_loss_check_arguments(log_probs, labels, lengths, sizes, blank);
  return {outline(Dims{log_probs.size(1)}, log_probs.dtype(), log_probs.device()),
          outline(table_sizes(log_probs, labels), log_probs.dtype(), log_probs.device())};
}
Tensor ctc_loss_backward_rule(const Tensor& grad, const Tensor& log_probs, const Tensor& labels, const Tensor& lengths,
                              const Tensor& sizes, const Tensor& loss, const Tensor& alphas, int64_t blank, bool) {
  ctc_loss_check_arguments(log_probs, labels, lengths, sizes, blank);
  for (const Tensor* t : {&grad, &loss, &alphas}) check_same_dtype(log_probs, *t, kCtcLossName);
  for (const Tensor* t : {&grad, &loss})
    TS_CHECK(t->ndim() == 1 && t->numel() == log_probs.size(1), kCtcLossName,
             ": expected one loss and gradient for each of ", log_probs.size(1), " sequences, got ", t->sizes());
  Dims table = table_sizes(log_probs, labels);
  TS_CHECK(same(alphas.sizes(), table), kCtcLossName, ": expected alphas of shape ", table.span(), ", got ",
           alphas.sizes());
  return outline(log_probs.sizes(), log_probs.dtype(), log_probs.device());
}
} // namespace

TS_OPERATORS(ctc_loss) {
  def("_ctc_loss(Tensor log_probs, Tensor labels, Tensor lengths, Tensor sizes, int blank) -> (Tensor, Tensor)")
      .facts("autocast:float32/-")
      .rule<ctc_loss_forward_rule>()
      .kernel("ctc_loss", "log_probs: contiguous empty; labels: contiguous empty; lengths sizes: contiguous", "blank")
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("The losses of N sequences of labels (N, S), lengths and sizes of N each, and the log probabilities (N, T, "
           "2 S + 1) of all beginnings.");
  def("_ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor labels, Tensor lengths, Tensor sizes, Tensor loss, "
      "Tensor alphas, int blank, bool zero_infinity) -> Tensor")
      .rule<ctc_loss_backward_rule>()
      .kernel("ctc_loss_backward",
              "grad: contiguous; log_probs: contiguous empty; labels: contiguous empty; lengths sizes loss alphas: "
              "contiguous",
              "blank, zero_infinity")
      .not_differentiable()
      .hidden()
      .function_only()
      .doc("The gradient of _ctc_loss by log_probs, which is taken to be a log_softmax.");
}

} // namespace ts
