#include "ops/common/check.h"
#include "dispatch/watch.h"
#include "ops/common/narrow.h"
#include "runtime/empty.h"
#include "runtime/interpreter.h"
#include "runtime/recording_state.h"
#include "tensor/geometry.h"
#include "tensor/thread_state.h"
#include <bit>
#include <cmath>
#include <cstring>

namespace ts {
namespace {

template <class T> T read(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

double half_to_double(uint16_t h) {
  int exponent = h >> 10 & 0x1f, mantissa = h & 0x3ff;
  double magnitude = exponent == 31  ? (mantissa ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(mantissa, -24)
                                     : std::ldexp(mantissa + 1024, exponent - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

} // namespace

void check_writable(const Tensor& t, const char* op) {
  TS_CHECK(!t->has(TensorImpl::kInference) || thread_state().inference, op,
           ": Inplace update to inference tensor outside InferenceMode is not allowed. "
           "You can make a clone to get a normal tensor before doing inplace update.");
  TS_CHECK(!t->has(TensorImpl::kConstantData), op,
           ": the tensor's memory is read-only (it came from outside); clone() it first");
}

void check_inplace(const Tensor& t, const char* op) {
  check_writable(t, op);
  TS_CHECK(
      t.is_contiguous() || !may_overlap(t.sizes(), t.strides()), op,
      ": unsupported operation: more than one element of the written-to tensor refers to a single memory location. "
      "Please clone() the tensor before performing the operation.");
}

bool overlaps_partly(const Tensor& out, const Tensor& in, const char* op) {
  if (out.is(in) || !out->storage || out->storage != in->storage || out.numel() == 0 || in.numel() == 0) return false;
  bool identical = out->byte_offset == in->byte_offset && out.dtype() == in.dtype() && same(out.sizes(), in.sizes()) &&
                   same(out.strides(), in.strides());
  if (identical) return false;
  auto [out_low, out_high] = byte_extent(out.sizes(), out.strides(), out.item_size());
  auto [in_low, in_high] = byte_extent(in.sizes(), in.strides(), in.item_size());
  bool apart = out->byte_offset + out_high <= in->byte_offset + in_low ||
               in->byte_offset + in_high <= out->byte_offset + out_low;
  if (apart) return false;
  // Interleaved views, such as x[::2] and x[1::2], touch different elements: equal strides, offset not a multiple.
  if (same(out.sizes(), in.sizes()) && same(out.strides(), in.strides()) && out.dtype() == in.dtype() &&
      out.ndim() > 0) {
    int64_t step = INT64_MAX;
    for (int64_t d = 0; d < out.ndim(); ++d)
      if (out.sizes()[d] > 1) step = std::min(step, std::abs(out.strides()[d]) * out.item_size());
    int64_t distance = std::abs(out->byte_offset - in->byte_offset);
    bool divides = true;
    for (int64_t d = 0; d < out.ndim(); ++d)
      if (out.sizes()[d] > 1 && (out.strides()[d] * out.item_size()) % step) divides = false;
    if (divides && distance % step) return false;
  }
  // An operand that is broadcast has no memory of its own for each element, which is what PyTorch refuses.
  bool dense = out.numel() == in.numel() && is_dense(out.sizes(), out.strides()) && is_dense(in.sizes(), in.strides());
  TS_CHECK(!dense, op,
           ": unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
           "single memory location. Please clone() the tensor before performing the operation.");
  return true;
}

void check_no_overlap(const Tensor& written, const Tensor& read, const char* op) {
  if (!written->storage || written->storage != read->storage || written.numel() == 0 || read.numel() == 0) return;
  if (!is_dense(written.sizes(), written.strides()) || !is_dense(read.sizes(), read.strides())) return;
  auto end = [](const Tensor& t) { return t->byte_offset + t.numel() * t.item_size(); };
  TS_CHECK(written->byte_offset >= end(read) || read->byte_offset >= end(written), op,
           ": unsupported operation: some elements of the input tensor and the written-to tensor refer to a "
           "single memory location. Please clone() the tensor before performing the operation.");
}

void check_filled(const Tensor& t, const char* op) {
  if (!is_expanded(t.sizes(), t.strides())) return check_inplace(t, op);
  check_writable(t, op);
  warn(concat("Use of ", op,
              " on expanded tensors is deprecated. Please clone() the tensor before performing this "
              "operation. This also applies to advanced indexing e.g. tensor[indices] = tensor"));
}

void alert_not_deterministic(const char* op) {
  Determinism asked = determinism.load(std::memory_order_relaxed);
  if (asked == Determinism::Any) return;
  std::string text = concat(op, " does not have a deterministic implementation, but deterministic algorithms are asked "
                                "for by use_deterministic_algorithms(True); its warn_only=True allows this one");
  TS_CHECK(asked == Determinism::Warn, text);
  warn(text);
}

void resize_output(const Tensor& out, IntSpan sizes, const char* op, bool quiet) {
  if (same(out.sizes(), sizes)) return;
  if (out.numel() != 0 && !quiet)
    warn(concat(op, ": An output with one or more elements was resized since it had shape ", out.sizes(),
                ", which does not match the required output shape ", sizes,
                "; pass an out= of that shape or of no elements"));
  TensorImpl* t = out.impl();
  int64_t bytes = checked_numel(sizes) * out.item_size();
  bool nowhere = t->base && out.numel() == 0; // an empty view: what lies at its place is not its own
  if (!nowhere && t->storage && bytes <= static_cast<int64_t>(t->storage->nbytes) - t->byte_offset) {
    t->set_contiguous(sizes); // where it is: other tensors may look there
    return;
  }
  Tensor fresh = empty_tensor(sizes, out.dtype(), out.device());
  if (t->storage) release(t->storage);
  t->storage = fresh->storage;
  if (t->storage) retain(t->storage);
  t->byte_offset = 0;
  t->set_contiguous(sizes);
}

void check_same_dtype(const Tensor& a, const Tensor& b, const char* op) {
  TS_CHECK(a.dtype() == b.dtype(), op, ": expected both operands to have the same dtype, but got: ", a.dtype(),
           " != ", b.dtype(), "; convert one with .to()");
}

Scalar read_scalar(const void* at, DType dtype) {
  note_hidden_dependence();
  switch (dtype) {
  case DType::Bool: return Scalar(read<uint8_t>(at) != 0);
  case DType::UInt8: return Scalar(int64_t{read<uint8_t>(at)});
  case DType::UInt16: return Scalar(int64_t{read<uint16_t>(at)});
  case DType::UInt32: return Scalar(int64_t{read<uint32_t>(at)});
  case DType::UInt64: return Scalar(static_cast<int64_t>(read<uint64_t>(at)));
  case DType::Int8: return Scalar(int64_t{read<int8_t>(at)});
  case DType::Int16: return Scalar(int64_t{read<int16_t>(at)});
  case DType::Int32: return Scalar(int64_t{read<int32_t>(at)});
  case DType::Int64: return Scalar(read<int64_t>(at));
  case DType::Float16: return Scalar(half_to_double(read<uint16_t>(at)));
  case DType::BFloat16: return Scalar(double{std::bit_cast<float>(uint32_t{read<uint16_t>(at)} << 16)});
  case DType::Float32: return Scalar(double{read<float>(at)});
  case DType::Float64: return Scalar(read<double>(at));
  case DType::Complex64: return Scalar(double{read<float>(at)}, double{read<float>(static_cast<const char*>(at) + 4)});
  case DType::Complex128: return Scalar(read<double>(at), read<double>(static_cast<const char*>(at) + 8));
  case DType::Complex32:
    return Scalar(half_to_double(read<uint16_t>(at)), half_to_double(read<uint16_t>(static_cast<const char*>(at) + 2)));
  default:
    if (is_narrow(dtype)) {
      const double value = narrow_value(dtype, read<uint8_t>(at));
      return is_floating(dtype) ? Scalar(value) : Scalar(static_cast<int64_t>(value));
    }
    fail(ErrorKind::NotImplemented, "item: no element of dtype ", dtype);
  }
}

std::optional<Scalar> host_number(const TensorImpl& t) {
  if (t.ndim != 0 || !t.storage || !t.storage->host || is_complex(t.dtype) || t.keys & pending_bits())
    return std::nullopt;
  return read_scalar(static_cast<const char*>(t.storage->host) + t.byte_offset, t.dtype);
}

} // namespace ts
