// Complex numbers: their parts as views, conjugates, magnitude and angle, and how they are made.
#include "dispatch/op_handles.h"
#include "extend/pending_bits.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/promotion.h"
#include "ops/common/raw.h"
#include "ops/math/pointwise_table.h"
#include "runtime/empty.h"
#include "tensor/geometry.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kComplexCode = "reads the parts of complex numbers as real ones";

Tensor view_as_real(const Tensor& self) {
  TS_CHECK(is_complex(self.dtype()), "view_as_real: only supported for complex tensors, got ", self.dtype());
  TS_CHECK(!self.is_conj(),
           "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor "
           "so you can view it as real, use self.resolve_conj(); however, be warned that the resulting "
           "tensor will NOT alias the original.");
  Dims sizes(self.sizes()), strides(self.strides());
  for (int64_t& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  Tensor out = make_view(self, sizes, strides, self->byte_offset);
  out->set_dtype(real_type(self.dtype()));
  return out;
}

Tensor view_as_complex(const Tensor& self) {
  DType t = self.dtype();
  TS_CHECK(t == DType::Float16 || t == DType::Float32 || t == DType::Float64,
           "view_as_complex: only supported for half, float and double tensors, but got a tensor of dtype ", t);
  TS_CHECK(self.ndim() > 0, "view_as_complex: Input tensor must have one or more dimensions");
  TS_CHECK(self.sizes().back() == 2, "view_as_complex: Tensor must have a last dimension of size 2, got ",
           self.sizes().back());
  TS_CHECK(self.strides().back() == 1, "view_as_complex: Tensor must have a last dimension with stride 1, got ",
           self.strides().back());
  Dims sizes(self.sizes()), strides(self.strides());
  sizes.pop_back();
  strides.pop_back();
  for (int64_t& s : strides) {
    TS_CHECK(s % 2 == 0, "view_as_complex: Tensor must have a stride divisible by 2 for all but last dimension");
    s /= 2;
  }
  TS_CHECK(self.storage_offset() % 2 == 0, "view_as_complex: Tensor must have a storage_offset divisible by 2");
  Tensor out = make_view(self, sizes, strides, self->byte_offset);
  out->set_dtype(complex_type(t));
  return out;
}

const Op conjugate_view("_conj"), negative_view("_neg_view");

// The same memory with one bit turned over: two conjugations are none.
Tensor turned(const Tensor& self, int key) {
  Tensor out = make_view(self, self.sizes(), self.strides(), self->byte_offset);
  out->keys ^= key_bit(key);
  return out;
}
Tensor conj_view(const Tensor& self) {
  TS_CHECK(is_complex(self.dtype()), "_conj: expected a complex tensor, got ", self.dtype());
  return turned(self, key::Conjugate);
}
Tensor neg_view(const Tensor& self) {
  TS_CHECK(!is_bool(self.dtype()), "_neg_view: expected numbers, got ", self.dtype());
  return turned(self, key::Negative);
}

// The real numbers behind complex ones whose conjugation is not pending, or no longer.
Tensor parts_of(const Tensor& self) { return ops::view_as_real(self.is_conj() ? conjugate_view(self) : self); }

Tensor real(const Tensor& self) {
  return is_complex(self.dtype()) ? ops::select(parts_of(self), int64_t{-1}, int64_t{0}) : self;
}
Tensor imag(const Tensor& self) {
  TS_CHECK(is_complex(self.dtype()), "imag: is not implemented for tensors with non-complex dtypes, got ",
           self.dtype());
  Tensor parts = parts_of(self);
  return ops::select(self.is_conj() ? negative_view(parts) : parts, int64_t{-1}, int64_t{1});
}

Tensor conj(const Tensor& self) { return is_complex(self.dtype()) ? conjugate_view(self) : self; }
bool is_conj(const Tensor& self) { return self.is_conj(); }
bool is_neg(const Tensor& self) { return self.is_neg(); }
Tensor resolve_conj(const Tensor& self) { return self.is_conj() ? ops::clone(self) : self; }
Tensor resolve_neg(const Tensor& self) { return self.is_neg() ? ops::clone(self) : self; }

Tensor adjoint(const Tensor& self) {
  if (self.ndim() == 0) return ops::conj(self); // as PyTorch has it
  TS_CHECK(self.ndim() >= 2, "adjoint: only supported on matrices or batches of matrices, got a ", self.ndim(),
           "-D tensor");
  return ops::conj(ops::transpose(self, int64_t{-2}, int64_t{-1}));
}
Tensor matrix_H(const Tensor& self) {
  TS_CHECK(self.ndim() == 2 || self.ndim() == 0, "tensor.H is only supported on matrices (2-D tensors). Got ",
           self.ndim(), "-D tensor.", self.ndim() > 2 ? " For batches of matrices, consider using tensor.mH" : "");
  return ops::conj(self.ndim() == 0 ? self : ops::transpose(self, int64_t{0}, int64_t{1}));
}

Tensor isreal(const Tensor& self) {
  return is_complex(self.dtype()) ? ops::eq(imag(self), int64_t{0}) : ops::ones_like(self, DType::Bool);
}

Tensor abs_complex_rule(const Tensor& self) {
  TS_CHECK(is_complex(self.dtype()), "_abs_complex: expected complex numbers, got ", self.dtype());
  return outline_like(self, real_type(self.dtype()));
}
void abs_complex(const Tensor& out, const Tensor& self) {
  static const Op hypot_into("hypot.out");
  hypot_into(real(self), imag(self), out);
}

Tensor sgn_complex(const Tensor& self) {
  static const Op by("_sgn_by");
  return by(self, ops::abs(self));
}

Tensor softsign_complex(const Tensor& self) { return ops::div(self, ops::add(ops::abs(self), 1)); }

// log(exp(a) + exp(b)), by the operand of the larger real part; where that is infinite, by both of them.
Tensor logaddexp_complex(const Tensor& a, const Tensor& b) {
  static const Op log1p("log1p");
  const Tensor both_given[] = {a, b};
  DType dtype = result_type(TensorList(both_given));
  Tensor x = ops::to_dtype(a, dtype), y = ops::to_dtype(b, dtype);
  Tensor x_real = real(x), y_real = real(y);
  Tensor smaller = ops::logical_or(ops::lt(x_real, y_real), ops::isnan(x_real));
  Tensor low = ops::where(smaller, x, y), high = ops::where(smaller, y, x);
  Tensor top = real(high);
  Tensor alike = ops::logical_and(ops::eq(real(low), top), ops::eq(ops::abs(top), INFINITY));
  Tensor near = ops::where(alike, ops::zeros_like(low), ops::sub(low, high));
  Tensor sum = ops::add(log1p(ops::exp(near)), high);
  if (!raw_truth(ops::any(ops::detach(alike)))) return sum;
  Tensor both = ops::where(ops::lt(top, 0), low, ops::log(ops::add(ops::exp(low), ops::exp(high))));
  return ops::where(alike, both, sum);
}

Tensor angle_complex(const Tensor& self) {
  static const Op of_parts("_angle_of_parts");
  return of_parts(imag(self), real(self));
}

void check_parts(const char* op, const Tensor& a, const Tensor& b) {
  auto suits = [](DType t) { return t == DType::Float16 || t == DType::Float32 || t == DType::Float64; };
  TS_CHECK(suits(a.dtype()) && suits(b.dtype()), op,
           ": Expected both inputs to be float16, float32 or float64 tensors but got ", a.dtype(), " and ", b.dtype());
  TS_CHECK(a.dtype() == b.dtype(), op, ": Expected both inputs to have the same dtype but got ", a.dtype(), " and ",
           b.dtype());
}

Tensor complex(const Tensor& real, const Tensor& imag) {
  check_parts("complex", real, imag);
  Dims sizes = broadcast_sizes(real.sizes(), imag.sizes(), "complex");
  std::vector<Tensor> parts = {ops::expand(real, sizes), ops::expand(imag, sizes)};
  return ops::view_as_complex(ops::stack(parts, int64_t{-1}));
}

Tensor polar(const Tensor& abs, const Tensor& angle) {
  static const Op cos("cos"), sin("sin");
  check_parts("polar", abs, angle);
  TS_CHECK_KIND(ErrorKind::NotImplemented, abs.dtype() != DType::Float16, "polar: not implemented for dtype float16");
  return complex(ops::mul(abs, cos(angle)), ops::mul(abs, sin(angle)));
}

void declare_parts() {
  def("view_as_real(Tensor(a) self) -> Tensor(a)")
      .body<view_as_real>()
      .view()
      .gradient([](GradContext& c) { c.set(0, ops::view_as_complex(ops::contiguous(c.grad()))); })
      .doc("The same memory as real numbers: a complex tensor of shape (...) as a real one of shape (..., 2).");
  def("view_as_complex(Tensor(a) self) -> Tensor(a)")
      .facts("autocast:float32/-")
      .body<view_as_complex>()
      .view()
      .gradient([](GradContext& c) { c.set(0, ops::view_as_real(resolve_conj(c.grad()))); })
      .doc("The same memory as complex numbers: a real tensor of shape (..., 2) as a complex one of shape (...).");
  def("real(Tensor(a) self) -> Tensor(a)")
      .facts("linear")
      .body<real>()
      .function_only()
      .doc("The real part, a view; self itself, of real dtypes.");
  def("imag(Tensor(a) self) -> Tensor(a)")
      .facts("linear")
      .body<imag>()
      .function_only()
      .doc("The imaginary part, a view; of a conjugate, one whose negation is pending. RuntimeError for real dtypes.");
  def("complex(Tensor real, Tensor imag) -> Tensor")
      .facts("leaf")
      .body<complex>()
      .function_only()
      .out(kSameDtype)
      .doc("real + 1j * imag, of two tensors of the same dtype: float16, float32 or float64.");
  def("polar(Tensor abs, Tensor angle) -> Tensor")
      .facts("leaf autocast:float32/-")
      .body<polar>()
      .function_only()
      .out(kSameDtype)
      .doc("abs * exp(1j * angle), of two tensors of the same dtype, float32 or float64.");
}

void declare_conjugates() {
  def("conj(Tensor(a) self) -> Tensor(a)")
      .facts("elementwise linear")
      .body<conj>()
      .doc("The conjugate, a view: nothing is computed before an operator reads the values, and what is written to it "
           "is written to self, conjugated. self itself, of real dtypes.");
  def("_conj(Tensor(a) self) -> Tensor(a)")
      .body<conj_view>()
      .view()
      .gradient([](GradContext& c) { c.set(0, ops::conj(c.grad())); })
      .node_name("ConjBackward0")
      .hidden()
      .doc("conj of complex tensors.");
  def("_neg_view(Tensor(a) self) -> Tensor(a)")
      .body<neg_view>()
      .view()
      .gradient([](GradContext& c) { c.set(0, ops::neg(c.grad())); })
      .doc("The negative, a view: nothing is computed before an operator reads the values.");
  def("conj_physical(Tensor self) -> Tensor")
      .facts("linear stored:complex32")
      .pointwise("self")
      .conjugated(1, false)
      .inplace()
      .out()
      .doc("The conjugate in fresh memory.");
  def("is_conj(Tensor self) -> bool")
      .answer<is_conj>()
      .keeps_bits()
      .doc("Whether a conjugation is pending: the memory holds the conjugates of the values.");
  def("is_neg(Tensor self) -> bool")
      .answer<is_neg>()
      .keeps_bits()
      .doc("Whether a negation is pending: the memory holds the negatives of the values.");
  def("_physical(Tensor(a) self) -> Tensor(a)")
      .body<physical>()
      .untracked_view()
      .not_differentiable()
      .hidden()
      .doc("The same memory as it is, whatever is pending.");
  def("resolve_conj(Tensor(a) self) -> Tensor(a)")
      .facts("linear")
      .body<resolve_conj>()
      .doc("self, or a copy in which a pending conjugation is carried out.");
  def("resolve_neg(Tensor(a) self) -> Tensor(a)")
      .facts("linear")
      .body<resolve_neg>()
      .doc("self, or a copy in which a pending negation is carried out.");
  def("mH(Tensor(a) self) -> Tensor(a)").body<adjoint>().hidden().doc("The conjugate of mT: Tensor.mH.");
  def("matrix_H(Tensor(a) self) -> Tensor(a)")
      .body<matrix_H>()
      .hidden()
      .doc("The conjugate transpose of a matrix: Tensor.H.");
  def("adjoint(Tensor(a) self) -> Tensor(a)")
      .body<adjoint>()
      .doc("The conjugate with the last two dimensions exchanged.");
}

} // namespace

