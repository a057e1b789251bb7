// Reductions that need no arithmetic: maxima, minima, any and all, in the input's own compute type.
#include "reduce_extremes.h"
#include "reduce_fold.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {

void reduce_extremes(const backend::Call& call, int n_reduced_dims, int op) {
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
