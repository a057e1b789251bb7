// Programs of several instructions that the machine knows as one: a tile is then read and written once, not once for
// each of them.
#ifndef TESSERACK_CPU_IDIOMS_H
#define TESSERACK_CPU_IDIOMS_H

#include "ops.h"

#include <array>
#include <cstring>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

struct Idiom {
  int op;
  int n_constants, n_instructions;
  std::array<double, 3> constants;
  std::array<ts_instruction, 9> instructions; // registers: the inputs, the constants, the results in order
  int n_inputs = 1;                           // of one in float32 alone
};

constexpr Idiom kIdioms[] = {
    {kFrac, 0, 2, {}, {{{TS_I_TRUNC, 0, 0, 0}, {TS_I_SUB, 0, 1, 0}}}},
    // select(x != x, x, (x < 0) * pi)
    {kAngle,
     2,
     4,
     {0, 3.1415926535897931},
     {{{TS_I_NE, 0, 0, 0}, {TS_I_LT, 0, 1, 0}, {TS_I_MUL, 4, 2, 0}, {TS_I_SELECT, 3, 0, 5}}}},
    {kElu, 1, 3, {0}, {{{TS_I_GT, 0, 1, 0}, {TS_I_EXPM1, 0, 0, 0}, {TS_I_SELECT, 2, 0, 3}}}},
    {kSilu, 0, 2, {}, {{{TS_I_SIGMOID, 0, 0, 0}, {TS_I_MUL, 0, 1, 0}}}},
    // 0.5 * x * (1 + erf(x * 0.7071...))
    {kGelu,
     3,
     5,
     {0.5, 1, 0.70710678118654752},
     {{{TS_I_MUL, 1, 0, 0}, {TS_I_MUL, 0, 3, 0}, {TS_I_ERF, 5, 0, 0}, {TS_I_ADD, 2, 6, 0}, {TS_I_MUL, 4, 7, 0}}}},
    // min(max(x + 3, 0), 6) / 6, and x times it
    {kHardsigmoid,
     3,
     4,
     {3, 0, 6},
     {{{TS_I_ADD, 0, 1, 0}, {TS_I_MAX, 4, 2, 0}, {TS_I_MIN, 5, 3, 0}, {TS_I_DIV, 6, 3, 0}}}},
    {kHardswish,
     3,
     5,
     {3, 0, 6},
     {{{TS_I_ADD, 0, 1, 0}, {TS_I_MAX, 4, 2, 0}, {TS_I_MIN, 5, 3, 0}, {TS_I_MUL, 0, 6, 0}, {TS_I_DIV, 7, 3, 0}}}},
    // select(abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w))
    {kLerpToNearer,
     2,
     9,
     {0.5, 1},
     {{{TS_I_ABS, 2, 0, 0},
       {TS_I_LT, 5, 3, 0},
       {TS_I_SUB, 1, 0, 0},
       {TS_I_MUL, 2, 7, 0},
       {TS_I_ADD, 0, 8, 0},
       {TS_I_SUB, 4, 2, 0},
       {TS_I_MUL, 7, 10, 0},
       {TS_I_SUB, 1, 11, 0},
       {TS_I_SELECT, 6, 9, 12}}},
     3},
};

inline bool is_idiom(const ts_program& p, const Idiom& idiom) {
  if (p.n_inputs != idiom.n_inputs || p.n_outputs != 1 || p.n_constants != idiom.n_constants ||
      p.n_instructions != idiom.n_instructions || p.outputs[0] != p.n_inputs + p.n_constants + p.n_instructions - 1)
    return false;
  for (int k = 0; k < p.n_constants; ++k)
    if (p.constants[k] != idiom.constants[static_cast<size_t>(k)]) return false;
  return std::memcmp(p.instructions, idiom.instructions.data(),
                     static_cast<size_t>(p.n_instructions) * sizeof(ts_instruction)) == 0;
}

// The program in fewer instructions, or itself. `space` holds what the result points to.
struct IdiomSpace {
  ts_program program;
  ts_instruction instruction;
  uint16_t output;
};
template <typename T> const ts_program* shortened(const ts_program* p, IdiomSpace& space) {
  for (const Idiom& idiom : kIdioms)
    if ((std::is_same_v<T, float> || idiom.n_inputs > 1) && is_idiom(*p, idiom)) {
      space.program = *p;
      space.instruction = {static_cast<uint16_t>(idiom.op), 0, 0, 0};
      if (idiom.n_inputs > 1) space.instruction.b = 1, space.instruction.c = 2;
      space.output = static_cast<uint16_t>(p->n_inputs);
      space.program.n_constants = 0;
      space.program.n_instructions = 1;
      space.program.instructions = &space.instruction;
      space.program.outputs = &space.output;
      return &space.program;
    }
  return p;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_IDIOMS_H
