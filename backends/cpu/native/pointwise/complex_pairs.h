// Programs over both parts of complex numbers that lie one after another, without taking the parts apart: sums,
// differences and multiples by real numbers, which are those of twice as many real ones, and products.
#ifndef TESSERACK_CPU_COMPLEX_PAIRS_H
#define TESSERACK_CPU_COMPLEX_PAIRS_H

#include "program.h"
#include "reduce/fold.h"

#include <array>
#include <cstring>

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

// The operands of a call as pairs of parts.
template <typename T> class ComplexPairs {
public:
  static constexpr int kLongest = 8, kMostRegisters = 24; // instructions; registers of both halves

  explicit ComplexPairs(const ts_call* call)
      : call_(call), program_(*call->program), first_(program_.n_inputs + program_.n_constants) {
    const bool short_enough = program_.n_instructions <= kLongest && first_ + program_.n_instructions <= kMostRegisters;
    fits_ = call->n_outputs == 2 && program_.n_outputs == 2 && program_.n_inputs == call->n_inputs && short_enough &&
            are_parts(TS_OUT(call, 0), TS_OUT(call, 1)) && well_formed();
  }

  // Whether the imaginary part is computed as the real one: then the call and the program of all elements alike.
  bool are_alike() {
    if (!fits_ || !same(program_.outputs[0], program_.outputs[1])) return false;
    take_half();
    return true;
  }
  const ts_call* call() const { return &half_call_; }
  const ts_program* program() const { return &half_; }

  // re = a.re b.re - a.im b.im, im = a.re b.im + a.im b.re. NULL: it is another program.
  struct Factors {
    const ts_tensor *a, *b;
  };
  Factors factors() const {
    const ts_instruction *re = fits_ ? at(program_.outputs[0], TS_I_SUB) : nullptr,
                         *im = fits_ ? at(program_.outputs[1], TS_I_ADD) : nullptr;
    if (re == nullptr || im == nullptr) return {};
    const ts_instruction* products[4] = {at(re->a, TS_I_MUL), at(re->b, TS_I_MUL), at(im->a, TS_I_MUL),
                                         at(im->b, TS_I_MUL)};
    for (const ts_instruction* p : products)
      if (p == nullptr || p->a >= program_.n_inputs || p->b >= program_.n_inputs) return {};
    const int a_re = products[0]->a, b_re = products[0]->b, a_im = products[1]->a, b_im = products[1]->b;
    const auto is = [](const ts_instruction* p, int x, int y) {
      return (p->a == x && p->b == y) || (p->a == y && p->b == x);
    };
    const bool crosswise = is(products[2], a_re, b_im) && is(products[3], a_im, b_re);
    if (!(crosswise || (is(products[2], a_im, b_re) && is(products[3], a_re, b_im)))) return {};
    if (!are_parts(a_re, a_im) || !are_parts(b_re, b_im)) return {};
    return {TS_IN(call_, a_re), TS_IN(call_, b_re)};
  }

private:
  const ts_call* call_;
  const ts_program& program_;
  int first_; // register of the first instruction
  bool fits_;
  ts_call half_call_;
  ts_program half_;
  ts_tensor out_;
  std::array<ts_tensor, kMostRegisters> in_;
  std::array<ts_instruction, kLongest> instructions_;
  uint16_t output_;
  int64_t numel_, step_ = 1;

  // Of numbers one after another, in T.
  static bool are_parts(const ts_tensor* re, const ts_tensor* im) {
    const auto is_part = [](const ts_tensor* t) {
      return (t->flags & (TS_T_SCALAR | TS_T_NONE)) == 0 && t->dtype == dtype_of<T>() && t->ndim == 1 &&
             t->strides[0] == 2;
    };
    return is_part(re) && is_part(im) && re->handle == im->handle && re->numel == im->numel &&
           im->byte_offset == re->byte_offset + static_cast<int64_t>(sizeof(T));
  }
  bool are_parts(int re, int im) const {
    return are_parts(TS_IN(call_, re), TS_IN(call_, im)) && TS_IN(call_, re)->numel == TS_OUT(call_, 0)->numel;
  }

  bool well_formed() const {
    for (int i = 0; i < program_.n_instructions; ++i) {
      const ts_instruction& in = program_.instructions[i];
      if (in.op >= TS_NUM_INSTRUCTIONS) return false;
      const int count = arity(in.op), end = first_ + i;
      if (in.a >= end || (count > 1 && in.b >= end) || (count > 2 && in.c >= end)) return false;
    }
    return program_.outputs[0] < first_ + program_.n_instructions &&
           program_.outputs[1] < first_ + program_.n_instructions;
  }
  // The instruction of a register, if it is of that kind.
  const ts_instruction* at(int reg, int op) const {
    const ts_instruction* in = reg >= first_ ? &program_.instructions[reg - first_] : nullptr;
    return in != nullptr && in->op == op ? in : nullptr;
  }

  // Whether a register of the imaginary part is to it what the other is to the real part.
  bool same(int re, int im) const {
    const int inputs = program_.n_inputs;
    if (re < inputs || im < inputs)
      return re < inputs && im < inputs &&
             (re == im ? (TS_IN(call_, re)->flags & TS_T_SCALAR) != 0 : are_parts(re, im));
    if (re < first_ || im < first_)
      return re < first_ && im < first_ &&
             std::memcmp(&program_.constants[re - inputs], &program_.constants[im - inputs], sizeof(double)) == 0;
    const ts_instruction &a = program_.instructions[re - first_], &b = program_.instructions[im - first_];
    const int count = arity(a.op);
    return a.op == b.op && same(a.a, b.a) && (count < 2 || same(a.b, b.b)) && (count < 3 || same(a.c, b.c));
  }

  ts_tensor doubled(const ts_tensor* part) {
    ts_tensor t = *part;
    if ((t.flags & TS_T_SCALAR) != 0) return t;
    t.numel = numel_;
    t.sizes = &numel_;
    t.strides = &step_;
    t.flags |= TS_T_CONTIGUOUS;
    return t;
  }

  // What the real part is made of, and no more.
  void take_half() {
    bool read[kMostRegisters] = {};
    read[program_.outputs[0]] = true;
    for (int i = program_.n_instructions - 1; i >= 0; --i) {
      if (!read[first_ + i]) continue;
      const ts_instruction& in = program_.instructions[i];
      const int count = arity(in.op);
      read[in.a] = true;
      if (count > 1) read[in.b] = true;
      if (count > 2) read[in.c] = true;
    }
    numel_ = 2 * TS_OUT(call_, 0)->numel;
    uint16_t now[kMostRegisters] = {};
    int n_inputs = 0, n = 0;
    for (int k = 0; k < program_.n_inputs; ++k)
      if (read[k]) {
        now[k] = static_cast<uint16_t>(n_inputs);
        in_[static_cast<size_t>(n_inputs++)] = doubled(TS_IN(call_, k));
      }
    for (int k = program_.n_inputs; k < first_; ++k) now[k] = static_cast<uint16_t>(n_inputs + k - program_.n_inputs);
    const int start = n_inputs + program_.n_constants;
    for (int i = 0; i < program_.n_instructions; ++i) {
      if (!read[first_ + i]) continue;
      const ts_instruction& in = program_.instructions[i];
      const int count = arity(in.op);
      now[first_ + i] = static_cast<uint16_t>(start + n);
      instructions_[static_cast<size_t>(n++)] = {in.op, now[in.a], count > 1 ? now[in.b] : in.b,
                                                 count > 2 ? now[in.c] : in.c};
    }
    output_ = now[program_.outputs[0]];
    half_ = program_;
    half_.n_inputs = n_inputs;
    half_.n_instructions = n;
    half_.n_outputs = 1;
    half_.instructions = instructions_.data();
    half_.outputs = &output_;
    out_ = doubled(TS_OUT(call_, 0));
    half_call_ = *call_; // with the whole program, by which passes are known
    half_call_.n_outputs = 1;
    half_call_.n_inputs = n_inputs;
    half_call_.tensor_size = sizeof(ts_tensor);
    half_call_.outputs = &out_;
    half_call_.inputs = in_.data();
  }
};

