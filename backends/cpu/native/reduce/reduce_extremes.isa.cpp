// Reductions that need no arithmetic: maxima, minima, any and all, in the input's own compute type.
#include "reduce_extremes.h"
#include "reduce_fold.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

namespace {

// Bytes as what they are: a vector then holds as many as of the tensor.
template <typename T> bool reduce_bytes(const backend::Call& call, int n_reduced_dims, int op) {
  if (call.in(0).dtype() != dtype_of<T>() || call.out(0).dtype() != dtype_of<T>()) return false;
  if (op != TS_R_MAX && op != TS_R_MIN) return false;
  op == TS_R_MAX ? reduce_with<MaxFold<T>, T>(call, n_reduced_dims) : reduce_with<MinFold<T>, T>(call, n_reduced_dims);
  return true;
}

} // namespace

void reduce_extremes(const backend::Call& call, int n_reduced_dims, int op) {
  if (reduce_bytes<uint8_t>(call, n_reduced_dims, op) || reduce_bytes<int8_t>(call, n_reduced_dims, op)) return;
  with_compute(natural_compute(call.in(0).dtype()), [&]<typename T>() {
    switch (op) {
    case TS_R_MAX: return reduce_with<MaxFold<T>, T>(call, n_reduced_dims);
    case TS_R_MIN: return reduce_with<MinFold<T>, T>(call, n_reduced_dims);
    case TS_R_ANY: return reduce_with<AnyFold<T>, T>(call, n_reduced_dims);
    case TS_R_ALL: return reduce_with<AllFold<T>, T>(call, n_reduced_dims);
    default: backend::fail(TS_ERROR, "reduce: unknown opcode %d", op);
    }
  });
}

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
