// Reductions as the `reduce` kernel wants them: kept dims first, reduced dims last, neighbours merged.
#pragma once
#include "dispatch/boxing.h"
#include "tensor/geometry.h"

namespace ts {

using DimSet = uint64_t; // a bit per dimension

// None and an empty list mean all dims.
DimSet dim_set(std::optional<IntSpan> dims, int64_t ndim, const char* op);
inline DimSet dim_set(int64_t dim, int64_t ndim, const char* op) {
  int64_t d = wrap_dim(dim, ndim, op);
  return ndim ? DimSet{1} << d : 0;
}
inline DimSet all_dims(int64_t ndim) { return ndim >= 64 ? ~DimSet{0} : (DimSet{1} << ndim) - 1; }
inline bool in_set(DimSet set, size_t dim) { return set >> dim & 1; }
// Product of the sizes in the set.
int64_t reduced_count(IntSpan sizes, DimSet dims);

struct Arranged {
  Tensor moved; // kept dims, then at least one reduced dim; undefined where they are so already
  Dims kept;    // sizes of the source's kept dims
  Dims result;  // sizes the result is to have
  int64_t n_reduced = 0;
  const Tensor& source(const Tensor& self) const { return moved.defined() ? moved : self; }
};
// `ordered`: positions in the reduced part matter (argmax), so its dims keep their order.
Arranged arrange(const Tensor& self, DimSet dims, bool keepdim, bool ordered);

// One launch of `reduce`. Reducing no elements gives the operation's identity, or is an error where it has none.
Tensor run_reduce(const char* op, int opcode, const Tensor& self, DimSet dims, bool keepdim, DType dtype);

// A result of the reduction (or its gradient) with the reduced dims back as size one; an operator call.
Tensor restore_dims(const Tensor& reduced, IntSpan sizes, DimSet dims, bool keepdim);
// The same, repeated to the sizes reduced from.
Tensor expand_reduced(const Tensor& reduced, IntSpan sizes, DimSet dims, bool keepdim);
// The reduced dims as a list, for operator calls.
Dims dim_list(DimSet dims);
// t as dtype; an operator call only if it is not.
Tensor as_dtype(const Tensor& t, DType dtype);

} // namespace ts
