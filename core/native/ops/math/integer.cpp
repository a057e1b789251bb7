// Integers: common divisors and multiples, exponents of two, flat positions as coordinates.
#include "dispatch/launch.h"
#include "dispatch/op_handles.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/promotion.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kIntegerCode = "broadcasts its operands and fetches numbers from the host";

void check_integers(const Tensor& a, const Tensor& b, const char* op) {
  const Tensor both[] = {a, b}; // a bool beside an integer counts as one
  TS_CHECK_KIND(ErrorKind::NotImplemented, is_integral(result_type(TensorList(both)), false), op,
                ": expected integer operands, got ", a.dtype(), " and ", b.dtype());
}

const KernelId kGcd("gcd");
const Op gcd_op("gcd");

Tensor gcd_rule(const Tensor& self, const Tensor& other) {
  check_integers(self, other, "gcd");
  const Tensor both[] = {self, other};
  DType dtype = result_type(TensorList(both));
  Dims sizes = broadcast_sizes(self.sizes(), other.sizes(), "gcd");
  for (const Tensor& t : both)
    if (same(t.sizes(), sizes) && !t->has(TensorImpl::kNumber)) return outline_like(t, dtype);
  return outline(sizes, dtype, self->has(TensorImpl::kNumber) ? other.device() : self.device());
}

// Euclid's algorithm on all elements at once; a division by zero leaves the other number.
Tensor divide_in_turn(Tensor a, Tensor b) {
  static const Op remainder("remainder");
  for (Tensor rest = ops::ne(b, 0); raw_truth(ops::any(rest)); rest = ops::ne(b, 0)) {
    Tensor next = remainder(a, ops::where(rest, b, ops::ones_like(b)));
    a = ops::where(rest, b, a);
    b = ops::where(rest, next, b);
  }
  return a;
}

void gcd(const Tensor& out, const Tensor& self, const Tensor& other) {
  auto prepared = [&](const Tensor& t) {
    return raw_contiguous(raw_expand(raw_cast(transfer(t, out.device()), out.dtype()), out.sizes(), "gcd"));
  };
  Tensor a = prepared(self), b = prepared(other);
  Tensor found = out.is_contiguous() ? out : empty_tensor(out.sizes(), out.dtype(), out.device());
  if (!Launch(kGcd, out.device()).out(found).in(a).in(b).run()) found = divide_in_turn(ops::abs(a), ops::abs(b));
  if (!found.is(out)) raw_copy(out, found);
}

Tensor lcm(const Tensor& self, const Tensor& other) {
  check_integers(self, other, "lcm");
  static const Op floor_divide("floor_divide");
  Tensor divisor = ops::clamp(gcd_op(self, other), Scalar(1));
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
  Tensor wide = ops::to_dtype(indices, DType::Int64); // sizes may not fit the dtype of the indices
  std::vector<Tensor> out;
  for (size_t d = 0; d < shape.size(); ++d)
    out.push_back(remainder(floor_divide(wide, std::max<int64_t>(strides[d], 1)), std::max<int64_t>(shape[d], 1)));
  return out;
}

} // namespace

TS_OPERATORS(integer) {
  def("gcd(Tensor self, Tensor other) -> Tensor")
      .facts("kernel:gcd")
      .facts("elementwise")
      .rule<gcd_rule>()
      .computation<gcd>(kIntegerCode)
      .reads_host()
      .not_differentiable()
      .inplace()
      .out()
      .doc("Greatest common divisors of integers, elementwise; the other number where one is 0.");
  def("lcm(Tensor self, Tensor other) -> Tensor")
      .facts("elementwise leaf:inplace")
      .body<lcm>()
      .reads_host()
      .not_differentiable()
      .inplace()
      .out()
      .doc("Least common multiples of integers, elementwise.");
  def("unravel_index(Tensor indices, int[1] shape) -> Tensor[]")
      .body<unravel_index>()
      .not_differentiable()
      .function_only()
      .doc("Positions in a flattened tensor as one tensor of coordinates for each dim of `shape`.");
  def("ldexp(Tensor self, Tensor other) -> Tensor")
      .facts("elementwise leaf:inplace")
      .body<ldexp>()
      .inplace()
      .out()
      .doc("self * 2^other, elementwise.");
}

} // namespace ts
