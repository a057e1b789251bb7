// One vectorised loop per scalar instruction and compute type: the instruction set of the tile machine.
#ifndef TESSERACK_CPU_OPS_H
#define TESSERACK_CPU_OPS_H

#include "storage.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// out may be exactly a, b or c. Returns 0, or 1 for an integer division by zero (out is then unspecified).
template <typename T> using OpFn = int (*)(T* out, const T* a, const T* b, const T* c, int64_t n);

// Instructions of the machine itself: whole programs of one operand (idioms.h), and a few instructions in one, of three
// operands (fusions.h).
enum {
  kGelu = TS_NUM_INSTRUCTIONS,
  kHardsigmoid,
  kHardswish,
  kSilu,
  kFrac,
  kAngle,
  kElu,
  kLeakyRelu, // a > b ? a : a * c
  kLerp,      // a + c * (b - a)
  kClamp,     // min(max(a, b), c)
  kAddProduct,
  kSubProduct,
  kMulSum,
  kMulDifference,
  kMulProduct,
  kSelfIfAbove,   // a > b ? a : c
  kLimitIfAtMost, // a <= b ? b : c
  kBeyond,        // a < b or a > c
  kOutside,       // a <= b or a >= c
  kAddQuotient,   // a + b / c
  kNumberOr,      // b where a is NaN, else c
  kHuber,         // a * (b - c * a)
  kIfLess,        // a < b ? c : 0, as c * (a < b)
  kNumberWithin,  // b where a is NaN, else a between -c and c
  kLerpToNearer,  // a + c * (b - a), from b where that is nearer
  kReplaceInf,    // b where a is inf, c where it is -inf, else a
  kNumInstructions
};

// fn[op][mask]: bit k of mask says that operand k is one value, not n. Every mask below 1 << arity but the full one is
// there; an all-scalar instruction runs with mask 0 and n = 1. A null entry: not defined for T.
template <typename T> struct OpTable {
  OpFn<T> fn[kNumInstructions][8] = {};
};

template <typename T> const OpTable<T>& op_table();

// Operand count, and the cost of one element relative to an addition.
constexpr int arity(int op) {
  if (op >= TS_NUM_INSTRUCTIONS) return op < kLeakyRelu ? 1 : 3;
  return backend::instruction_arity(op);
}

inline int cost(int op) {
  if (op >= TS_I_EXP && op <= TS_I_SIGMOID) return op == TS_I_EXP || op == TS_I_TANH || op == TS_I_SIGMOID ? 3 : 10;
  if (op == kGelu) return 10;
  if (op == kSilu || op == kElu) return 3;
  if (op == TS_I_POW || op == TS_I_ATAN2 || (op >= TS_I_FLOORDIV && op <= TS_I_FMOD)) return 12;
  return 1;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_OPS_H
