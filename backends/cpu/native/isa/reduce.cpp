// Entry point `reduce`. Sums and products are here, the rest in reduce_extremes.cpp and reduce_arg.cpp.
#include "reduce_arg.h"
#include "reduce_extremes.h"
#include "reduce_fold.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

// The type to fold in: what the call asks for, as far as it is a compute type.
int32_t fold_dtype(const backend::Call& call) {
  const int32_t wanted = call.compute_dtype();
  const int32_t dtype = backend::is_complex(wanted) ? wanted : natural_compute(wanted);
  // A float32 product over- and underflows by its order: keep the range of float64.
  return call.opcode() == TS_R_PROD && dtype == TS_FLOAT32 ? TS_FLOAT64 : dtype;
}

void reduce(const backend::Call& call) {
  const int n = static_cast<int>(call.param(0).as_int());
  const int op = call.opcode();
  if (op == TS_R_ARGMAX || op == TS_R_ARGMIN) return reduce_positions(call, n, op == TS_R_ARGMAX);
  if (op != TS_R_SUM && op != TS_R_PROD) return reduce_extremes(call, n, op);
  with_compute(fold_dtype(call), [&]<typename T>() {
    op == TS_R_SUM ? reduce_with<SumFold<T>, T>(call, n) : reduce_with<ProdFold<T>, T>(call, n);
  });
}

} // namespace

TS_KERNEL("reduce", reduce);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
