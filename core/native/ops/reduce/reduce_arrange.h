// Reductions as the `reduce` kernel wants them: kept dims first, reduced dims last, neighbours merged.
#pragma once
#include "dispatch/boxing.h"
#include "tensor/geometry.h"

namespace ts {

// A bit per dimension: some of at most 64, or all of however many.
using DimSet = uint64_t;
constexpr int64_t kSetDims = 64;

inline void check_set_dims(int64_t ndim, const char* op) {
  TS_CHECK(ndim <= kSetDims, op, ": only tensors with up to 64 dims are supported, got one of ", ndim,
           "; reduce all of them, or view it with fewer");
}

// None and an empty list mean all dims.
DimSet dim_set_of(std::optional<IntSpan> dims, int64_t ndim, const char* op);
inline DimSet dim_set(std::optional<IntSpan> dims, int64_t ndim, const char* op) {
  if (dims && dims->size() == 1 && (*dims)[0] < ndim && (*dims)[0] >= -ndim && ndim <= kSetDims) [[likely]]
    return DimSet{1} << ((*dims)[0] < 0 ? (*dims)[0] + ndim : (*dims)[0]);
  return dim_set_of(dims, ndim, op);
}
inline DimSet dim_set(int64_t dim, int64_t ndim, const char* op) {
  int64_t d = wrap_dim(dim, ndim, op);
  check_set_dims(ndim, op);
  return ndim ? DimSet{1} << d : 0;
}
inline DimSet all_dims(int64_t ndim) { return ndim >= 64 ? ~DimSet{0} : (DimSet{1} << ndim) - 1; }
inline bool in_set(DimSet set, size_t dim) { return dim < kSetDims ? set >> dim & 1 : set == ~DimSet{0}; }
// Product of the sizes in the set.
int64_t reduced_count(IntSpan sizes, DimSet dims);

struct Arranged {
  Dims kept;           // sizes of the kept dims
  Dims sizes, strides; // of the operand: kept dims, then at least one reduced dim; none where it lies so already
  int64_t n_reduced = 0;
};
// `ordered`: positions in the reduced part matter (argmax), so its dims keep their order.
Arranged arrange(const Tensor& self, DimSet dims, bool ordered);

// A reduction's result in outline. RuntimeError or IndexError for an operation without an identity over no elements.
Tensor reduce_outline(const char* op, int opcode, const Tensor& self, DimSet dims, bool keepdim, DType dtype);
// One launch of `reduce` into a contiguous result of that shape. Over no elements it is the operation's identity.
void reduce_into(const Tensor& out, int opcode, const Tensor& self, DimSet dims);
// Both.
Tensor run_reduce(const char* op, int opcode, const Tensor& self, DimSet dims, bool keepdim, DType dtype);

// Whether addends of dtype `from` are cast before they are added up as `to`: fractions do not add up in integers, and
// truth is of each addend, not of their sum.
inline bool casts_addends(DType to, DType from) {
  return to == DType::Bool ? from != DType::Bool : is_integral(to, true) && !is_integral(from, true);
}

// A result of the reduction (or its gradient) with the reduced dims back as size one; an operator call.
Tensor restore_dims(const Tensor& reduced, IntSpan sizes, DimSet dims, bool keepdim);
// The same, repeated to the sizes reduced from.
Tensor expand_reduced(const Tensor& reduced, IntSpan sizes, DimSet dims, bool keepdim);
// The reduced dims as a list, for operator calls.
Dims dim_list(DimSet dims);
// The gradient of picking one element of all, whose argument and result are saved: equal elements have equal shares.
void share_among_equals(GradContext& c);
// t as dtype, of a complex gradient its real part for a real operand; an operator call only if it is not so already.
Tensor as_dtype(const Tensor& t, DType dtype);

} // namespace ts
