// float32 instructions of the tile machine.
#include "exp_avx2.h"
#include "exp_avx512.h"
#include "ops_float.h"
#include "sigmoid_avx512.h"
#include "tanh_avx512.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

// The vector reduction is exact up to kTrigLimit; a tile with anything beyond goes through the C library.
template <auto Fast, auto Slow> int trig_loop(float* out, const float* a, const float*, const float*, int64_t n) {
  int beyond = 0;
  for (int64_t i = 0; i < n; ++i) beyond |= !(std::fabs(a[i]) < kTrigLimit);
  if (beyond == 0) return unary_loop<float, Fast>(out, a, nullptr, nullptr, n);
  for (int64_t i = 0; i < n; ++i) out[i] = Slow(a[i]);
  return 0;
}

constexpr OpTable<float> make_table() {
  OpTable<float> t{};
  set_float(t);
  set_unary<float, [](float a) { return exp_f32(a); }>(t, TS_I_EXP);
  set_unary<float, [](float a) { return exp2_f32(a); }>(t, TS_I_EXP2);
  set_unary<float, [](float a) { return expm1_f32(a); }>(t, TS_I_EXPM1);
  set_unary<float, [](float a) { return log_f32(a); }>(t, TS_I_LOG);
  set_unary<float, [](float a) { return log2_f32(a); }>(t, TS_I_LOG2);
  set_unary<float, [](float a) { return log10_f32(a); }>(t, TS_I_LOG10);
  set_unary<float, [](float a) { return log1p_f32(a); }>(t, TS_I_LOG1P);
  set_unary<float, [](float a) { return tanh_f32(a); }>(t, TS_I_TANH);
  set_unary<float, [](float a) { return sigmoid_f32(a); }>(t, TS_I_SIGMOID);
  set_unary<float, [](float a) { return erf_f32(a); }>(t, TS_I_ERF);
  set_binary<float, [](float a, float b) { return pow_f32(a, b); }>(t, TS_I_POW);
  t.fn[TS_I_SIN][0] = &trig_loop<[](float a) { return sin_f32(a); }, [](float a) { return std::sin(a); }>;
  t.fn[TS_I_COS][0] = &trig_loop<[](float a) { return cos_f32(a); }, [](float a) { return std::cos(a); }>;
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  t.fn[TS_I_EXP][0] = &loop_avx512<exp_avx512>;
  t.fn[TS_I_TANH][0] = &loop_avx512<tanh_avx512>;
  t.fn[TS_I_SIGMOID][0] = &sigmoid_loop_avx512;
#elif defined(TESSERACK_CPU_EXP_AVX2)
  t.fn[TS_I_EXP][0] = &loop_avx2<exp_near, exp_f32>;
  t.fn[TS_I_SIGMOID][0] = &loop_avx2<sigmoid_near, sigmoid_f32>;
#endif
  return t;
}

constinit const OpTable<float> table = make_table();

} // namespace

template <> const OpTable<float>& op_table<float>() { return table; }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