TS_OPERATORS(complex) {
  declare_parts();
  declare_conjugates();
  def("isreal(Tensor self) -> Tensor")
      .facts("elementwise stored")
      .body<isreal>()
      .not_differentiable()
      .doc("True where the imaginary part is 0; everywhere, of real dtypes.");
  def("_abs_complex(Tensor self) -> Tensor")
      .rule<abs_complex_rule>()
      .computation<abs_complex>(kComplexCode)
      .gradient([](GradContext& c) { c.set(0, ops::mul(c.grad(), ops::sgn(c.arg(0)))); })
      .saves("self")
      .node_name("AbsBackward0")
      .hidden()
      .doc("The magnitude of complex numbers.");
  def("_softsign_complex(Tensor self) -> Tensor").body<softsign_complex>().hidden().doc("softsign of complex numbers.");
  def("_logaddexp_complex(Tensor self, Tensor other) -> Tensor")
      .body<logaddexp_complex>()
      .hidden()
      .doc("logaddexp of complex numbers.");
  def("_sgn_complex(Tensor self) -> Tensor").body<sgn_complex>().hidden().doc("sgn of complex numbers.");
  def("_sgn_by(Tensor self, Tensor abs) -> Tensor")
      .pointwise("select(abs == 0, 0, self / abs)")
      .node_name("SgnBackward0")
      .hidden()
      .doc("Complex numbers over their magnitude, 0 at 0.");
  def("angle(Tensor self) -> Tensor")
      .facts("zero")
      .pointwise("select(self != self, self, (self < 0) * 3.1415926535897931)")
      .promote(Promote::Float)
      .complex_form("_angle_complex")
      .out()
      .doc("The angle of each element with the positive real axis, in [-pi, pi]; pi of negative real numbers.");
  def("_angle_complex(Tensor self) -> Tensor").body<angle_complex>().hidden().doc("angle of complex numbers.");
  def("_angle_of_parts(Tensor imag, Tensor real) -> Tensor")
      .pointwise("atan2(imag, real)")
      .derivative("imag", "select(imag * imag + real * real == 0, 0, grad * real / (imag * imag + real * real))")
      .derivative("real", "select(imag * imag + real * real == 0, 0, -grad * imag / (imag * imag + real * real))")
      .node_name("AngleBackward0")
      .hidden()
      .doc("atan2 whose gradient is 0 at 0.");
}

} // namespace ts
