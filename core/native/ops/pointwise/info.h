// What a pointwise operator knows about itself, and how it runs.
#pragma once
#include "ops/common/declare.h"
#include "ops/pointwise/complex.h"
#include "ops/pointwise/expr.h"
#include <atomic>
#include <map>
#include <mutex>

namespace ts {

// How to compute the gradient of one argument: a pointwise operator over saved values.
struct PointwiseGradient {
  const Operator* op = nullptr; // NULL: the incoming gradient itself
  bool zero = false;            // the derivative is identically zero
  bool times_grad = false;      // `op` leaves the incoming gradient out, which would be an argument too many
  bool conjugate_grad = false;  // then, whether it is the conjugate of a complex one that is missing
  // Where each argument of `op` comes from: an argument of the forward operator, or one of these.
  static constexpr int kResult = -1, kGrad = -2;
  std::vector<int> sources;
  uint64_t save_args = 0;
  bool save_result = false;
};

// A program over the parts of complex operands, whose inputs are real_part and imaginary_part of arguments.
struct ComplexProgram {
  std::unique_ptr<const pointwise::Program> program; // NULL: the operator is not defined for complex operands
};

struct PointwiseInfo {
  Promote promote = Promote::Arith;
  bool no_bool = false, no_integer = false, no_complex = false, truncate_numbers = false;
  bool round_numbers = false; // numbers are of the common dtype where it is a half, as what is compared is
  std::optional<std::pair<int, int>> floating_one_of; // arguments of which one must be floating
  int single_arg = -1;                                // a number, or a tensor without dims
  int boolean_arg = -1;                               // must be a bool tensor; neutral in promotion
  std::vector<std::string> variables;                 // argument names, then "result", "grad"
  pointwise::Expr expr;
  std::vector<pointwise::Expr> derivatives; // per argument; NULL: symbolic
  std::unique_ptr<const pointwise::Program> program;
  // With every Scalar argument at its default: add without alpha is one instruction.
  pointwise::Expr default_expr;
  std::unique_ptr<const pointwise::Program> default_program;
  std::vector<int> scalar_args; // arguments of kind Scalar that have defaults
  // Of complex operands: the function is conj(expr(conj(a), b...)), by bits of arguments and of the result. A gradient
  // of a holomorphic function is of this kind.
  uint64_t conjugate = 0;
  bool conjugate_result = false;
  const char* complex_form_name = nullptr; // the operator that runs instead where an operand is complex: abs, sgn
  bool rounds() const { return round_numbers || promote == Promote::Compare; }
  // Gradients, built when first needed.
  const PointwiseGradient& gradient(const Operator& op, int arg) const;
  // For these complex arguments; with every Scalar argument at its default; two outputs, of a complex result, or one.
  const ComplexProgram& complex_program(uint64_t complex_args, bool defaults, bool complex_result) const;

private:
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<PointwiseGradient>> owned_;
  mutable std::array<std::atomic<const PointwiseGradient*>, 16> gradients_{};
  mutable std::map<std::pair<uint64_t, int>, ComplexProgram> complex_programs_;
};

constexpr int kMaxPointwiseArgs = 6;

// Finishes a declared pointwise operator: compiles its programs and installs body and autograd kernel.
void finish_pointwise(Operator& op, PointwiseInfo& info);
void run_pointwise(const Operator& op, Frame& f); // body
// Runs the operator's complex form when it has one and an operand is complex.
bool run_complex_form(const Operator& op, Frame& f);
void pointwise_autograd(void*, const Operator& op, Frame& f, KeySet keys); // kernel at the autograd key

} // namespace ts