// out = a b, each product and sum rounded; n numbers. An output may be one of the factors.
template <typename T> void multiply_pairs(T* out, const T* a, const T* b, int64_t n) {
  using Int = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
  using Mask = Vector<Int>;
  constexpr int lanes = kLanes<T>;
  Mask even{}, odd{}, other{}, minus{};
  for (int i = 0; i < lanes; ++i) {
    even[i] = i & ~1;
    odd[i] = i | 1;
    other[i] = i ^ 1;
    minus[i] = i % 2 == 0 ? std::numeric_limits<Int>::min() : 0;
  }
  const auto multiply = [&](T* to, const T* from, const T* by) {
    const Vector<T> x = load_vector(from), y = load_vector(by);
    const Vector<T> by_re = __builtin_shuffle(x, even) * y,
                    by_im = __builtin_shuffle(x, odd) * __builtin_shuffle(y, other);
    const Vector<T> sum = by_re + reinterpret_cast<Vector<T>>(reinterpret_cast<Mask>(by_im) ^ minus);
    std::memcpy(to, &sum, sizeof sum);
  };
  int64_t i = 0;
  for (; i + lanes / 2 <= n; i += lanes / 2) multiply(out + 2 * i, a + 2 * i, b + 2 * i);
  if (i == n) return;
  // Not number by number: of that GCC 12 makes fused additions, whatever it is told.
  T rest[3][lanes] = {};
  const size_t left = static_cast<size_t>(n - i) * 2 * sizeof(T);
  std::memcpy(rest[0], a + 2 * i, left);
  std::memcpy(rest[1], b + 2 * i, left);
  multiply(rest[2], rest[0], rest[1]);
  std::memcpy(out + 2 * i, rest[2], left);
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_COMPLEX_PAIRS_H
