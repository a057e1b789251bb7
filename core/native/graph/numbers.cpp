// Arithmetic on sizes and on what is made of them, as Python's ints and floats do it.
#include "extend/pending_bits.h"
#include "graph/graph.h"
#include "ops/common/check.h"
#include "runtime/backend.h"
#include <cmath>

namespace ts::graph {
namespace {

int64_t floor_div(int64_t a, int64_t b) {
  TS_CHECK_VALUE(b != 0 && !(b == -1 && a == INT64_MIN), "size.div: integer division of ", a, " by ", b);
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}

int64_t power(int64_t a, int64_t b) {
  int64_t out = 1, base = a;
  bool wrong = false;
  for (int64_t left = b; left; left >>= 1) {
    if (left & 1) wrong |= __builtin_mul_overflow(out, base, &out);
    if (left > 1 && __builtin_mul_overflow(base, base, &base)) wrong = true;
  }
  TS_CHECK_VALUE(!wrong, "size.pow: ", a, " to the power of ", b, " does not fit in 64 bits");
  return out;
}

int64_t of_whole(SizeOp op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool wrong = false;
  switch (op) {
  case SizeOp::Add: wrong = __builtin_add_overflow(a, b, &out); break;
  case SizeOp::Sub: wrong = __builtin_sub_overflow(a, b, &out); break;
  case SizeOp::Mul: wrong = __builtin_mul_overflow(a, b, &out); break;
  case SizeOp::FloorDiv: return floor_div(a, b);
  case SizeOp::Mod: return a - floor_div(a, b) * b;
  case SizeOp::Neg: wrong = __builtin_sub_overflow(int64_t{0}, a, &out); break;
  case SizeOp::Min: return std::min(a, b);
  case SizeOp::Max: return std::max(a, b);
  case SizeOp::Pow: return power(a, b);
  default: return a; // rounded already
  }
  TS_CHECK_VALUE(!wrong, name_of(op), ": the result of ", a, " and ", b, " does not fit in 64 bits");
  return out;
}

template <class T> bool compare(SizeOp op, T a, T b) {
  switch (op) {
  case SizeOp::Eq: return a == b;
  case SizeOp::Ne: return a != b;
  case SizeOp::Lt: return a < b;
  case SizeOp::Le: return a <= b;
  case SizeOp::Gt: return a > b;
  default: return a >= b;
  }
}

// The remainder has the divisor's sign, and the quotient goes with it.
std::pair<double, double> divided(double a, double b) {
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  double whole = std::floor(quotient);
  return {quotient - whole > 0.5 ? whole + 1 : whole, rest};
}

double of_real(SizeOp op, double a, double b) {
  bool divides = op == SizeOp::TrueDiv || op == SizeOp::FloorDiv || op == SizeOp::Mod;
  TS_CHECK_VALUE(!(divides && b == 0), name_of(op), ": division of ", a, " by zero");
  switch (op) {
  case SizeOp::Add: return a + b;
  case SizeOp::Sub: return a - b;
  case SizeOp::Mul: return a * b;
  case SizeOp::Neg: return -a;
  case SizeOp::Min: return b < a ? b : a;
  case SizeOp::Max: return b > a ? b : a;
  case SizeOp::TrueDiv: return a / b;
  case SizeOp::FloorDiv: return divided(a, b).first;
  case SizeOp::Mod: return divided(a, b).second;
  default:
    TS_CHECK_VALUE(!(a == 0 && b < 0) && !(a < 0 && b != std::floor(b)), "size.pow: ", a, " to the power of ", b,
                   " is no real number");
    return std::pow(a, b);
  }
}

int64_t rounded(SizeOp op, double a) {
  double whole = op == SizeOp::Floor   ? std::floor(a)
                 : op == SizeOp::Ceil  ? std::ceil(a)
                 : op == SizeOp::Trunc ? std::trunc(a)
                                       : std::nearbyint(a); // halves go to even numbers
  TS_CHECK_VALUE(whole >= -0x1p63 && whole < 0x1p63, name_of(op), ": ", a, " does not fit in 64 bits");
  return static_cast<int64_t>(whole);
}

} // namespace

Item compute(SizeOp op, const Item& a, const Item& b) {
  bool whole = a.tag == Tag::Int && (arity(op) == 1 || b.tag == Tag::Int);
  if (is_guard(op)) return Item::integer(whole ? compare(op, a.i, b.i) : compare(op, a.as_double(), b.as_double()));
  TS_CHECK_VALUE(op >= SizeOp::Add, "graph: ", name_of(op), " is no arithmetic");
  if (is_rounding(op) && !whole) return Item::integer(rounded(op, a.f));
  if (op == SizeOp::TrueDiv || (op == SizeOp::Pow && whole && b.i < 0)) whole = false;
  return whole ? Item::integer(of_whole(op, a.i, b.i)) : Item::real(of_real(op, a.as_double(), b.as_double()));
}

Item read_number(const Tensor& t) {
  TS_CHECK(t.numel() == 1 && !is_complex(t.dtype()) && t.dtype() != DType::Bool,
           "size.read: expected a tensor of one number, got one of shape ", t.sizes(), " and dtype ", t.dtype());
  TS_CHECK(!t.device().is_meta(), "size.read: meta tensors have no data");
  alignas(16) char bytes[16];
  copy_bytes_to_host(bytes, materialized(t), static_cast<size_t>(t.item_size()));
  const Scalar number = read_scalar(bytes, t.dtype());
  return is_integral(t.dtype(), false) ? Item::integer(number.i) : Item::real(number.real());
}

} // namespace ts::graph
