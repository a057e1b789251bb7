// Programs over bytes and 16-bit integers that need no wider registers: a vector then holds as many elements as of the
// tensors, and nothing is converted.
#ifndef TESSERACK_CPU_NARROW_H
#define TESSERACK_CPU_NARROW_H

#include "program.h"

#include <array>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// Of registers in the type that all operands share: rings wrap alike in every width, and comparisons need values that
// the type holds. Holds what `program()` points to.
class Narrowing {
public:
  // `call` computes in int32.
  explicit Narrowing(const ts_call* call) : call_(call), program_(call->program) { dtype_ = find(); }

  // TS_BOOL (all operands are), TS_UINT8, TS_INT8 or TS_INT16; TS_INT32: registers stay as they are.
  int32_t dtype() const { return dtype_; }
  // The call's program; of bools, without tests whether they differ from zero.
  const ts_program* program() const { return program_; }

private:
  static constexpr int kLongest = 64; // registers

  int32_t find() {
    const ts_program& p = *program_;
    first_ = p.n_inputs + p.n_constants;
    if (first_ + p.n_instructions > kLongest || p.n_inputs != call_->n_inputs || p.n_outputs != call_->n_outputs)
      return TS_INT32;
    int32_t dtype = TS_BOOL;
    for (int k = 0; k < call_->n_outputs; ++k)
      if (!join(dtype, TS_OUT(call_, k))) return TS_INT32;
    for (int k = 0; k < call_->n_inputs; ++k)
      if (!join(dtype, TS_IN(call_, k))) return TS_INT32;
    bool fits = false;
    if (dtype == TS_BOOL || dtype == TS_UINT8) fits = keeps_values<uint8_t>();
    if (dtype == TS_INT8) fits = keeps_values<int8_t>();
    if (dtype == TS_INT16) fits = keeps_values<int16_t>();
    if (!fits) return TS_INT32;
    if (dtype == TS_BOOL) drop_tests();
    return dtype;
  }

  static bool join(int32_t& dtype, const ts_tensor* t) {
    if ((t->flags & TS_T_SCALAR) != 0 || t->dtype == TS_BOOL) return true;
    if (dtype != TS_BOOL && dtype != t->dtype) return false;
    dtype = t->dtype;
    return true;
  }

  // Whether the low bits of every register, as wide as T, decide on the outputs.
  template <typename T> bool keeps_values() {
    const ts_program& p = *program_;
    const auto holds = [](int32_t value) { return value == static_cast<T>(value); };
    for (int k = 0; k < p.n_inputs; ++k) {
      const ts_tensor* t = TS_IN(call_, k);
      exact_[k] = (t->flags & TS_T_SCALAR) == 0 || holds(scalar_value<int32_t>(t));
      truth_[k] = t->dtype == TS_BOOL;
    }
    for (int k = 0; k < p.n_constants; ++k) {
      exact_[p.n_inputs + k] = holds(backend::program_constant<int32_t>(&p, k));
      truth_[p.n_inputs + k] = false;
    }
    for (int i = 0; i < p.n_instructions; ++i) {
      const ts_instruction& in = p.instructions[i];
      const int reg = first_ + i, count = in.op < TS_NUM_INSTRUCTIONS ? arity(in.op) : 0;
      if (count == 0 || in.a >= reg || (count > 1 && in.b >= reg) || (count > 2 && in.c >= reg)) return false;
      const bool a = exact_[in.a], b = count > 1 ? exact_[in.b] : true, c = count > 2 ? exact_[in.c] : true;
      truth_[reg] = in.op == TS_I_NOT || (in.op >= TS_I_EQ && in.op <= TS_I_GE) ||
                    (in.op == TS_I_MUL && truth_[in.a] && truth_[in.b]);
      switch (in.op) {
      case TS_I_MUL: exact_[reg] = truth_[reg]; break;
      case TS_I_ADD:
      case TS_I_SUB:
      case TS_I_NEG:
      case TS_I_BITNOT:
      case TS_I_FMA: exact_[reg] = false; break;
      case TS_I_COPY:
      case TS_I_AND:
      case TS_I_OR:
      case TS_I_XOR: exact_[reg] = a && b; break;
      case TS_I_MAX:
      case TS_I_MIN:
      case TS_I_EQ:
      case TS_I_NE:
      case TS_I_LT:
      case TS_I_LE:
      case TS_I_GT:
      case TS_I_GE:
      case TS_I_NOT:
      case TS_I_SIGN:
        if (!a || !b) return false;
        exact_[reg] = true;
        break;
      case TS_I_ABS: // of the lowest value: that value
        if (!a) return false;
        exact_[reg] = std::is_unsigned_v<T>;
        break;
      case TS_I_SELECT:
        if (!a) return false;
        exact_[reg] = b && c;
        break;
      default: return false;
      }
    }
    for (int k = 0; k < p.n_outputs; ++k)
      if (p.outputs[k] >= first_ + p.n_instructions || (TS_OUT(call_, k)->dtype == TS_BOOL && !exact_[p.outputs[k]]))
        return false;
    return true;
  }

  // `x != 0` of a bool is x.
  void drop_tests() {
    const ts_program& p = *program_;
    std::array<uint16_t, kLongest> now;
    for (int r = 0; r < first_; ++r) now[r] = static_cast<uint16_t>(r);
    int n = 0;
    for (int i = 0; i < p.n_instructions; ++i) {
      const ts_instruction& in = p.instructions[i];
      const bool test = in.op == TS_I_NE && in.a < p.n_inputs && (TS_IN(call_, in.a)->flags & TS_T_SCALAR) == 0 &&
                        in.b >= p.n_inputs && in.b < first_ &&
                        backend::program_constant<int32_t>(&p, in.b - p.n_inputs) == 0;
      if (test) {
        now[first_ + i] = in.a;
        continue;
      }
      const int count = arity(in.op);
      now[first_ + i] = static_cast<uint16_t>(first_ + n);
      instructions_[n++] = {in.op, now[in.a], count > 1 ? now[in.b] : in.b, count > 2 ? now[in.c] : in.c};
    }
    if (n == 0 || n == p.n_instructions) return;
    for (int k = 0; k < p.n_outputs; ++k) outputs_[k] = now[p.outputs[k]];
    shorter_ = p;
    shorter_.n_instructions = n;
    shorter_.instructions = instructions_.data();
    shorter_.outputs = outputs_.data();
    program_ = &shorter_;
  }

  const ts_call* call_;
  const ts_program* program_;
  int first_ = 0;
  int32_t dtype_;
  std::array<bool, kLongest> exact_, truth_; // of registers: as in int32; 0 or 1
  std::array<ts_instruction, kLongest> instructions_;
  std::array<uint16_t, kLongest> outputs_;
  ts_program shorter_;
};

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_NARROW_H
