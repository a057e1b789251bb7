// Sums and products by index that neither stop at a dtype's last whole number nor round at every step: narrow dtypes
// are combined in float32, and long float32 sums by parts.
#include "dispatch/op_handles.h"
#include "ops/index/gather_scatter.h"
#include "runtime/computed_dtypes.h"

namespace ts {
namespace {

// Ones add up exactly in float32 until 2^24: no element meets more at once.
constexpr int64_t kPart = int64_t{1} << 22;

DType wide_type(const Tensor& t) {
  if (is_storage_dtype(t.dtype())) return is_complex(t.dtype()) ? DType::Complex64 : DType::Float32;
  return accumulate_type(t);
}

// Of duplicate positions, the one place along `dim` of the index that stands for them all.
Tensor representatives(const Tensor& to, int64_t dim, const Tensor& index) {
  Tensor place = empty_tensor(to.sizes(), DType::Int64, to.device()); // only what is written here is read
  Dims shape(index.sizes().size(), 1);
  shape[static_cast<size_t>(dim)] = index.sizes()[static_cast<size_t>(dim)];
  Tensor along = raw_view(counting(shape[static_cast<size_t>(dim)], to.device()), shape);
  scatter_into(place, dim, index, raw_expand(along, index.sizes(), "scatter"), TS_S_SET);
  return ops::gather(place, dim, index);
}

// Few writes into many elements: those alone are widened.
void combine_touched(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& from, int opcode, DType wide) {
  Tensor seat = representatives(to, dim, index);
  Tensor sums = raw_cast(ops::gather(to, dim, index), wide);
  scatter_into(sums, dim, seat, raw_cast(from, wide), opcode);
  scatter_into(to, dim, index, raw_cast(ops::gather(sums, dim, seat), to.dtype()), TS_S_SET);
}
void combine_touched_slices(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& from, int opcode,
                            DType wide) {
  Tensor seat = representatives(empty_tensor(Dims{to.size(dim)}, DType::Bool, to.device()), 0, index);
  Tensor sums = raw_cast(select_along(to, dim, index), wide);
  scatter_slices(sums, dim, seat, raw_cast(from, wide), opcode);
  scatter_slices(to, dim, index, raw_cast(select_along(sums, dim, seat), to.dtype()), TS_S_SET);
}

} // namespace

bool combine_wide(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& from, int opcode) {
  const DType wide = wide_type(to);
  if (wide == to.dtype() || opcode == TS_S_SET) return false;
  const bool extreme = opcode == TS_S_MAX || opcode == TS_S_MIN;
  if (extreme && !is_storage_dtype(to.dtype())) return false; // one of the values: nothing is rounded
  const bool slices = index.ndim() == 1 && to.ndim() > 1;
  if (!is_storage_dtype(to.dtype()) && 4 * from.numel() < to.numel()) {
    (slices ? combine_touched_slices : combine_touched)(to, dim, index, from, opcode, wide);
    return true;
  }
  Tensor sums = raw_cast(to, wide);
  if (sums.sizes().empty()) sums = raw_1d(sums);
  (slices ? scatter_slices : scatter_into)(sums, dim, index, raw_cast(from, wide), opcode);
  raw_copy(to, sums);
  return true;
}

bool add_by_parts(const Tensor& to, int64_t dim, const Tensor& index, const Tensor& from, int opcode) {
  const bool narrow = to.dtype() == DType::Float32 || to.dtype() == DType::Complex64;
  const int64_t n = from.size(dim);
  if (opcode != TS_S_ADD || !narrow || n <= kPart) return false;
  const bool slices = index.ndim() == 1 && to.ndim() > 1;
  for (int64_t start = 0; start < n; start += kPart) {
    const int64_t length = std::min(kPart, n - start);
    Tensor part = filled(to.sizes(), Scalar(0), to.dtype(), to.device());
    Tensor at = raw_narrow(index, slices ? 0 : dim, start, length), some = raw_narrow(from, dim, start, length);
    (slices ? scatter_slices : scatter_into)(part, dim, at, some, opcode);
    raw_copy(to, ops::add(to, part));
  }
  return true;
}

} // namespace ts
