#include "dispatch/describe.h"
#include "dispatch/launch.h"
#include "ops/common/copy.h"
#include "runtime/backend.h"
#include "runtime/empty.h"
#include "runtime/pinned.h"
#include "runtime/transfer_guard.h"
#include "tensor/geometry.h"
#include <vector>

namespace ts {
namespace {

const KernelId kMoveBytesIota("iota");

bool intersects(const Tensor& a, const Tensor& b) {
  if (a->storage == nullptr || a->storage != b->storage || a.numel() == 0 || b.numel() == 0) return false;
  auto [a_low, a_high] = byte_extent(a.sizes(), a.strides(), a.item_size());
  auto [b_low, b_high] = byte_extent(b.sizes(), b.strides(), b.item_size());
  return a->byte_offset + a_low < b->byte_offset + b_high && b->byte_offset + b_low < a->byte_offset + a_high;
}

bool same_place(const Tensor& a, const Tensor& b) {
  return a->storage == b->storage && a->byte_offset == b->byte_offset && a.dtype() == b.dtype() &&
         same(a.sizes(), b.sizes()) && same(a.strides(), b.strides());
}

// Contiguous source and destination of one dtype and size, on different devices.
void move_bytes(const Tensor& dst, const Tensor& src, bool non_blocking) {
  size_t bytes = static_cast<size_t>(src.nbytes());
  if (bytes == 0 || dst.device().is_meta()) return;
  if (non_blocking && (copy_from_pinned(dst, src, bytes) || copy_to_pinned(dst, src, bytes))) return;
  if (src.data()) {
    synchronize(src.device());
    copy_bytes_from_host(dst, src.data(), bytes);
  } else if (dst.data()) {
    move_bytes_to_host(dst.data(), src, bytes);
  } else if (!copy_bytes_peer(dst, src, bytes)) {
    std::vector<char> staging(bytes);
    move_bytes_to_host(staging.data(), src, bytes);
    copy_bytes_from_host(dst, staging.data(), bytes);
  }
}

} // namespace

void copy_into(const Tensor& dst, const Tensor& src) {
  if (dst.numel() == 0 || same_place(dst, src)) return;
  raw_copy(dst, apart_from(src, dst));
}

Tensor copy_as(const Tensor& src, DType t, MemoryFormat format) {
  Tensor out = format == MemoryFormat::Preserve
                   ? empty_like_tensor(src, t)
                   : empty_strided_tensor(src.sizes(), strides_for(src.sizes(), format), t, src.device());
  raw_copy(out, src);
  return out;
}

Tensor apart_from(const Tensor& src, const Tensor& target) {
  return intersects(src, target) ? copy_as(src, src.dtype(), MemoryFormat::Contiguous) : src;
}

void transfer_into(const Tensor& dst, const Tensor& src, bool non_blocking) {
  TS_CHECK_KIND(ErrorKind::NotImplemented, !src.device().is_meta(), "to: Cannot copy out of meta tensor; no data!");
  if (!dst.device().is_meta())
    guard_transfer(Transfer::Copy,
                   [&] { return concat("to: copies ", describe(src), " from ", src.device(), " to ", dst.device()); });
  bool dense = is_dense(dst.sizes(), dst.strides());
  if (dst.is_contiguous()) return move_bytes(dst, raw_contiguous(src), non_blocking);
  Tensor from = src;
  if (!dense || !same(dst.strides(), src.strides())) {
    from = empty_strided_tensor(dst.sizes(), dense ? dst.strides() : contiguous_strides(dst.sizes()).span(),
                                src.dtype(), src.device());
    raw_copy(from, src);
  }
  if (!dense) { // through memory that is
    Tensor staged = empty_tensor(dst.sizes(), dst.dtype(), dst.device());
    move_bytes(staged, from, non_blocking);
    return raw_copy(dst, staged);
  }
  // Some permutation of the dims is contiguous: move the block as it lies.
  int64_t n[] = {src.numel()}, one[] = {1};
  move_bytes(alias(dst, n, one, dst->byte_offset), alias(from, n, one, from->byte_offset), non_blocking);
}

Tensor transfer(const Tensor& src, Device device, bool non_blocking) {
  if (src.device() == device) return src;
  TS_CHECK_KIND(ErrorKind::NotImplemented, !src.device().is_meta(), "to: Cannot copy out of meta tensor; no data!");
  bool keeps = !src.is_contiguous() && is_dense(src.sizes(), src.strides());
  Tensor out = keeps ? empty_strided_tensor(src.sizes(), src.strides(), src.dtype(), device)
                     : empty_tensor(src.sizes(), src.dtype(), device);
  transfer_into(out, src, non_blocking);
  return out;
}

Tensor from_host(std::span<const int64_t> values, Device device) {
  int64_t n[] = {static_cast<int64_t>(values.size())};
  Tensor out = empty_tensor(n, DType::Int64, device);
  if (!device.is_meta()) copy_bytes_from_host(out, values.data(), values.size_bytes());
  return out;
}

Tensor counting(int64_t n, Device device) {
  int64_t sizes[] = {n};
  Tensor out = empty_tensor(sizes, DType::Int64, device);
  if (n) Launch(kMoveBytesIota, device).out(out).param(int64_t{0}).param(int64_t{1}).run_required();
  return out;
}

Tensor raw_view(const Tensor& t, IntSpan sizes) {
  std::optional<Dims> strides = view_strides(t.sizes(), t.strides(), sizes);
  if (strides) return alias(t, sizes, *strides, t->byte_offset);
  return reshaped(copy_as(t, t.dtype(), MemoryFormat::Contiguous), sizes);
}

Tensor raw_narrow(const Tensor& t, int64_t dim, int64_t start, int64_t length) {
  Dims sizes(t.sizes());
  sizes[static_cast<size_t>(dim)] = length;
  return alias(t, sizes, t.strides(), t->byte_offset + start * t.strides()[static_cast<size_t>(dim)] * t.item_size());
}

} // namespace ts
