// New tensors: empty, full, zeros, ones and their *_like and new_* forms, fill_ and zero_, eye, scalar_tensor.
#include "dispatch/op_handles.h"
#include "dispatch/watch.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/copy.h"
#include "ops/common/declare.h"
#include "ops/common/like.h"
#include "ops/common/storage_dtypes.h"
#include <cmath>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kFactoryCode = "fills by the entry point fill, or leaves memory as it is";

using Format = std::optional<MemoryFormat>;

void check_sizes(IntSpan sizes, const char* op) {
  for (int64_t s : sizes) TS_CHECK(s >= 0, op, ": Trying to create tensor with negative dimension ", s, ": ", sizes);
}

Tensor sized(IntSpan sizes, DType t, Device device, const char* op) {
  check_sizes(sizes, op);
  return outline(sizes, or_default(t), or_default(device));
}

// Whatever the memory held; the same in every run where that is asked for.
template <class... A> void leave(const Tensor& out, A...) { fill_unset(out); }

Tensor empty_rule(IntSpan size, DType dtype, Device device, bool, Format format) {
  check_sizes(size, "empty");
  MemoryFormat f = format.value_or(MemoryFormat::Contiguous);
  if (f == MemoryFormat::Contiguous || f == MemoryFormat::Preserve)
    return outline(size, or_default(dtype), or_default(device));
  return outline_strided(size, strides_for(size, f), or_default(dtype), or_default(device));
}

Tensor empty_strided_rule(IntSpan size, IntSpan stride, DType dtype, Device device, bool) {
  check_sizes(size, "empty_strided");
  TS_CHECK(size.size() == stride.size(), "empty_strided: mismatch in length of strides and shape, got ", size, " and ",
           stride);
  return outline_strided(size, stride, or_default(dtype), or_default(device));
}

Tensor zeros_rule(IntSpan size, DType dtype, Device device, bool) { return sized(size, dtype, device, "zeros"); }
void zeros(const Tensor& out, IntSpan, DType, Device, bool) { raw_fill(out, 0); }
Tensor ones_rule(IntSpan size, DType dtype, Device device, bool) { return sized(size, dtype, device, "ones"); }
void ones(const Tensor& out, IntSpan, DType, Device, bool) { raw_fill(out, convert_scalar(1, out.dtype(), "ones")); }
Tensor full_rule(IntSpan size, Scalar value, DType dtype, Device device, bool) {
  DType t = dtype == DType::Undefined ? value.dtype() : dtype;
  if (dtype == DType::Undefined && t == DType::Complex32) t = DType::Complex64; // PyTorch's least of its own choice
  convert_scalar(value, t, "full");
  return sized(size, t, device, "full");
}
void full(const Tensor& out, IntSpan, Scalar value, DType, Device, bool) {
  raw_fill(out, convert_scalar(value, out.dtype(), "full"));
}
Tensor scalar_tensor_rule(Scalar value, DType dtype, Device device, bool) {
  convert_scalar(value, or_default(dtype), "scalar_tensor");
  return sized({}, dtype, device, "scalar_tensor");
}
void scalar_tensor(const Tensor& out, Scalar value, DType, Device, bool) {
  raw_fill(out, convert_scalar(value, out.dtype(), "scalar_tensor"));
}

// --- *_like ---
Tensor empty_like_rule(const Tensor& self, DType dtype, Device device, bool, Format format) {
  return outline_as(self, dtype, device, format);
}
void fill_zeros(const Tensor& out, const Tensor&, DType, Device, bool, Format) { raw_fill(out, 0); }
void fill_ones(const Tensor& out, const Tensor&, DType, Device, bool, Format) {
  raw_fill(out, convert_scalar(1, out.dtype(), "ones_like"));
}
Tensor full_like_rule(const Tensor& self, Scalar value, DType dtype, Device device, bool, Format format) {
  Tensor t = outline_as(self, dtype, device, format);
  convert_scalar(value, t.dtype(), "full_like");
  return t;
}
void full_like(const Tensor& out, const Tensor&, Scalar value, DType, Device, bool, Format) {
  raw_fill(out, convert_scalar(value, out.dtype(), "full_like"));
}

