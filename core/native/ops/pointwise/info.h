// What a pointwise operator knows about itself, and how it runs.
#pragma once
#include "ops/declare.h"
#include "ops/pointwise/expr.h"
#include <atomic>
#include <mutex>

namespace ts {

// How to compute the gradient of one argument: a pointwise operator over saved values.
struct PointwiseGradient {
  const Operator* op = nullptr; // NULL: the incoming gradient itself
  bool zero = false;            // the derivative is identically zero
  bool times_grad = false;      // `op` leaves the incoming gradient out, which would be an argument too many
  // Where each argument of `op` comes from: an argument of the forward operator, or one of these.
  static constexpr int kResult = -1, kGrad = -2;
  std::vector<int> sources;
  uint64_t save_args = 0;
  bool save_result = false;
};

struct PointwiseInfo {
  Promote promote = Promote::Arith;
  bool no_bool = false, no_integer = false, truncate_numbers = false;
  int boolean_arg = -1;               // must be a bool tensor; neutral in promotion
  std::vector<std::string> variables; // argument names, then "result", "grad"
  pointwise::Expr expr;
  std::vector<pointwise::Expr> derivatives; // per argument; NULL: symbolic
  std::unique_ptr<const pointwise::Program> program;
  // With every Scalar argument at its default: add without alpha is one instruction.
  std::unique_ptr<const pointwise::Program> default_program;
  std::vector<int> scalar_args; // arguments of kind Scalar that have defaults
  // Gradients, built when first needed.
  const PointwiseGradient& gradient(const Operator& op, int arg) const;

private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<PointwiseGradient>> owned_;
  mutable std::array<std::atomic<const PointwiseGradient*>, 16> gradients_{};
};

constexpr int kMaxPointwiseArgs = 6;

// Finishes a declared pointwise operator: compiles its programs and installs body and autograd kernel.
void finish_pointwise(Operator& op, PointwiseInfo& info);
void run_pointwise(const Operator& op, Frame& f);                          // body
void pointwise_autograd(void*, const Operator& op, Frame& f, KeySet keys); // kernel at the autograd key

} // namespace ts
