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

  // re = a.re b.re - a.im b.im, im = a.re b.im + a.im b.re. `a` NULL: it is another program. `b` is NULL where it is
  // the number `by`, and `b_is_real` where its imaginary part is that of a real operand: b != b, one for NaN.
  struct Factors {
    const ts_tensor *a, *b;
    T by[2];
    bool b_is_real;
  };
  Factors factors() const {
    const ts_instruction *re = fits_ ? at(program_.outputs[0], TS_I_SUB) : nullptr,
                         *im = fits_ ? at(program_.outputs[1], TS_I_ADD) : nullptr;
    if (re == nullptr || im == nullptr) return {};
    const ts_instruction* products[4] = {at(re->a, TS_I_MUL), at(re->b, TS_I_MUL), at(im->a, TS_I_MUL),
                                         at(im->b, TS_I_MUL)};
    for (const ts_instruction* p : products)
      if (p == nullptr) return {};
    // Of a product of real parts, either may be the first factor's; that of imaginary parts comes in the same order.
    const Factors found = factors(products, products[0]->a, products[0]->b, products[1]->a, products[1]->b);
    return found.a ? found : factors(products, products[0]->b, products[0]->a, products[1]->b, products[1]->a);
  }

  // re = a.re, im = -a.im: `a`, or NULL.
  const ts_tensor* conjugated() const {
    const ts_instruction *re = fits_ ? at(program_.outputs[0], TS_I_COPY) : nullptr,
                         *im = fits_ ? at(program_.outputs[1], TS_I_NEG) : nullptr;
    const bool are = re != nullptr && im != nullptr && is_input(re->a) && is_input(im->a) && are_parts(re->a, im->a);
    return are ? TS_IN(call_, re->a) : nullptr;
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

  bool is_input(int reg) const { return reg < program_.n_inputs; }
  bool is_number(int reg) const { return is_input(reg) && (TS_IN(call_, reg)->flags & TS_T_SCALAR) != 0; }
  // Whether a register is what a real operand's imaginary part is.
  bool is_zero_of(int reg, int real) const {
    const ts_instruction* const test = at(reg, TS_I_NE);
    return test != nullptr && test->a == real && test->b == real;
  }

  Factors factors(const ts_instruction* const (&products)[4], int a_re, int b_re, int a_im, int b_im) const {
    const auto is = [](const ts_instruction* p, int x, int y) {
      return (p->a == x && p->b == y) || (p->a == y && p->b == x);
    };
    const bool crosswise = is(products[2], a_re, b_im) && is(products[3], a_im, b_re);
    if (!(crosswise || (is(products[2], a_im, b_re) && is(products[3], a_re, b_im)))) return {};
    if (!is_input(a_re) || !is_input(a_im) || !are_parts(a_re, a_im) || !is_input(b_re)) return {};
    const ts_tensor *const a = TS_IN(call_, a_re), *const b = TS_IN(call_, b_re);
    const bool real = is_zero_of(b_im, b_re);
    if (is_number(b_re)) {
      if (!real && !is_number(b_im)) return {};
      const T value = scalar_value<T>(b);
      return {a, nullptr, {value, real ? T(value != value) : scalar_value<T>(TS_IN(call_, b_im))}, false};
    }
    if (real)
      return b->dtype == dtype_of<T>() && is_row(b) && b->numel == a->numel ? Factors{a, b, {}, true} : Factors{};
    return is_input(b_im) && are_parts(b_re, b_im) ? Factors{a, b, {}, false} : Factors{};
  }
  static bool is_row(const ts_tensor* t) {
    return (t->flags & (TS_T_SCALAR | TS_T_NONE)) == 0 && t->ndim == 1 && t->strides[0] == 1;
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

// The second factors of a product, a vector of pairs at a time; `left` numbers at `i`, with zeros behind them.
template <typename T> struct PairsOf {
  const T* from;
  Vector<T> at(int64_t i) const { return load_vector(from + 2 * i); }
  Vector<T> at_end(int64_t i, int64_t left) const {
    Vector<T> last{};
    std::memcpy(&last, from + 2 * i, static_cast<size_t>(left) * 2 * sizeof(T));
    return last;
  }
};
template <typename T> struct OneNumber {
  Vector<T> pairs;
  OneNumber(T re, T im) {
    for (int i = 0; i < kLanes<T>; ++i) pairs[i] = i % 2 == 0 ? re : im;
  }
  Vector<T> at(int64_t) const { return pairs; }
  Vector<T> at_end(int64_t, int64_t) const { return pairs; }
};
template <typename T> struct RealNumbers {
  const T* from;
  Vector<T> at(int64_t i) const { return at_end(i, kHalf); }
  Vector<T> at_end(int64_t i, int64_t left) const {
    Half x{};
    left == kHalf ? std::memcpy(&x, from + i, sizeof x)
                  : std::memcpy(&x, from + i, static_cast<size_t>(left) * sizeof(T));
    return pairs(x);
  }

private:
  // A register of half the size: in the lower half of a whole one GCC 12 puts it by way of memory.
  static constexpr int kHalf = kLanes<T> / 2;
  typedef T Half __attribute__((vector_size(kVectorBytes / 2)));

  // Each with its x != x behind it.
  static Vector<T> pairs(Half x) {
    using Bits = decltype(x != x);
    const Half one = T(1) - Half{}, zero = reinterpret_cast<Half>((x != x) & reinterpret_cast<Bits>(one));
    return [&]<int... K>(std::integer_sequence<int, K...>) {
      return __builtin_shufflevector(x, zero, (K / 2 + K % 2 * kHalf)...);
    }
    (std::make_integer_sequence<int, kLanes<T>>());
  }
};

// out = a b, each product and sum rounded; n numbers. An output may be one of the factors.
template <typename T, class By> void multiply_pairs(T* out, const T* a, const By& b, int64_t n) {
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
  const auto multiply = [&](Vector<T> x, Vector<T> y) -> Vector<T> {
    const Vector<T> by_re = __builtin_shuffle(x, even) * y,
                    by_im = __builtin_shuffle(x, odd) * __builtin_shuffle(y, other);
    return by_re + reinterpret_cast<Vector<T>>(reinterpret_cast<Mask>(by_im) ^ minus);
  };
  int64_t i = 0;
  for (; i + lanes / 2 <= n; i += lanes / 2) {
    const Vector<T> product = multiply(load_vector(a + 2 * i), b.at(i));
    std::memcpy(out + 2 * i, &product, sizeof product);
  }
  if (i == n) return;
  // Not number by number: of that GCC 12 makes fused additions, whatever it is told.
  const Vector<T> product = multiply(PairsOf<T>{a}.at_end(i, n - i), b.at_end(i, n - i));
  std::memcpy(out + 2 * i, &product, static_cast<size_t>(n - i) * 2 * sizeof(T));
}

template <typename T> void conjugate_pairs(T* out, const T* a, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[2 * i] = a[2 * i], out[2 * i + 1] = -a[2 * i + 1];
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu

#endif // TESSERACK_CPU_COMPLEX_PAIRS_H