// --- new_*: self's dtype and device are the defaults ---
Tensor new_rule(const char* op, const Tensor& self, IntSpan size, DType t, Device d) {
  check_sizes(size, op);
  return outline(size, t == DType::Undefined ? self.dtype() : t, d.defined() ? d : self.device());
}
Tensor new_empty_rule(const Tensor& self, IntSpan size, DType dtype, Device device, bool) {
  return new_rule("new_empty", self, size, dtype, device);
}
Tensor new_zeros_rule(const Tensor& self, IntSpan size, DType dtype, Device device, bool) {
  return new_rule("new_zeros", self, size, dtype, device);
}
void new_zeros(const Tensor& out, const Tensor&, IntSpan, DType, Device, bool) { raw_fill(out, 0); }
Tensor new_ones_rule(const Tensor& self, IntSpan size, DType dtype, Device device, bool) {
  return new_rule("new_ones", self, size, dtype, device);
}
void new_ones(const Tensor& out, const Tensor&, IntSpan, DType, Device, bool) {
  raw_fill(out, convert_scalar(1, out.dtype(), "new_ones"));
}
Tensor new_full_rule(const Tensor& self, IntSpan size, Scalar value, DType dtype, Device device, bool) {
  Tensor t = new_rule("new_full", self, size, dtype, device);
  convert_scalar(value, t.dtype(), "new_full");
  return t;
}
void new_full(const Tensor& out, const Tensor&, IntSpan, Scalar value, DType, Device, bool) {
  raw_fill(out, convert_scalar(value, out.dtype(), "new_full"));
}

// --- in place ---
// One value everywhere: elements that share memory may be written through any of them, as in PyTorch.
void fill_all(const Tensor& self, Scalar value) {
  Dims sizes(self.sizes());
  bool repeats = false;
  for (size_t d = 0; d < sizes.size(); ++d)
    if (self.strides()[d] == 0 && sizes[d] > 1) sizes[d] = 1, repeats = true;
  raw_fill(repeats ? alias(self, sizes, self.strides(), self->byte_offset) : self, value);
}

void fill_scalar_rule(const Tensor& self, Scalar value) {
  check_writable(self, "fill_");
  convert_scalar(value, self.dtype(), "fill_");
}
void fill_scalar(const Tensor& self, Scalar value) { fill_all(self, convert_scalar(value, self.dtype(), "fill_")); }
void zero_rule(const Tensor& self) { check_writable(self, "zero_"); }
void zero_(const Tensor& self) { fill_all(self, 0); }

void fill_tensor_rule(const Tensor& self, const Tensor& value) {
  TS_CHECK(value.ndim() == 0, "fill_: only supports 0-dimension value tensor but got tensor with ", value.ndim(),
           " dimensions.");
  check_inplace(self, "fill_");
}
void fill_tensor(const Tensor& self, const Tensor& value) {
  check_value_fits(value, self.dtype(), "fill_");
  if (self.numel() == 0 || self.is(value)) return;
  Tensor here = value.device() == self.device() ? apart_from(value, self) : transfer(value, self.device());
  raw_copy(self, raw_expand(here, self.sizes(), "fill_"));
}

void no_gradient(GradContext& c) { c.set(0, ops::zeros_like(c.grad())); }

Tensor eye_rule(int64_t n, int64_t m, DType dtype, Device device, bool) {
  TS_CHECK(n >= 0, "eye: n must be greater or equal to 0, got ", n);
  TS_CHECK(m >= 0, "eye: m must be greater or equal to 0, got ", m);
  int64_t sizes[] = {n, m};
  Tensor out = sized(sizes, dtype, device, "eye");
  if (is_complex(out.dtype())) refuse_storage_dtype(out.dtype(), "eye");
  return out;
}
void eye(const Tensor& out, int64_t n, int64_t m, DType, Device, bool) {
  int64_t length[] = {std::min(n, m)}, step[] = {m + (m < INT64_MAX)};
  raw_fill(out, 0);
  raw_fill(alias(out, length, step, out->byte_offset), convert_scalar(Scalar(1), out.dtype(), "eye"));
}
Tensor eye_square_rule(int64_t n, DType dtype, Device device, bool grad) { return eye_rule(n, n, dtype, device, grad); }
void eye_square(const Tensor& out, int64_t n, DType dtype, Device device, bool grad) {
  eye(out, n, n, dtype, device, grad);
}

#define OPTIONS "*, ScalarType? dtype=None, Device? device=None, bool requires_grad=False"
#define LIKE_OPTIONS OPTIONS ", MemoryFormat? memory_format=None"

} // namespace

Tensor outline_as(const Tensor& self, DType dtype, Device device, std::optional<MemoryFormat> format) {
  DType t = dtype == DType::Undefined ? self.dtype() : dtype;
  Device d = device.defined() ? device : self.device();
  MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  if (f != MemoryFormat::Preserve) return outline_strided(self.sizes(), strides_for(self.sizes(), f), t, d);
  return outline_like(self, t, d);
}

