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

// x * x, the program of norms.
bool is_square(const ts_program& p) {
  if (p.n_inputs != 1 || p.n_constants != 0 || p.n_instructions != 1 || p.n_outputs != 1) return false;
  const ts_instruction& i = p.instructions[0];
  return i.op == TS_I_MUL && i.a == 0 && i.b == 0 && p.outputs[0] == 1;
}

// select(x != x, 0, x), the program of nansum.
bool is_number_or_zero(const ts_program& p) {
  if (p.n_inputs != 1 || p.n_constants != 1 || p.constants[0] != 0 || p.n_instructions != 2 || p.n_outputs != 1)
    return false;
  const ts_instruction &test = p.instructions[0], &pick = p.instructions[1];
  return test.op == TS_I_NE && test.a == 0 && test.b == 0 && pick.op == TS_I_SELECT && pick.a == 2 && pick.b == 1 &&
         pick.c == 0 && p.outputs[0] == 3;
}

template <template <typename> typename Fold> int sum_by(const backend::Call& call, int n) {
  const int32_t dtype = fold_dtype(call);
  if (dtype == TS_FLOAT32) return reduce_with<Fold<float>, float>(call, n), TS_OK;
  if (dtype == TS_FLOAT64) return reduce_with<Fold<double>, double>(call, n), TS_OK;
  return TS_DECLINED;
}
int sum_of_program(const backend::Call& call, int n) {
  if (call.opcode() != TS_R_SUM) return TS_DECLINED;
  if (is_square(*call.prologue())) return sum_by<SquaresFold>(call, n);
  return is_number_or_zero(*call.prologue()) ? sum_by<NumbersFold>(call, n) : TS_DECLINED;
}

int reduce(const backend::Call& call) {
  const int n = static_cast<int>(call.param(0).as_int());
  const int op = call.opcode();
  if (call.prologue()) return sum_of_program(call, n);
  if (op == TS_R_ARGMAX || op == TS_R_ARGMIN) return reduce_positions(call, n, op == TS_R_ARGMAX), TS_OK;
  if (op != TS_R_SUM && op != TS_R_PROD) return reduce_extremes(call, n, op), TS_OK;
  with_compute(fold_dtype(call), [&]<typename T>() {
    op == TS_R_SUM ? reduce_with<SumFold<T>, T>(call, n) : reduce_with<ProdFold<T>, T>(call, n);
  });
  return TS_OK;
}

} // namespace

TS_KERNEL_WITH("reduce", reduce, 0, TS_L_STRIDED, TS_K_PROLOGUE, nullptr);

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
