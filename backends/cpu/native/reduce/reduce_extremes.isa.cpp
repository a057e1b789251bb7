// Reductions that need no arithmetic: maxima, minima, any and all, in the input's own compute type.
#include "reduce_extremes.h"
#include "reduce_fold.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

namespace {

// Narrow integers as what they are: a vector then holds as many as of the tensor.
template <typename T> bool reduce_narrow(const backend::Call& call, int n_reduced_dims, int op) {
  if (call.in(0).dtype() != dtype_of<T>() || call.out(0).dtype() != dtype_of<T>()) return false;
  if (op != TS_R_MAX && op != TS_R_MIN) return false;
  op == TS_R_MAX ? reduce_with<MaxFold<T>, T>(call, n_reduced_dims) : reduce_with<MinFold<T>, T>(call, n_reduced_dims);
  return true;
}

// So is what bytes are tested for, of whichever dtype.
bool test_bytes(const backend::Call& call, int n_reduced_dims, int op) {
  const int32_t dtype = call.in(0).dtype(), out = call.out(0).dtype();
  if ((dtype != TS_BOOL && dtype != TS_UINT8 && dtype != TS_INT8) || (out != TS_BOOL && out != TS_UINT8)) return false;
  if (op != TS_R_ANY && op != TS_R_ALL) return false;
  op == TS_R_ANY ? reduce_with<AnyFold<uint8_t>, uint8_t>(call, n_reduced_dims)
                 : reduce_with<AllFold<uint8_t>, uint8_t>(call, n_reduced_dims);
  return true;
}

} // namespace

void reduce_extremes(const backend::Call& call, int n_reduced_dims, int op) {
  if (reduce_narrow<uint8_t>(call, n_reduced_dims, op) || reduce_narrow<int8_t>(call, n_reduced_dims, op) ||
      reduce_narrow<int16_t>(call, n_reduced_dims, op) || test_bytes(call, n_reduced_dims, op))
    return;
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