TS_OPERATORS(factory) {
  def("empty(int[] size, " LIKE_OPTIONS ") -> Tensor")
      .rule<empty_rule>()
      .computation<leave<IntSpan, DType, Device, bool, Format>>(kFactoryCode)
      .function_only()
      .out()
      .doc("A tensor whose elements are whatever the memory held.");
  def("empty_strided(int[] size, int[] stride, " OPTIONS ") -> Tensor")
      .rule<empty_strided_rule>()
      .computation<leave<IntSpan, IntSpan, DType, Device, bool>>(kFactoryCode)
      .function_only()
      .doc("As empty, with the given strides.");
  def("zeros(int[] size, " OPTIONS ") -> Tensor")
      .rule<zeros_rule>()
      .computation<zeros>(kFactoryCode)
      .function_only()
      .out()
      .doc("A tensor of zeros.");
  def("ones(int[] size, " OPTIONS ") -> Tensor")
      .rule<ones_rule>()
      .computation<ones>(kFactoryCode)
      .function_only()
      .out()
      .doc("A tensor of ones.");
  def("full(int[] size, Scalar fill_value, " OPTIONS ") -> Tensor")
      .rule<full_rule>()
      .computation<full>(kFactoryCode)
      .function_only()
      .out()
      .doc("A tensor filled with one value, whose type decides the dtype when none is given.");
  def("scalar_tensor(Scalar s, " OPTIONS ") -> Tensor")
      .rule<scalar_tensor_rule>()
      .computation<scalar_tensor>(kFactoryCode)
      .function_only()
      .doc("A 0-dimensional tensor holding s.");
  def("eye(int n, " OPTIONS ") -> Tensor")
      .rule<eye_square_rule>()
      .computation<eye_square>(kFactoryCode)
      .function_only()
      .out()
      .doc("The identity matrix.");
  def("eye.m(int n, int m, " OPTIONS ") -> Tensor")
      .rule<eye_rule>()
      .computation<eye>(kFactoryCode)
      .function_only()
      .out()
      .doc("An n by m matrix with ones on the diagonal and zeros elsewhere.");
  def("empty_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<empty_like_rule>()
      .computation<leave<const Tensor&, DType, Device, bool, Format>>(kFactoryCode)
      .function_only()
      .not_differentiable()
      .doc("As empty, with self's shape, dtype, device and dense strides.");
  def("zeros_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<empty_like_rule>()
      .computation<fill_zeros>(kFactoryCode)
      .function_only()
      .not_differentiable()
      .doc("Zeros with self's shape, dtype and device.");
  def("ones_like(Tensor self, " LIKE_OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<empty_like_rule>()
      .computation<fill_ones>(kFactoryCode)
      .function_only()
      .not_differentiable()
      .doc("Ones with self's shape, dtype and device.");
  def("full_like(Tensor self, Scalar fill_value, " LIKE_OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<full_like_rule>()
      .computation<full_like>(kFactoryCode)
      .function_only()
      .not_differentiable()
      .doc("One value with self's shape, dtype and device.");
  def("new_empty(Tensor self, int[] size, " OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<new_empty_rule>()
      .computation<leave<const Tensor&, IntSpan, DType, Device, bool>>(kFactoryCode)
      .method_only()
      .not_differentiable()
      .doc("As empty, with self's dtype and device as the defaults.");
  def("new_zeros(Tensor self, int[] size, " OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<new_zeros_rule>()
      .computation<new_zeros>(kFactoryCode)
      .method_only()
      .not_differentiable()
      .doc("Zeros, with self's dtype and device as the defaults.");
  def("new_ones(Tensor self, int[] size, " OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<new_ones_rule>()
      .computation<new_ones>(kFactoryCode)
      .method_only()
      .not_differentiable()
      .doc("Ones, with self's dtype and device as the defaults.");
  def("new_full(Tensor self, int[] size, Scalar fill_value, " OPTIONS ") -> Tensor")
      .facts("stored")
      .rule<new_full_rule>()
      .computation<new_full>(kFactoryCode)
      .method_only()
      .not_differentiable()
      .doc("One value, with self's dtype and device as the defaults.");
  // Before the form that takes a number, which would read the tensor.
  def("fill_.Tensor(Tensor(a!) self, Tensor value) -> Tensor(a!)")
      .facts("stored")
      .rule<fill_tensor_rule>()
      .computation<fill_tensor, 0>(kFactoryCode)
      .any_device()
      .method_only()
      .gradient([](GradContext& c) {
        no_gradient(c);
        if (c.needs(1)) c.set(1, ops::to_device(ops::sum(c.grad()), c.device(1), c.dtype(1)));
      })
      .doc("Sets every element to the value of a 0-dimensional tensor.");
  def("fill_(Tensor(a!) self, Scalar value) -> Tensor(a!)")
      .rule<fill_scalar_rule>()
      .computation<fill_scalar, 0>(kFactoryCode)
      .gradient(no_gradient)
      .method_only()
      .doc("Sets every element to value. RuntimeError when self's dtype cannot hold it.");
  def("zero_(Tensor(a!) self) -> Tensor(a!)")
      .facts("stored")
      .rule<zero_rule>()
      .computation<zero_, 0>(kFactoryCode)
      .gradient(no_gradient)
      .method_only()
      .doc("Sets every element to zero.");
}

} // namespace ts
