// A program over few elements that all lie densely: its loops one after another, with nothing prepared.
#ifndef TESSERACK_CPU_SMALL_PROGRAM_H
#define TESSERACK_CPU_SMALL_PROGRAM_H

#include "program.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Computes what Program would, by the same loops; false, with nothing written, where it is for Program to do or to
// refuse. Throws nothing; `status` is 1 after an integer division by zero.
template <typename T> bool run_small(const ts_call* call, const ts_program* program, int& status) {
  constexpr int kRegisters = 24, kSteps = 8;
  const int inputs = program->n_inputs, first = inputs + program->n_constants;
  const int steps = program->n_instructions, total = first + steps;
  const ts_tensor* result = TS_OUT(call, 0);
  const int64_t n = result->numel;
  const auto is_dense = [](const ts_tensor* t) {
    return (t->flags & TS_T_CONTIGUOUS) != 0 && t->dtype == dtype_of<T>();
  };
  const auto address = [](const ts_tensor* t) { return static_cast<char*>(t->handle) + t->byte_offset; };
  if (steps == 0 || steps > kSteps || n > kTileElements<T> || total > kRegisters || call->n_outputs != 1 ||
      program->n_outputs != 1 || call->n_inputs != inputs || program->outputs[0] != total - 1 || !is_dense(result))
    return false;

  T values[kRegisters];
  const T* at[kRegisters];
  uint32_t single = 0; // a bit per register that is one value
  for (int k = 0; k < inputs; ++k) {
    const ts_tensor* t = TS_IN(call, k);
    if ((t->flags & TS_T_SCALAR) != 0) {
      values[k] = scalar_value<T>(t);
      at[k] = &values[k];
      single |= 1U << k;
    } else if (is_dense(t)) {
      at[k] = reinterpret_cast<const T*>(address(t));
    } else {
      return false;
    }
  }
  for (int k = 0; k < program->n_constants; ++k) {
    values[inputs + k] = backend::program_constant<T>(program, k);
    at[inputs + k] = &values[inputs + k];
    single |= 1U << (inputs + k);
  }

  alignas(64) T tiles[kSteps - 1][kTileElements<T>];
  status = 0;
  for (int i = 0; i < steps; ++i) {
    const ts_instruction& in = program->instructions[i];
    if (in.op >= TS_NUM_INSTRUCTIONS && program == call->program) return false;
    const int reg = first + i, count = arity(in.op);
    const int a = in.a, b = count > 1 ? in.b : a, c = count > 2 ? in.c : a;
    if (a >= reg || b >= reg || c >= reg) return false;
    const uint32_t mask =
        (single >> a & 1) | (count > 1 ? (single >> b & 1) << 1 : 0) | (count > 2 ? (single >> c & 1) << 2 : 0);
    const bool once = mask == (1U << count) - 1, last = i + 1 == steps;
    const OpFn<T> run = op_table<T>().fn[in.op][once ? 0 : mask];
    if (run == nullptr || (once && last)) return false;
    T* out = once ? &values[reg] : last ? reinterpret_cast<T*>(address(result)) : tiles[i];
    single |= once ? 1U << reg : 0;
    status |= run(out, at[a], at[b], at[c], once ? 1 : n);
    at[reg] = out;
  }
  return true;
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_SMALL_PROGRAM_H
