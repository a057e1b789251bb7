// Integers: common divisors and multiples, exponents of two, flat positions as coordinates.
#include "dispatch/launch.h"
#include "ops/api.h"
#include "ops/declare.h"
#include "ops/raw.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

void check_integers(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_integral(a.dtype(), false) && is_integral(b.dtype(), false), op,
                ": expected integer operands, got ", a.dtype(), " and ", b.dtype());
}

const KernelId kGcd("gcd");

// By a kernel, of operands alike; undefined where there is none.
Tensor gcd_kernel(const Tensor& a, const Tensor& b) {
  if (!is_plain(a, b) || a.dtype() != b.dtype() || !same(a.sizes(), b.sizes()) || a.device() != b.device() ||
      a.numel() == 0)
    return {};
  Tensor out = empty_tensor(a.sizes(), a.dtype(), a.device());
  return Launch(kGcd, a.device()).out(out).in(raw_contiguous(a)).in(raw_contiguous(b)).run() ? out : Tensor();
}

// Euclid's algorithm on all elements at once; a division by zero leaves the other number.
Tensor gcd(const Tensor& self, const Tensor& other) {
  check_integers(self, other, "gcd");
  static const Op remainder("remainder");
  if (self.is_contiguous() && other.is_contiguous())
    if (Tensor out = gcd_kernel(self, other); out.defined()) return out;
  Tensor zero = ops::mul(ops::mul(self, other), Scalar(0)); // of the result's shape and dtype
  Tensor a = ops::abs(ops::add(self, zero)), b = ops::abs(ops::add(other, zero));
  if (a.device().is_meta()) return a;
  if (Tensor found = gcd_kernel(a, b); found.defined()) {
    if (a.is_contiguous()) return found;
    Tensor out = empty_like_tensor(a, a.dtype());
    raw_copy(out, found);
    return out;
  }
  for (Tensor rest = ops::ne(b, 0); raw_truth(ops::any(rest)); rest = ops::ne(b, 0)) {
    Tensor next = remainder(a, ops::where(rest, b, ops::ones_like(b)));
    a = ops::where(rest, b, a);
    b = ops::where(rest, next, b);
  }
  return a;
}

Tensor lcm(const Tensor& self, const Tensor& other) {
  check_integers(self, other, "lcm");
  static const Op floor_divide("floor_divide");
  Tensor divisor = ops::clamp(gcd(self, other), Scalar(1));
  return ops::abs(ops::mul(floor_divide(self, divisor), other));
}

Tensor ldexp(const Tensor& self, const Tensor& other) {
  bool whole = is_floating(self.dtype()) && is_integral(other.dtype(), true);
  return ops::mul(self, ops::pow(2.0, whole ? ops::to_dtype(other, self.dtype()) : other));
}

// Coordinates of flat positions in row-major order.
std::vector<Tensor> unravel_index(const Tensor& indices, IntSpan shape) {
  TS_CHECK_TYPE(is_integral(indices.dtype(), false), "unravel_index: expected 'indices' to be integer dtype, but got ",
                indices.dtype());
  static const Op floor_divide("floor_divide"), remainder("remainder");
  for (int64_t size : shape)
    TS_CHECK_VALUE(size >= 0, "unravel_index: 'shape' cannot have negative values, but got ", shape);
  checked_numel(shape);
  Dims strides = contiguous_strides(shape);
  std::vector<Tensor> out;
  for (size_t d = 0; d < shape.size(); ++d)
    out.push_back(remainder(floor_divide(indices, std::max<int64_t>(strides[d], 1)), std::max<int64_t>(shape[d], 1)));
  return out;
}

} // namespace

TS_OPERATORS(integer) {
  def("gcd(Tensor self, Tensor other) -> Tensor")
      .body<gcd>()
      .not_differentiable()
      .inplace()
      .out()
      .doc("Greatest common divisors of integers, elementwise; the other number where one is 0.");
  def("lcm(Tensor self, Tensor other) -> Tensor")
      .body<lcm>()
      .not_differentiable()
      .inplace()
      .out()
      .doc("Least common multiples of integers, elementwise.");
  def("unravel_index(Tensor indices, int[1] shape) -> Tensor[]")
      .body<unravel_index>()
      .not_differentiable()
      .function_only()
      .doc("Positions in a flattened tensor as one tensor of coordinates for each dim of `shape`.");
  def("ldexp(Tensor self, Tensor other) -> Tensor").body<ldexp>().inplace().out().doc("self * 2^other, elementwise.");
}

} // namespace ts
