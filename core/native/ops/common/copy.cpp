// Copies and casts: copy_, clone, contiguous, to and its shorthands, reading one element.
#include "ops/common/copy.h"
#include "dispatch/op_handles.h"
#include "extend/autocast.h"
#include "ops/common/arguments.h"
#include "ops/common/check.h"
#include "ops/common/declare.h"
#include "ops/common/layout.h"
#include "ops/common/pending_bits.h"
#include "runtime/interpreter.h"
#include "tensor/geometry.h"
#include <algorithm>
#include <atomic>

namespace ts {
namespace {

// Why what is declared here is computed by code.
const char* const kCopyCode = "copies and casts by copy_cast, complex numbers by parts";

using Format = std::optional<MemoryFormat>;

// Once per process, as PyTorch says it.
void warn_of_discarding(DType from, DType to) {
  static std::atomic<bool> told{false};
  if (is_complex(from) && !is_complex(to) && !is_bool(to) && !told.exchange(true))
    warn("Casting complex values to real discards the imaginary part; take .real or .abs() to say what is meant");
}

void copy_rule(const Tensor& self, const Tensor& src, bool) {
  if (!same(self.sizes(), src.sizes())) expand_strides(src.sizes(), src.strides(), self.sizes(), "copy_");
  if (self.is(src)) return;
  check_inplace(self, "copy_");
  if (self.numel() == 0) return;
  // PyTorch has no backward strides, and refuses the rest.
  if (std::ranges::all_of(src.strides(), [](int64_t s) { return s >= 0; })) overlaps_partly(self, src, "copy_");
  warn_of_discarding(src.dtype(), self.dtype());
  TS_CHECK_KIND(ErrorKind::NotImplemented, !src.device().is_meta() || self.device().is_meta(),
                "copy_: Cannot copy out of meta tensor; no data!");
}
void copy_(const Tensor& self, const Tensor& src, bool non_blocking) {
  if (self.is(src) || self.numel() == 0) return;
  if (self.device() == src.device())
    copy_into(self, raw_expand(src, self.sizes(), "copy_"));
  else if (same(self.sizes(), src.sizes()) && self.dtype() == src.dtype())
    transfer_into(self, src, non_blocking);
  else
    raw_copy(self, raw_expand(transfer(src, self.device(), non_blocking), self.sizes(), "copy_"));
}

// A real operand has a real gradient.
Tensor real_for(const Tensor& grad, DType t) { return is_complex(t) ? grad : ops::real(grad); }

void copy_gradient(GradContext& c) {
  if (c.needs(0)) c.set(0, ops::zeros_like(c.grad()));
  if (!c.needs(1)) return;
  Tensor g = ops::sum_to_size(real_for(c.grad(), c.dtype(1)), c.sizes(1));
  c.set(1, ops::to_device(g, c.device(1), c.dtype(1)));
}

Tensor copy_outline(const Tensor& self, DType t, Device device, Format format) {
  MemoryFormat f = format.value_or(MemoryFormat::Preserve);
  if (f == MemoryFormat::Preserve && device == self.device()) return outline_like(self, t);
  bool keeps = f == MemoryFormat::Preserve && is_dense(self.sizes(), self.strides());
  Dims strides = keeps ? Dims(self.strides())
                       : strides_for(self.sizes(), f == MemoryFormat::Preserve ? MemoryFormat::Contiguous : f);
  return outline_strided(self.sizes(), strides, t, device);
}
Tensor clone_rule(const Tensor& self, Format format) { return copy_outline(self, self.dtype(), self.device(), format); }
void clone(const Tensor& out, const Tensor& self, Format) { raw_copy(out, self); }

Tensor contiguous(const Tensor& self, Format format) {
  MemoryFormat f = format.value_or(MemoryFormat::Contiguous);
  if (f == MemoryFormat::Preserve && self.is_contiguous()) return self;
  TS_CHECK(f != MemoryFormat::Preserve, "contiguous: preserve memory format is unsupported by the contiguous operator");
  return self.is_contiguous(f) ? self : ops::clone(self, f);
}

Tensor to_copy_rule(const Tensor& self, DType dtype, Device device, Format format, bool) {
  DType t = dtype == DType::Undefined ? self.dtype() : dtype;
  Device d = device.defined() ? device : self.device();
  warn_of_discarding(self.dtype(), t);
  TS_CHECK_KIND(ErrorKind::NotImplemented, !self.device().is_meta() || d.is_meta(),
                "to: Cannot copy out of meta tensor; no data!");
  return copy_outline(self, t, d, format);
}
// Between devices, casts where fewer bytes then travel.
void to_copy(const Tensor& out, const Tensor& self, DType, Device, Format, bool non_blocking) {
  if (out.device() == self.device()) return raw_copy(out, self);
  bool cast_first = out.item_size() <= self.item_size() && out.dtype() != self.dtype();
  if (out.dtype() != self.dtype() && !cast_first) return raw_copy(out, transfer(self, out.device(), non_blocking));
  if (!cast_first && same(out.strides(), self.strides())) return transfer_into(out, self, non_blocking);
  Tensor here = empty_strided_tensor(out.sizes(), out.strides(), out.dtype(), self.device());
  raw_copy(here, self);
  transfer_into(out, here);
}

const Op to_copy_op("_to_copy");

Tensor to(const Tensor& self, DType dtype, Device device, bool copy, Format format, bool non_blocking = false) {
  bool same_dtype = dtype == DType::Undefined || dtype == self.dtype();
  bool same_device = !device.defined() || device == self.device();
  // By what the strides look like: channels that one element has are last only where the strides say so.
  bool same_layout = !format || *format == MemoryFormat::Preserve ||
                     (self.is_contiguous(*format) && suggested_format(self.sizes(), self.strides()) == *format);
  if (same_dtype && same_device && same_layout && !copy) return self;
  return to_copy_op(self, dtype, device, format, non_blocking);
}

Tensor to_dtype(const Tensor& self, DType dtype, bool, bool copy, Format format) {
  return to(self, dtype, {}, copy, format);
}
Tensor to_device(const Tensor& self, Device device, DType dtype, bool non_blocking, bool copy, Format format) {
  return to(self, dtype, device, copy, format, non_blocking);
}
Tensor to_any(const Tensor& self, DType dtype, Device device, bool non_blocking, bool copy, Format format) {
  return to(self, dtype, device, copy, format, non_blocking);
}
Tensor to_other(const Tensor& self, const Tensor& other, bool non_blocking, bool copy, Format format) {
  return to(self, other.dtype(), other.device(), copy, format, non_blocking);
}
Tensor type_as(const Tensor& self, const Tensor& other) { return to(self, other.dtype(), other.device(), false, {}); }
Tensor cpu(const Tensor& self, Format format) { return to(self, DType::Undefined, parse_device("cpu"), false, format); }
template <DType T> Tensor cast(const Tensor& self, Format format) { return to(self, T, {}, false, format); }

Tensor copy_number_(const Tensor& self, Scalar src, bool) { return ops::fill_(self, src); }

Scalar local_scalar_dense(const Tensor& self) {
  TS_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  TS_CHECK(!self.device().is_meta(), "Tensor.item() cannot be called on meta tensors");
  alignas(16) char element[16];
  copy_bytes_to_host(element, self, static_cast<size_t>(self.item_size()), "item");
  return read_scalar(element, self.dtype());
}

void declare_casts() {
#define CAST(name, type)                                                                                               \
  def(name "(Tensor(a) self, *, MemoryFormat? memory_format=None) -> Tensor(a)")                                       \
      .facts("cast")                                                                                                   \
      .body<cast<DType::type>>()                                                                                       \
      .method_only()                                                                                                   \
      .doc("self.to(" name "): self if it has that dtype already.")
  CAST("float", Float32);
  CAST("double", Float64);
  CAST("half", Float16);
  CAST("bfloat16", BFloat16);
  CAST("long", Int64);
  CAST("int", Int32);
  CAST("short", Int16);
  CAST("char", Int8);
  CAST("byte", UInt8);
  CAST("bool", Bool);
  CAST("cfloat", Complex64);
  CAST("cdouble", Complex128);
  CAST("chalf", Complex32);
#undef CAST
}

} // namespace

TS_OPERATORS(copy) {
  def("copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)")
      .facts("stored")
      .rule<copy_rule>()
      .computation<copy_, 0>(kCopyCode)
      .any_device()
      .gradient(copy_gradient)
      .method_only()
      .doc("Copies src, broadcast to self's shape, into self; dtypes and devices may differ.");
  def("copy_.Scalar(Tensor(a!) self, Scalar src, bool non_blocking=False) -> Tensor(a!)")
      .body<copy_number_>()
      .method_only()
      .doc("fill_(src).");
  def("clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor")
      .facts("stored")
      .rule<clone_rule>()
      .computation<clone>(kCopyCode)
      .gradient([](GradContext& c) { c.set(0, c.grad()); })
      .doc("A copy in fresh memory, with self's strides if it is dense (preserve_format).");
  def("contiguous(Tensor(a) self, *, MemoryFormat? memory_format=None) -> Tensor(a)")
      .body<contiguous>()
      .method_only()
      .doc("self if its elements lie in row-major order (or in the given format), else a copy that does.");
  def("_to_copy(Tensor self, *, ScalarType? dtype=None, Device? device=None, MemoryFormat? memory_format=None, "
      "bool non_blocking=False) -> Tensor")
      .rule<to_copy_rule>()
      .computation<to_copy>(kCopyCode)
      .hidden()
      .gradient(
          [](GradContext& c) { c.set(0, ops::to_device(real_for(c.grad(), c.dtype(0)), c.device(0), c.dtype(0))); })
      .doc("A copy with another dtype, device or layout.");
  def("to.dtype(Tensor(a) self, ScalarType dtype, bool non_blocking=False, bool copy=False, "
      "MemoryFormat? memory_format=None) -> Tensor(a)")
      .body<to_dtype>()
      .method_only()
      .doc("self with another dtype; self itself if nothing changes and copy is False.");
  def("to.device(Tensor(a) self, Device? device, ScalarType? dtype=None, bool non_blocking=False, bool copy=False, "
      "MemoryFormat? memory_format=None) -> Tensor(a)")
      .body<to_device>()
      .method_only()
      .doc("self on another device, and with another dtype; self itself if nothing changes and copy is False.");
  def("to.other(Tensor(a) self, Tensor other, bool non_blocking=False, bool copy=False, "
      "MemoryFormat? memory_format=None) -> Tensor(a)")
      .body<to_other>()
      .any_device()
      .method_only()
      .doc("self with the dtype and device of other.");
  def("to.dtype_layout(Tensor(a) self, *, ScalarType? dtype=None, Device? device=None, bool non_blocking=False, "
      "bool copy=False, MemoryFormat? memory_format=None) -> Tensor(a)")
      .body<to_any>()
      .method_only()
      .doc("self with another dtype, device or memory format; self itself if nothing changes and copy is False.");
  def("_autocast_cast(Tensor(a) self, ScalarType dtype) -> Tensor(a)")
      .body<autocast_cast>()
      .hidden()
      .doc("self in the dtype that autocast gives it to an operator: the cast that is kept of a parameter, or one of "
           "now.");
  def("type_as(Tensor(a) self, Tensor other) -> Tensor(a)")
      .body<type_as>()
      .any_device()
      .method_only()
      .doc("self with the dtype and device of other.");
  def("cpu(Tensor(a) self, *, MemoryFormat? memory_format=None) -> Tensor(a)")
      .body<cpu>()
      .method_only()
      .doc("self in host memory.");
  declare_casts();
  install_copies_of_pending();
  def("_local_scalar_dense(Tensor self) -> Scalar")
      .answer<local_scalar_dense>()
      .reads_host()
      .hidden()
      .doc("The value of a one-element tensor: Tensor.item(). Waits for the device. RuntimeError unless numel is 1.");
}

} // namespace ts
