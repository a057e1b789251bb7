#include "ops/common/raw.h"
#include "dispatch/launch.h"
#include "dispatch/watch.h"
#include "tensor/geometry.h"
#include "tesserack/elements.hpp"
#include <algorithm>
#include <cmath>

namespace ts {
namespace {
const KernelId kFill("fill"), kCopy("copy_cast"), kReduce("reduce");

// For kernels that do not take complex numbers: part by part.
void fill_parts(const Tensor& t, const Scalar& value) {
  raw_fill(raw_part(t, false), value.real());
  raw_fill(raw_part(t, true), value.imag());
}

void copy_parts(const Tensor& dst, const Tensor& src) {
  bool from_complex = is_complex(src.dtype());
  if (is_bool(dst.dtype())) // whether either part is not zero
    return Launch(kReduce, dst.device())
        .out(dst)
        .in(raw_parts(src))
        .param(1)
        .opcode(TS_R_ANY)
        .compute(accumulate_type(real_type(src.dtype())))
        .run_required();
  raw_copy(is_complex(dst.dtype()) ? raw_part(dst, false) : dst, from_complex ? raw_part(src, false) : src);
  if (!is_complex(dst.dtype())) return;
  if (from_complex)
    raw_copy(raw_part(dst, true), raw_part(src, true));
  else
    raw_fill(raw_part(dst, true), Scalar(0));
}

} // namespace

Tensor raw_parts(const Tensor& t) {
  Dims sizes(t.sizes()), strides(t.strides());
  for (int64_t& s : strides) s *= 2;
  sizes.push_back(2);
  strides.push_back(1);
  Tensor out = alias(t, sizes, strides, t->byte_offset);
  out->set_dtype(real_type(t.dtype()));
  return out;
}

Tensor raw_part(const Tensor& t, bool imaginary) {
  Dims strides(t.strides());
  for (int64_t& s : strides) s *= 2;
  DType real = real_type(t.dtype());
  Tensor out = alias(t, t.sizes(), strides, t->byte_offset + (imaginary ? item_size(real) : 0));
  out->set_dtype(real);
  return out;
}

Tensor raw_index_of_parts(const Tensor& index) {
  Dims sizes(index.sizes()), strides(index.strides());
  sizes.push_back(2);
  strides.push_back(0);
  return alias(index, sizes, strides, index->byte_offset);
}

Tensor of_parts(Tensor fresh) {
  Dims sizes(fresh.sizes().first(fresh.sizes().size() - 1));
  fresh->set_dtype(complex_type(fresh.dtype()));
  fresh->set_contiguous(sizes);
  return fresh;
}

Tensor as_bytes(const Tensor& t, DType dtype) {
  Tensor bytes = alias(t, t.sizes(), t.strides(), t->byte_offset);
  bytes->set_dtype(dtype);
  return bytes;
}

void raw_fill(const Tensor& t, Scalar value) {
  if (!t.numel()) return;
  if (is_packed(t.dtype())) {
    TS_CHECK_KIND(ErrorKind::NotImplemented, value.is(0), "fill: elements of ", t.dtype(),
                  " hold several values, expected 0; try .view(uint8)");
    return raw_fill(as_bytes(t, DType::UInt8), value);
  }
  Launch launch(kFill, t.device());
  launch.out(t).param(value);
  if (!is_complex(t.dtype())) return launch.run_required();
  if (!launch.run()) fill_parts(t, value);
}

namespace {

Scalar unset(DType t) {
  if (is_bool(t)) return Scalar(true);
  if (is_packed(t)) return Scalar(int64_t{0});
  if (is_floating(t) || is_complex(t)) return Scalar(std::nan(""));
  int bits = static_cast<int>(8 * item_size(t)) - !is_unsigned(t);
  return bits == 64 ? Scalar(int64_t{-1}) : Scalar(static_cast<int64_t>(UINT64_MAX >> (64 - bits)));
}

} // namespace

void fill_unset(const Tensor& t) {
  if (fills_new_memory.load(std::memory_order_relaxed) && !t.device().is_meta()) raw_fill(t, unset(t.dtype()));
}

Tensor filled(IntSpan sizes, Scalar value, DType dtype, Device device) {
  Tensor t = empty_tensor(sizes, dtype, device);
  raw_fill(t, value);
  return t;
}

void raw_copy(const Tensor& dst, const Tensor& src) {
  if (is_packed(dst.dtype()) || is_packed(src.dtype())) {
    TS_CHECK_KIND(ErrorKind::NotImplemented, dst.dtype() == src.dtype(), "copy: from ", src.dtype(), " to ",
                  dst.dtype(), ": elements that hold several values are not converted; try .view(uint8)");
    if (!dst.numel()) return;
    return raw_copy(as_bytes(dst, DType::UInt8), as_bytes(src, DType::UInt8));
  }
  if (!dst.numel()) return;
  Launch launch(kCopy, dst.device());
  launch.out(dst).in(src);
  if (!is_complex(dst.dtype()) && !is_complex(src.dtype())) return launch.run_required();
  if (!launch.run()) copy_parts(dst, src);
}

Tensor raw_cast(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor out = empty_like_tensor(t, dtype);
  raw_copy(out, t);
  return out;
}

Tensor raw_contiguous(const Tensor& t) {
  if (t.is_contiguous()) return t;
  Tensor out = empty_tensor(t.sizes(), t.dtype(), t.device());
  raw_copy(out, t);
  return out;
}

Tensor raw_transpose(const Tensor& t, int64_t a, int64_t b) {
  Dims sizes(t.sizes()), strides(t.strides());
  std::swap(sizes[static_cast<size_t>(a)], sizes[static_cast<size_t>(b)]);
  std::swap(strides[static_cast<size_t>(a)], strides[static_cast<size_t>(b)]);
  return alias(t, sizes, strides, t->byte_offset);
}

Tensor raw_expand(const Tensor& t, IntSpan sizes, const char* op) {
  return alias(t, sizes, expand_strides(t.sizes(), t.strides(), sizes, op), t->byte_offset);
}

namespace el = tesserack::backend;

// As elements of T, made on the host.
template <typename T> static void copy_elements(const Tensor& t, std::span<const double> values) {
  std::vector<T> made(values.size());
  std::transform(values.begin(), values.end(), made.begin(), [](double x) { return el::convert<T>(x); });
  copy_bytes_from_host(t, made.data(), made.size() * sizeof(T));
}

Tensor raw_vector(std::span<const double> values, DType dtype, Device device) {
  int64_t n = static_cast<int64_t>(values.size());
  Tensor t = empty_tensor(IntSpan(&n, 1), dtype, device);
  if (n == 0 || device.is_meta()) return t;
  switch (dtype) {
  case DType::Float64: copy_elements<double>(t, values); return t;
  case DType::Float32: copy_elements<float>(t, values); return t;
  case DType::Float16: copy_elements<el::Half>(t, values); return t;
  case DType::BFloat16: copy_elements<el::BFloat16>(t, values); return t;
  case DType::Int64: copy_elements<int64_t>(t, values); return t;
  default: break;
  }
  // By float32: a device without float64 still casts from it.
  Tensor staged = empty_tensor(IntSpan(&n, 1), DType::Float32, device);
  copy_elements<float>(staged, values);
  raw_copy(t, staged);
  return t;
}

bool raw_truth(const Tensor& t) {
  if (t.device().is_meta()) return false;
  bool value = false;
  copy_bytes_to_host(&value, raw_contiguous(t), 1, "bool");
  return value;
}

} // namespace ts
