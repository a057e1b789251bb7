// New tensors: empty, full, zeros, ones and their *_like and new_* forms, fill_ and zero_, eye, scalar_tensor.
#include "ops/api.h"
#include "ops/arguments.h"
#include "ops/check.h"
#include "ops/copy.h"
#include "ops/declare.h"

namespace ts {
namespace {

using Format = std::optional<MemoryFormat>;

void check_sizes(IntSpan sizes, const char* op) {
  for (int64_t s : sizes) TS_CHECK(s >= 0, op, ": Trying to create tensor with negative dimension ", s, ": ", sizes);
}

Tensor constant(IntSpan sizes, Scalar value, DType t, Device device, const char* op) {
  check_sizes(sizes, op);
  return filled(sizes, convert_scalar(value, t, op), t, or_default(device));
}

Tensor empty(IntSpan size, DType dtype, Device device, bool, Format format) {
  check_sizes(size, "empty");
  MemoryFormat f = format.value_or(MemoryFormat::Contiguous);
  if (f == MemoryFormat::Contiguous || f == MemoryFormat::Preserve)
    return empty_tensor(size, or_default(dtype), or_default(device));
  return empty_strided_tensor(size, strides_for(size, f), or_default(dtype), or_default(device));
}

Tensor empty_strided(IntSpan size, IntSpan stride, DType dtype, Device device, bool) {
  check_sizes(size, "empty_strided");
  TS_CHECK(size.size() == stride.size(), "empty_strided: mismatch in length of strides and shape, got ", size, " and ",
           stride);
  return empty_strided_tensor(size, stride, or_default(dtype), or_default(device));
}

Tensor zeros(IntSpan size, DType dtype, Device device, bool) {
  return constant(size, Scalar(0), or_default(dtype), device, "zeros");
}
Tensor ones(IntSpan size, DType dtype, Device device, bool) {
  return constant(size, Scalar(1), or_default(dtype), device, "ones");
}
Tensor full(IntSpan size, Scalar value, DType dtype, Device device, bool) {
  return constant(size, value, dtype == DType::Undefined ? value.dtype() : dtype, device, "full");
}
Tensor scalar_tensor(Scalar value, DType dtype, Device device, bool) {
  return constant({}, value, or_default(dtype), device, "scalar_tensor");
}

// --- *_like ---
Tensor like(const Tensor& self, DType dtype, Device device, Format format) {
  DType t = dtype == DType::Undefined ? self.dtype() : dtype;
  Device d = device.defined() ? device : self.device();
  MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  if (f != MemoryFormat::Preserve) return empty_strided_tensor(self.sizes(), strides_for(self.sizes(), f), t, d);
  bool strided = !self.is_contiguous() && is_dense(self.sizes(), self.strides());
  return strided ? empty_strided_tensor(self.sizes(), self.strides(), t, d) : empty_tensor(self.sizes(), t, d);
}
Tensor constant_like(const Tensor& self, Scalar value, DType dtype, Device device, Format format, const char* op) {
  Tensor t = like(self, dtype, device, format);
  raw_fill(t, convert_scalar(value, t.dtype(), op));
  return t;
}
Tensor empty_like(const Tensor& self, DType dtype, Device device, bool, Format format) {
  return like(self, dtype, device, format);
}
Tensor zeros_like(const Tensor& self, DType dtype, Device device, bool, Format format) {
  return constant_like(self, Scalar(0), dtype, device, format, "zeros_like");
}
Tensor ones_like(const Tensor& self, DType dtype, Device device, bool, Format format) {
  return constant_like(self, Scalar(1), dtype, device, format, "ones_like");
}
Tensor full_like(const Tensor& self, Scalar value, DType dtype, Device device, bool, Format format) {
  return constant_like(self, value, dtype, device, format, "full_like");
}

// --- new_*: self's dtype and device are the defaults ---
DType pick(const Tensor& self, DType t) { return t == DType::Undefined ? self.dtype() : t; }
Device pick(const Tensor& self, Device d) { return d.defined() ? d : self.device(); }

Tensor new_empty(const Tensor& self, IntSpan size, DType dtype, Device device, bool) {
  check_sizes(size, "new_empty");
  return empty_tensor(size, pick(self, dtype), pick(self, device));
}
Tensor new_zeros(const Tensor& self, IntSpan size, DType dtype, Device device, bool) {
  return constant(size, Scalar(0), pick(self, dtype), pick(self, device), "new_zeros");
}
Tensor new_ones(const Tensor& self, IntSpan size, DType dtype, Device device, bool) {
  return constant(size, Scalar(1), pick(self, dtype), pick(self, device), "new_ones");
}
Tensor new_full(const Tensor& self, IntSpan size, Scalar value, DType dtype, Device device, bool) {
  return constant(size, value, pick(self, dtype), pick(self, device), "new_full");
}

// --- in place ---
// One value everywhere: elements that share memory may be written through any of them, as in PyTorch.
Tensor fill_with(const Tensor& self, Scalar value, const char* op) {
  check_writable(self, op);
  Dims sizes(self.sizes());
  for (size_t d = 0; d < sizes.size(); ++d)
    if (self.strides()[d] == 0 && sizes[d] > 1) sizes[d] = 1;
  raw_fill(alias(self, sizes, self.strides(), self->byte_offset), convert_scalar(value, self.dtype(), op));
  return self;
}

Tensor fill_scalar(const Tensor& self, Scalar value) { return fill_with(self, value, "fill_"); }
Tensor zero_(const Tensor& self) { return fill_with(self, Scalar(0), "zero_"); }

Tensor fill_tensor(const Tensor& self, const Tensor& value) {
  TS_CHECK(value.ndim() == 0, "fill_: only supports 0-dimension value tensor but got tensor with ", value.ndim(),
           " dimensions.");
  check_inplace(self, "fill_");
  check_value_fits(value, self.dtype(), "fill_");
  if (self.numel() == 0 || self.is(value)) return self;
  Tensor here = value.device() == self.device() ? apart_from(value, self) : transfer(value, self.device());
  raw_copy(self, raw_expand(here, self.sizes(), "fill_"));
  return self;
}

void no_gradient(GradContext& c) { c.set(0, ops::zeros_like(c.grad())); }

Tensor eye(int64_t n, int64_t m, DType dtype, Device device, bool) {
  TS_CHECK(n >= 0, "eye: n must be greater or equal to 0, got ", n);
  TS_CHECK(m >= 0, "eye: m must be greater or equal to 0, got ", m);
  int64_t sizes[] = {n, m}, length[] = {std::min(n, m)}, step[] = {m + (m < INT64_MAX)};
  Tensor out = filled(sizes, Scalar(0), or_default(dtype), or_default(device));
  raw_fill(alias(out, length, step, 0), convert_scalar(Scalar(1), out.dtype(), "eye"));
  return out;
}
Tensor eye_square(int64_t n, DType dtype, Device device, bool grad) { return eye(n, n, dtype, device, grad); }

#define OPTIONS "*, ScalarType? dtype=None, Device? device=None, bool requires_grad=False"
#define LIKE_OPTIONS OPTIONS ", MemoryFormat? memory_format=None"

} // namespace

TS_OPERATORS(factory) {
  def("empty(int[] size, " LIKE_OPTIONS ") -> Tensor")
      .body<empty>()
      .function_only()
      .doc("A tensor whose elements are whatever the memory held.");
  def("empty_strided(int[] size, int[] stride, " OPTIONS ") -> Tensor")
      .body<empty_strided>()
      .function_only()
      .doc("As empty, with the given strides.");
  def("zeros(int[] size, " OPTIONS ") -> Tensor").body<zeros>().function_only().out().doc("A tensor of zeros.");
  def("ones(int[] size, " OPTIONS ") -> Tensor").body<ones>().function_only().out().doc("A tensor of ones.");
  def("full(int[] size, Scalar fill_value, " OPTIONS ") -> Tensor")
      .body<full>()
      .function_only()
      .out()
      .doc("A tensor filled with one value, whose type decides the dtype when none is given.");
  def("scalar_tensor(Scalar s, " OPTIONS ") -> Tensor")
      .body<scalar_tensor>()
      .function_only()
      .doc("A 0-dimensional tensor holding s.");
  def("eye(int n, " OPTIONS ") -> Tensor").body<eye_square>().function_only().out().doc("The identity matrix.");
  def("eye.m(int n, int m, " OPTIONS ") -> Tensor")
      .body<eye>()
      .function_only()
      .out()
      .doc("An n by m matrix with ones on the diagonal and zeros elsewhere.");
  def("empty_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .body<empty_like>()
      .function_only()
      .not_differentiable()
      .doc("As empty, with self's shape, dtype, device and dense strides.");
  def("zeros_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .body<zeros_like>()
      .function_only()
      .not_differentiable()
      .doc("Zeros with self's shape, dtype and device.");
  def("ones_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .body<ones_like>()
      .function_only()
      .not_differentiable()
      .doc("Ones with self's shape, dtype and device.");
  def("full_like(Tensor self, Scalar fill_value, " LIKE_OPTIONS ") -> Tensor")
      .body<full_like>()
      .function_only()
      .not_differentiable()
      .doc("One value with self's shape, dtype and device.");
  def("new_empty(Tensor self, int[] size, " OPTIONS ") -> Tensor")
      .body<new_empty>()
      .method_only()
      .not_differentiable()
      .doc("As empty, with self's dtype and device as the defaults.");
  def("new_zeros(Tensor self, int[] size, " OPTIONS ") -> Tensor")
      .body<new_zeros>()
      .method_only()
      .not_differentiable()
      .doc("Zeros, with self's dtype and device as the defaults.");
  def("new_ones(Tensor self, int[] size, " OPTIONS ") -> Tensor")
      .body<new_ones>()
      .method_only()
      .not_differentiable()
      .doc("Ones, with self's dtype and device as the defaults.");
  def("new_full(Tensor self, int[] size, Scalar fill_value, " OPTIONS ") -> Tensor")
      .body<new_full>()
      .method_only()
      .not_differentiable()
      .doc("One value, with self's dtype and device as the defaults.");
  // Before the form that takes a number, which would read the tensor.
  def("fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)")
      .body<fill_tensor>()
      .any_device()
      .method_only()
      .gradient([](GradContext& c) {
        no_gradient(c);
        if (c.needs(1)) c.set(1, ops::to_device(ops::sum(c.grad()), c.device(1), c.dtype(1)));
      })
      .doc("Sets every element to the value of a 0-dimensional tensor.");
  def("fill_(Tensor(a!) self, Scalar value) -> Tensor(a!)")
      .body<fill_scalar>()
      .gradient(no_gradient)
      .method_only()
      .doc("Sets every element to value. RuntimeError when self's dtype cannot hold it.");
  def("zero_(Tensor(a!) self) -> Tensor(a!)")
      .body<zero_>()
      .gradient(no_gradient)
      .method_only()
      .doc("Sets every element to zero.");
}

} // namespace ts
