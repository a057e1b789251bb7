#include "tensor/tensor.h"
#include "tensor/geometry.h"
#include "tensor/unversioned.h"
#include <new>

namespace ts {

std::atomic<uint64_t> unversioned_aliases{0};

TensorImpl* TensorImpl::make() {
  auto* t = new (allocate_block(sizeof(TensorImpl))) TensorImpl;
  if (thread_state().inference) t->flags |= kInference;
  return t;
}

// What few tensors have.
static void drop_more(TensorImpl& t) {
  delete t.autograd;
  if (t.own_version) release(t.own_version);
  delete t.payload;
  delete[] t.heap_dims;
}

void TensorImpl::destroy(TensorImpl* t) {
  if (t->wrapper) [[unlikely]]
    if (keep_for_wrapper(t)) return;
  if (t->base) release(t->base);
  if (t->owns_more()) drop_more(*t);
  if (t->storage) release(t->storage);
  t->~TensorImpl();
  free_block(t, sizeof(TensorImpl));
}

int64_t* TensorImpl::reserve_dims(size_t n) {
  if (n <= static_cast<size_t>(kInlineDims) && !heap_dims) [[likely]] {
    ndim = static_cast<uint8_t>(n);
    return inline_dims;
  }
  // More than kMaxDims are seen by views and elementwise operators alone, as in PyTorch; kernels get slices.
  TS_CHECK(n <= UINT8_MAX, "tensor: expected at most ", UINT8_MAX, " dimensions, got ", n);
  if (n > static_cast<size_t>(kInlineDims)) {
    auto* grown = new int64_t[2 * n];
    delete[] heap_dims;
    heap_dims = grown;
  } else if (heap_dims) {
    delete[] heap_dims;
    heap_dims = nullptr;
  }
  ndim = static_cast<uint8_t>(n);
  return heap_dims ? heap_dims : inline_dims;
}

void TensorImpl::set_geometry(IntSpan new_sizes, IntSpan new_strides) {
  auto is_inside = [this](IntSpan span) {
    return reinterpret_cast<uintptr_t>(span.data()) - reinterpret_cast<uintptr_t>(this) < sizeof(TensorImpl);
  };
  if (heap_dims || is_inside(new_sizes) || is_inside(new_strides)) [[unlikely]] {
    Dims size_copy(new_sizes), stride_copy(new_strides); // what is overwritten may be what is read
    return put_geometry(size_copy, stride_copy);
  }
  put_geometry(new_sizes, new_strides);
}

void TensorImpl::put_geometry(IntSpan new_sizes, IntSpan new_strides) {
  size_t n = new_sizes.size();
  int64_t* s = reserve_dims(n);
  int64_t* st = heap_dims ? s + n : inline_dims + kInlineDims;
  int64_t total = 1;
  bool dense = true, empty = false, wrong = false;
  for (size_t i = n; i-- > 0;) {
    int64_t extent = new_sizes[i], stride = new_strides[i];
    s[i] = extent;
    st[i] = stride;
    dense &= extent == 1 || stride == total;
    empty |= extent == 0;
    wrong |= extent < 0 || __builtin_mul_overflow(total, extent, &total);
  }
  if (wrong) [[unlikely]]
    total = checked_numel(new_sizes); // tells what is wrong, if something is
  numel = empty ? 0 : total;
  flags = static_cast<uint8_t>((flags & ~kContiguous) | (dense || empty ? kContiguous : 0));
}

void TensorImpl::set_contiguous(IntSpan new_sizes) {
  size_t n = new_sizes.size();
  int64_t* s = reserve_dims(n);
  int64_t* st = heap_dims ? s + n : inline_dims + kInlineDims;
  int64_t total = 1;
  bool empty = false;
  for (size_t i = n; i-- > 0;) {
    int64_t extent = new_sizes[i];
    s[i] = extent;
    st[i] = total;
    empty |= extent == 0;
    TS_CHECK(extent >= 0, "tensor: expected sizes that are not negative, got ", new_sizes);
    TS_CHECK(!__builtin_mul_overflow(total, extent > 1 ? extent : 1, &total), "tensor: shape ", new_sizes,
             " has more elements than fit in 64 bits");
  }
  numel = empty ? 0 : total;
  flags |= kContiguous;
}

void TensorImpl::copy_geometry(const TensorImpl& o) {
  int64_t* s = reserve_dims(o.ndim);
  std::copy_n(o.sizes_data(), o.ndim, s);
  std::copy_n(o.strides_data(), o.ndim, heap_dims ? s + ndim : inline_dims + kInlineDims);
  numel = o.numel;
  flags = static_cast<uint8_t>((flags & ~kContiguous) | (o.flags & kContiguous));
}

int64_t Tensor::size(int64_t dim) const { return sizes()[wrap_dim(dim, ndim(), "size")]; }
int64_t Tensor::stride(int64_t dim) const { return strides()[wrap_dim(dim, ndim(), "stride")]; }

bool Tensor::is_contiguous(MemoryFormat format) const {
  if (format == MemoryFormat::Contiguous || format == MemoryFormat::Preserve) return is_contiguous();
  return geometry_is_channels_last(sizes(), strides(), format == MemoryFormat::ChannelsLast ? 4 : 5);
}

namespace {
TensorImpl* share_storage(const TensorImpl& of) {
  TensorImpl* t = TensorImpl::make();
  t->dtype = of.dtype;
  t->device = of.device;
  t->keys = of.keys & data_bits();
  t->byte_offset = of.byte_offset;
  constexpr uint8_t kOfMemory = TensorImpl::kConstantData | TensorImpl::kInference; // a view is what its base is
  t->flags = static_cast<uint8_t>((t->flags & ~kOfMemory) | (of.flags & kOfMemory));
  if (of.storage) {
    retain(of.storage);
    t->storage = of.storage;
  } else {
    t->keys |= of.keys & key_bit(key::Python); // what has no memory is not to pass for a tensor that has
  }
  if (of.payload) [[unlikely]]
    t->payload = of.payload->copy();
  return t;
}

void share_version(TensorImpl* t, const TensorImpl& of) {
  if (!of.own_version) return;
  retain(of.own_version);
  t->own_version = of.own_version;
}
} // namespace

Tensor alias(const Tensor& of, IntSpan sizes, IntSpan strides, int64_t byte_offset) {
  Tensor t = Tensor::adopt(share_storage(*of.impl()));
  t->set_geometry(sizes, strides);
  t->byte_offset = byte_offset;
  share_version(t.impl(), *of.impl());
  return t;
}

Tensor shallow_copy(const Tensor& of, bool own_version) {
  Tensor t = Tensor::adopt(share_storage(*of.impl()));
  t->copy_geometry(*of.impl());
  if (own_version) {
    t->own_version = new VersionCounter;
    ++unversioned_aliases;
  } else
    share_version(t.impl(), *of.impl());
  return t;
}

Tensor make_view(const Tensor& of, IntSpan sizes, IntSpan strides, int64_t byte_offset) {
  Tensor t = alias(of, sizes, strides, byte_offset);
  if (t->has(TensorImpl::kInference) && thread_state().inference) return t;
  TensorImpl* base = of->base ? of->base : of.impl();
  retain(base);
  t->base = base;
  t->view_version = t->version();
  // Views always pass through autograd: their base may come to require gradients after they were made.
  t->keys |= key_bit(key::Autograd);
  if (thread_state().exclude & key_bit(key::Autograd)) t->flags |= TensorImpl::kViewNoGrad;
  // What may not be written to through a view may not be through a view of that.
  if (of->base) t->flags |= of->flags & (TensorImpl::kViewNoGrad | TensorImpl::kViewMulti);
  return t;
}

void forget_base(TensorImpl& view) {
  release(std::exchange(view.base, nullptr));
  view.flags = static_cast<uint8_t>(view.flags & ~(TensorImpl::kViewNoGrad | TensorImpl::kViewMulti));
}

} // namespace ts
