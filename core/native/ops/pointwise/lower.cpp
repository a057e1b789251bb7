// Every instruction beyond the basic ones as an expression. What an expression uses may be lowered in its turn; chains
// end at the basic instructions of abi.h. Values, NaN, infinities and the sign of 0 are those of the instruction.
#include "ops/pointwise/lower.h"
#include "dispatch/launch.h"
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numbers>
#include <unordered_map>

namespace ts::pointwise {
namespace {

using namespace lowering;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2 = std::numbers::ln2, kPi = std::numbers::pi;

Expr negative_if(const Expr& condition, const Expr& a) { return select(condition, neg(a), a); }
Expr otherwise_itself(const Expr& x, const Expr& y) { return select(eq(x, num(0)), x, y); } // +-0 stays as it is

// 2^n for a whole n up to 600 in size, exactly: a product over the bits of n.
Expr small_power_of_two(const Expr& n) {
  Expr rest = abs(n), product = num(1);
  for (int bit = 9; bit >= 0; --bit) {
    double weight = std::ldexp(1.0, bit);
    Expr has = call(TS_I_LE, num(weight), rest);
    rest = select(has, sub(rest, num(weight)), rest);
    // Larger factors than the register holds are never taken: n is within its exponents.
    product = select(has, mul(product, num(std::ldexp(1.0, 1 << bit))), product);
  }
  return select(lt(n, num(0)), div(num(1), product), product);
}

Expr exp2(const Expr& x, bool wide) {
  Expr bounded = call(TS_I_MAX, call(TS_I_MIN, x, num(wide ? 1100 : 200)), num(wide ? -1200 : -200));
  Expr whole = call(TS_I_ROUND, bounded), half = call(TS_I_FLOOR, mul(whole, num(0.5)));
  Expr part = call(TS_I_EXP, mul(sub(bounded, whole), num(kLn2)));
  // By two factors, since 2^n itself may be too large or small where the result is not.
  return mul(mul(part, small_power_of_two(half)), small_power_of_two(sub(whole, half)));
}

// Kahan's: what exp(x) rounds to says which x' it is the exponential of.
Expr expm1(const Expr& x) {
  Expr u = call(TS_I_EXP, x), less = sub(u, num(1));
  Expr near = div(mul(less, x), call(TS_I_LOG, u));
  Expr is_far = call(TS_I_LT, num(0.5), abs(less)); // u = 0 and u = infinity among them
  return select(eq(u, num(1)), x, select(is_far, select(eq(x, x), less, x), near));
}

Expr log1p(const Expr& x) {
  Expr u = add(num(1), x), less = sub(u, num(1));
  Expr direct = call(TS_I_LOG, u), corrected = div(mul(direct, x), less);
  return select(eq(u, num(1)), x, select(lt(num(0.5), abs(less)), add(direct, div(sub(x, less), u)), corrected));
}

// log1p without the term that infinities and 0 make NaN.
Expr log1p_finite(const Expr& x) {
  Expr u = add(num(1), x);
  Expr plain = call(TS_I_LOG, u);
  Expr special = call(TS_I_LE, u, num(0)); // u = 0: -infinity; below: NaN
  return select(special, plain, select(eq(x, num(kInfinity)), x, log1p(x)));
}

Expr sinh(const Expr& x) {
  Expr size = abs(x), less = call(TS_I_EXPM1, size), root = call(TS_I_EXP, mul(size, num(0.5)));
  Expr near = mul(num(0.5), add(less, div(less, add(less, num(1)))));
  Expr far = mul(mul(num(0.5), root), root);
  return otherwise_itself(x, negative_if(lt(x, num(0)), select(lt(size, num(20)), near, far)));
}
Expr cosh(const Expr& x) {
  Expr size = abs(x), e = call(TS_I_EXP, size), root = call(TS_I_EXP, mul(size, num(0.5)));
  return select(lt(size, num(20)), mul(num(0.5), add(e, div(num(1), e))), mul(mul(num(0.5), root), root));
}
Expr tanh(const Expr& x) {
  Expr less = call(TS_I_EXPM1, mul(num(-2), abs(x)));
  return otherwise_itself(x, negative_if(lt(x, num(0)), div(neg(less), add(less, num(2)))));
}
Expr asinh(const Expr& x) {
  Expr size = abs(x), square = mul(size, size);
  Expr near = call(TS_I_LOG1P, add(size, div(square, add(num(1), call(TS_I_SQRT, add(square, num(1)))))));
  Expr far = add(call(TS_I_LOG, size), num(kLn2));
  return otherwise_itself(x, negative_if(lt(x, num(0)), select(lt(size, num(1e9)), near, far)));
}
Expr acosh(const Expr& x) {
  Expr less = sub(x, num(1));
  Expr near = call(TS_I_LOG1P, add(less, call(TS_I_SQRT, mul(less, add(x, num(1))))));
  return select(lt(x, num(1e9)), near, add(call(TS_I_LOG, x), num(kLn2)));
}
Expr atanh(const Expr& x) {
  Expr size = abs(x);
  Expr half = mul(num(0.5), call(TS_I_LOG1P, div(add(size, size), sub(num(1), size))));
  return otherwise_itself(x, negative_if(lt(x, num(0)), half));
}

Expr asin(const Expr& x) { return call(TS_I_ATAN, div(x, call(TS_I_SQRT, mul(sub(num(1), x), add(num(1), x))))); }
Expr acos(const Expr& x) { return mul(num(2), call(TS_I_ATAN, call(TS_I_SQRT, div(sub(num(1), x), add(num(1), x))))); }

Expr has_sign(const Expr& x) { return select(eq(x, num(0)), lt(div(num(1), x), num(0)), lt(x, num(0))); }

Expr copysign(const Expr& a, const Expr& b) {
  Expr size = abs(a);
  return negative_if(has_sign(b), size);
}

Expr atan2(const Expr& y, const Expr& x) {
  Expr sx = has_sign(x), size_y = abs(y), size_x = abs(x);
  Expr both = mul(eq(size_y, num(kInfinity)), eq(size_x, num(kInfinity)));
  Expr zeros = mul(eq(y, num(0)), eq(x, num(0)));
  Expr angle = call(TS_I_ATAN, div(size_y, size_x));
  angle = select(both, num(kPi / 4), select(zeros, num(0), angle)); // between the axis and the point
  angle = select(sx, sub(num(kPi), angle), angle);
  Expr result = negative_if(has_sign(y), angle);
  return select(eq(x, x), select(eq(y, y), result, y), x);
}

Expr hypot(const Expr& a, const Expr& b) {
  Expr x = abs(a), y = abs(b), swap = lt(x, y), large = select(swap, y, x), small = select(swap, x, y);
  Expr ratio = div(small, large);
  Expr length = mul(large, call(TS_I_SQRT, add(num(1), mul(ratio, ratio))));
  length = select(eq(large, num(0)), select(eq(small, small), large, small), length);
  Expr infinite = call(TS_I_MAX, eq(x, num(kInfinity)), eq(y, num(kInfinity)));
  return select(infinite, num(kInfinity), length);
}

Expr round_even(const Expr& x) {
  Expr below = call(TS_I_FLOOR, x), part = sub(x, below), half = mul(below, num(0.5));
  Expr odd = sub(num(1), eq(call(TS_I_FLOOR, half), half)), above = add(below, num(1));
  Expr up = select(lt(num(0.5), part), num(1), select(eq(part, num(0.5)), odd, num(0)));
  Expr whole = select(up, above, below);
  // 0 has the sign of x; infinities and NaN make part NaN.
  return select(eq(part, part), select(eq(whole, num(0)), mul(x, num(0)), whole), x);
}

Expr mod(const Expr& a, const Expr& b) {
  Expr rest = call(TS_I_FMOD, a, b);
  Expr differs = call(TS_I_NE, lt(rest, num(0)), lt(b, num(0)));
  Expr moved = select(differs, add(rest, b), rest);
  return select(eq(rest, num(0)), rest, moved);
}

Expr floordiv(const Expr& a, const Expr& b, bool integer) {
  Expr rest = call(TS_I_FMOD, a, b), differs = call(TS_I_NE, lt(rest, num(0)), lt(b, num(0)));
  Expr down = select(eq(rest, num(0)), num(0), differs);
  if (integer) return sub(call(TS_I_DIV, a, b), down);
  Expr quotient = div(sub(a, rest), b);
  quotient = sub(quotient, down);
  Expr floor = call(TS_I_FLOOR, quotient);
  Expr whole = select(lt(num(0.5), sub(quotient, floor)), add(floor, num(1)), floor);
  whole = select(eq(quotient, num(0)), copysign(num(0), div(a, b)), whole);
  return select(eq(b, num(0)), div(a, b), whole);
}

// x rounded to `digits` binary digits, ties to even, of a register that has `held`: Veltkamp's splitting, whose ties go
// either way, so that they are looked at again with one digit less.
Expr keep_digits(const Expr& x, int digits, int held) {
  auto split = [&](const Expr& v, int kept) {
    Expr scaled = mul(v, num(std::ldexp(1.0, held - kept) + 1));
    return add(scaled, sub(v, scaled));
  };
  Expr near = split(x, digits), other = add(x, sub(x, near));
  return select(eq(split(other, digits - 1), other), other, near);
}

Expr round_to(const Expr& x, int digits, int least_exponent, double overflow, bool wide) {
  int held = wide ? 53 : 24;
  Expr size = abs(x);
  // Of large numbers a part, so that the splitting does not overflow.
  Expr shrink = lt(num(0x1p60), size);
  Expr part = select(shrink, mul(size, num(0x1p-60)), size), kept = keep_digits(part, digits, held);
  kept = select(shrink, mul(kept, num(0x1p60)), kept);
  // Below the smallest normal number digits are counted from a fixed place: adding and taking off a number whose last
  // digit it is rounds there.
  double anchor = std::ldexp(1.5, least_exponent - digits + 1 + held - 1);
  Expr fixed = sub(add(size, num(anchor)), num(anchor));
  Expr rounded = select(lt(size, num(std::ldexp(1.0, least_exponent))), fixed, kept);
  rounded = select(call(TS_I_LE, num(overflow), rounded), num(kInfinity), rounded);
  rounded = select(eq(size, num(kInfinity)), size, select(eq(x, x), rounded, x));
  return otherwise_itself(x, negative_if(has_sign(x), rounded));
}

Expr of_integers(uint16_t op, const Expr& a, const Expr& b, const Expr& c) {
  switch (op) {
  case TS_I_CEIL:
  case TS_I_TRUNC:
  case TS_I_ROUND: return call(TS_I_COPY, a);
  case TS_I_ABS: return select(lt(a, num(0)), neg(a), a);
  case TS_I_NEG: return sub(num(0), a);
  case TS_I_BITNOT: return call(TS_I_XOR, a, num(-1));
  case TS_I_FLOORDIV: return floordiv(a, b, true);
  case TS_I_MOD: return mod(a, b);
  case TS_I_MAX: return select(lt(a, b), b, a);
  case TS_I_MIN: return select(lt(b, a), b, a);
  case TS_I_FMA: return add(mul(a, b), c);
  default: return nullptr;
  }
}

Expr of_reals(uint16_t op, const Expr& a, const Expr& b, const Expr& c, bool wide) {
  switch (op) {
  case TS_I_NEG: return mul(a, num(-1));
  case TS_I_ABS: return select(lt(num(0), a), a, sub(num(0), a));
  case TS_I_RECIP: return div(num(1), a);
  case TS_I_RSQRT: return div(num(1), call(TS_I_SQRT, a));
  case TS_I_EXP2: return exp2(a, wide);
  case TS_I_EXPM1: return expm1(a);
  case TS_I_LOG2: return mul(call(TS_I_LOG, a), num(std::numbers::log2e));
  case TS_I_LOG10: return mul(call(TS_I_LOG, a), num(std::numbers::log10e));
  case TS_I_LOG1P: return log1p_finite(a);
  case TS_I_TAN: return div(call(TS_I_SIN, a), call(TS_I_COS, a));
  case TS_I_ASIN: return asin(a);
  case TS_I_ACOS: return acos(a);
  case TS_I_SINH: return sinh(a);
  case TS_I_COSH: return cosh(a);
  case TS_I_TANH: return tanh(a);
  case TS_I_ASINH: return asinh(a);
  case TS_I_ACOSH: return acosh(a);
  case TS_I_ATANH: return atanh(a);
  case TS_I_ERF: return lowering::erf(a);
  case TS_I_ERFC: return lowering::erfc(a);
  case TS_I_ERFINV: return lowering::erfinv(a);
  case TS_I_LGAMMA: return lowering::lgamma(a);
  case TS_I_DIGAMMA: return lowering::digamma(a);
  case TS_I_SIGMOID: return div(num(1), add(num(1), call(TS_I_EXP, neg(a))));
  case TS_I_CEIL: return neg(call(TS_I_FLOOR, neg(a)));
  case TS_I_TRUNC: return select(lt(a, num(0)), call(TS_I_CEIL, a), call(TS_I_FLOOR, a));
  case TS_I_ROUND: return round_even(a);
  case TS_I_FLOORDIV: return floordiv(a, b, false);
  case TS_I_MOD: return mod(a, b);
  case TS_I_MAX: return select(lt(a, b), b, select(eq(b, b), a, b)); // the first of equals, a NaN before all
  case TS_I_MIN: return select(lt(b, a), b, select(eq(b, b), a, b));
  case TS_I_ATAN2: return atan2(a, b);
  case TS_I_HYPOT: return hypot(a, b);
  case TS_I_COPYSIGN: return copysign(a, b);
  case TS_I_FMA: return add(mul(a, b), c);
  case TS_I_ROUND_FLOAT16: return round_to(a, 11, -14, 65520, wide);
  case TS_I_ROUND_BFLOAT16: return round_to(a, 8, -126, 0x1.ffp127, wide);
  default: return nullptr;
  }
}

} // namespace

Expr lowered(uint16_t op, const Expr& a, const Expr& b, const Expr& c, int32_t compute) {
  switch (op) {
  case TS_I_SIGN: return select(lt(num(0), a), num(1), select(lt(a, num(0)), num(-1), num(0)));
  case TS_I_NOT: return eq(a, num(0));
  case TS_I_NE: return select(eq(a, b), num(0), num(1));
  case TS_I_LE: return select(lt(a, b), num(1), eq(a, b));
  case TS_I_GT: return lt(b, a);
  case TS_I_GE: return select(lt(b, a), num(1), eq(a, b));
  default: break;
  }
  bool real = compute == TS_FLOAT32 || compute == TS_FLOAT64;
  return real ? of_reals(op, a, b, c, compute == TS_FLOAT64) : of_integers(op, a, b, c);
}

namespace {

// A program's instructions with those replaced that the device lacks, and again in what replaces them.
class Lowering {
public:
  Lowering(const ts_program& p, const uint64_t* instructions, int32_t compute)
      : program_(p), instructions_(instructions), compute_(compute) {}

