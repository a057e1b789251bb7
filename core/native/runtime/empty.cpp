#include "runtime/empty.h"
#include "runtime/new_storage.h"
#include "runtime/recording_state.h"
#include "runtime/warn_once.h"
#include "tensor/geometry.h"

namespace ts {
namespace {

inline Storage* allocate(Device device, int64_t elements, DType dtype) {
  int64_t bytes = 0;
  TS_CHECK(!__builtin_mul_overflow(elements, item_size(dtype), &bytes), "empty: ", elements, " elements of ", dtype,
           " exceed 64-bit sizes");
  if (device.is_meta()) return nullptr;
  return backend_of(device).allocator(device.index).allocate(static_cast<size_t>(bytes));
}

[[gnu::cold]] void warn_of_halves() {
  static std::atomic<bool> warned{false};
  warn_once(warned, "ComplexHalf support is experimental and many operators don't support it yet.");
}

inline TensorImpl* bare(DType dtype, Device device) {
  if (dtype == DType::Complex32) [[unlikely]]
    warn_of_halves();
  TensorImpl* t = TensorImpl::make();
  t->dtype = dtype;
  t->device = device;
  t->keys = key_bit(device.backend) | TensorImpl::keys_of(dtype);
  return t;
}

} // namespace

Tensor outline(IntSpan sizes, DType dtype, Device device) {
  Tensor t = Tensor::adopt(bare(dtype, device));
  t->set_contiguous(sizes);
  return t;
}

Tensor outline_strided(IntSpan sizes, IntSpan strides, DType dtype, Device device) {
  Tensor t = Tensor::adopt(bare(dtype, device));
  t->set_geometry(sizes, strides);
  TS_CHECK(byte_extent(sizes, strides, 1).first == 0, "empty_strided: expected strides that are not negative, got ",
           strides);
  return t;
}

Tensor outline_like(const Tensor& like, DType dtype, Device device) {
  if (like.numel() == 0) return outline(like.sizes(), dtype, device);
  if (like.is_contiguous() || is_dense(like.sizes(), like.strides())) {
    Tensor t = Tensor::adopt(bare(dtype, device));
    t->copy_geometry(*like.impl()); // the strides of dims of one element, too: they say where channels lie
    return t;
  }
  return outline_strided(like.sizes(), dense_strides(like.sizes(), like.strides()), dtype, device);
}

void give_memory(TensorImpl& t) {
  bool dense = t.has(TensorImpl::kContiguous);
  t.storage = allocate(t.device, dense ? t.numel : byte_extent(t.sizes(), t.strides(), 1).second, t.dtype);
}

// The hot one, written out.
Tensor empty_tensor(IntSpan sizes, DType dtype, Device device) {
  Tensor t = Tensor::adopt(bare(dtype, device));
  t->set_contiguous(sizes);
  t->storage = allocate(device, t.numel(), dtype);
  return t;
}

Tensor empty_strided_tensor(IntSpan sizes, IntSpan strides, DType dtype, Device device) {
  Tensor t = outline_strided(sizes, strides, dtype, device);
  give_memory(*t.impl());
  return t;
}

Tensor empty_like_tensor(const Tensor& like, DType dtype) {
  Tensor t = outline_like(like, dtype);
  give_memory(*t.impl());
  return t;
}

Tensor from_external(void* handle, IntSpan sizes, IntSpan strides, DType dtype, Device device,
                     void (*deleter)(Storage&), void* ctx) {
  note_hidden_dependence();
  Tensor t = Tensor::adopt(bare(dtype, device));
  t->set_geometry(sizes, strides);
  auto [low, high] = byte_extent(sizes, strides, item_size(dtype));
  // The handle addresses the first element; negative strides reach below it.
  Backend& b = backend_of(device);
  b.allocator(device.index);
  bool host = b.host_memory(device.index);
  void* start = host ? static_cast<char*>(handle) + low : handle;
  t->storage =
      noted(Storage::make(device, static_cast<size_t>(high - low), start, host ? start : nullptr, deleter, ctx));
  t->byte_offset = host ? -low : 0;
  t->storage->epoch = b.epoch(device.index);
  return t;
}

Tensor tensor_over(Storage* s, IntSpan sizes, DType dtype) {
  Tensor t = outline(sizes, dtype, s->device);
  t->storage = s;
  return t;
}

} // namespace ts
