#include "ops/raw.h"
#include "dispatch/launch.h"
#include "tensor/geometry.h"

namespace ts {
namespace {
const KernelId kFill("fill"), kCopy("copy_cast");
} // namespace

void raw_fill(const Tensor& t, Scalar value) {
  if (t.numel()) Launch(kFill, t.device()).out(t).param(value).run_required();
}

Tensor filled(IntSpan sizes, Scalar value, DType dtype, Device device) {
  Tensor t = empty_tensor(sizes, dtype, device);
  raw_fill(t, value);
  return t;
}

void raw_copy(const Tensor& dst, const Tensor& src) {
  if (dst.numel()) Launch(kCopy, dst.device()).out(dst).in(src).run_required();
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

Tensor raw_vector(std::span<const double> values, DType dtype, Device device) {
  int64_t n = static_cast<int64_t>(values.size());
  Tensor t = empty_tensor(IntSpan(&n, 1), dtype, device);
  if (n == 0 || device.is_meta()) return t;
  if (dtype == DType::Float64) {
    copy_bytes_from_host(t, values.data(), values.size() * sizeof(double));
    return t;
  }
  if (dtype == DType::Int64) {
    std::vector<int64_t> exact(values.begin(), values.end());
    copy_bytes_from_host(t, exact.data(), exact.size() * sizeof(int64_t));
    return t;
  }
  // float32 first: a device without float64 still casts from it.
  std::vector<float> single(values.begin(), values.end());
  Tensor staged = dtype == DType::Float32 ? t : empty_tensor(IntSpan(&n, 1), DType::Float32, device);
  copy_bytes_from_host(staged, single.data(), single.size() * sizeof(float));
  if (!staged.is(t)) raw_copy(t, staged);
  return t;
}

bool raw_truth(const Tensor& t) {
  if (t.device().is_meta()) return false;
  bool value = false;
  copy_bytes_to_host(&value, raw_contiguous(t), 1, "bool");
  return value;
}

} // namespace ts