  std::unique_ptr<const Program> run() {
    std::vector<std::string> names;
    for (int32_t k = 0; k < program_.n_inputs; ++k) {
      names.push_back(concat("x", k));
      registers_.push_back(variable(k));
    }
    for (int32_t k = 0; k < program_.n_constants; ++k) registers_.push_back(constant_at(k));
    for (int32_t k = 0; k < program_.n_instructions; ++k) {
      const ts_instruction& i = program_.instructions[k];
      int arity = instruction_arity(i.op);
      registers_.push_back(
          write(i.op, registers_[i.a], arity > 1 ? registers_[i.b] : nullptr, arity > 2 ? registers_[i.c] : nullptr));
    }
    std::vector<Expr> outputs;
    for (int32_t k = 0; k < program_.n_outputs; ++k) outputs.push_back(registers_[program_.outputs[k]]);
    return compile(outputs, names, true);
  }

private:
  bool has(uint16_t op) const { return instructions_[op / 64] >> (op % 64) & 1; }

  Expr constant_at(int32_t k) const {
    double value = program_.constants[k];
    bool real = compute_ == TS_FLOAT32 || compute_ == TS_FLOAT64;
    return real || !program_.integers ? constant(value) : constant(program_.integers[k]);
  }

  Expr write(uint16_t op, const Expr& a, const Expr& b, const Expr& c) {
    if (has(op)) return exactly(op, a, b, c);
    Expr by = lowered(op, a, b, c, compute_);
    TS_CHECK_KIND(ErrorKind::NotImplemented, by, "pointwise: the device lacks the instruction ", instruction_name(op),
                  ", which has no form in others for ", static_cast<DType>(compute_));
    return again(by);
  }

  // What was lowered already, or is an operand, is left alone.
  Expr again(const Expr& e) {
    if (!e || e->kind != ExprNode::Instruction) return e;
    for (const Expr& r : registers_)
      if (r == e) return e;
    if (auto known = done_.find(e.get()); known != done_.end()) return known->second;
    Expr made = write(e->op, again(e->a), again(e->b), again(e->c));
    kept_.push_back(e);
    done_[made.get()] = made;
    return done_[e.get()] = made;
  }

  const ts_program& program_;
  const uint64_t* instructions_;
  int32_t compute_;
  std::vector<Expr> registers_, kept_;
  std::unordered_map<const ExprNode*, Expr> done_;
};

struct Lowered {
  std::mutex mutex;
  std::map<std::vector<uint64_t>, std::unique_ptr<const Program>> programs;
};

// Programs are few and live as long as the process.
const ts_program* lower(const ts_program& p, const uint64_t* instructions, int32_t compute) {
  static auto* all = new Lowered;
  std::vector<uint64_t> key(instructions, instructions + TS_INSTRUCTION_WORDS);
  key.push_back(p.id);
  key.push_back(static_cast<uint64_t>(compute));
  std::lock_guard lock(all->mutex);
  auto it = all->programs.try_emplace(std::move(key)).first;
  if (!it->second) it->second = Lowering(p, instructions, compute).run();
  return &it->second->c;
}

[[maybe_unused]] const bool installed = (lower_program = lower, true);

} // namespace

} // namespace ts::pointwise
