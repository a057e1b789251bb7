// float32 instructions of the tile machine.
#include "math/double_avx512.h"
#include "math/erf_avx2.h"
#include "math/erf_avx512.h"
#include "math/erfc_avx512.h"
#include "math/exp_avx2.h"
#include "math/exp_avx512.h"
#include "math/gamma_f32.h"
#include "math/hard_avx512.h"
#include "math/root_log_avx512.h"
#include "math/sigmoid_avx512.h"
#include "math/tanh_avx512.h"
#include "math/trig_avx512.h"
#include "math/trig_f32.h"
#include "ops_float.h"
#include "split_loop.h"
#include "trig_loops.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

// The vector reduction is exact up to kTrigLimit.
template <auto Fast, auto Slow> int trig_loop(float* out, const float* a, const float*, const float*, int64_t n) {
  trig_split<float, Fast, Slow>(out, a, n, kTrigLimit);
  return 0;
}

#ifdef TESSERACK_CPU_EXP_AVX512
template <auto Short> void short_avx512(float* out, const float* a, int64_t n) { map_avx512<Short>(out, a, n); }

template <auto Short, auto Fast, auto Slow>
int trig_loop_avx512(float* out, const float* a, const float*, const float*, int64_t n) {
  trig_split<float, short_avx512<Short>, Fast, Slow>(out, a, n, kShortTrigLimit, kTrigLimit);
  return 0;
}
#endif
#if defined(__FMA__)
template <auto Short> void short_loop(float* out, const float* a, int64_t n) {
  unary_loop<float, Short>(out, a, nullptr, nullptr, n);
}

template <auto Short, auto Fast, auto Slow>
int short_trig_loop(float* out, const float* a, const float*, const float*, int64_t n) {
  trig_split<float, short_loop<Short>, Fast, Slow>(out, a, n, kShortTrigLimit, kTrigLimit);
  return 0;
}
#endif

int erfinv_loop(float* out, const float* a, const float*, const float*, int64_t n) {
  split_loop<[](float x) { return erfinv_near_f32(x); }, [](float x) { return erfinv_f32(x); }>(out, a, n,
                                                                                                kErfinvNearF);
  return 0;
}

template <auto Fast, auto Slow> constexpr void set_division(OpTable<float>& t, int op) {
  set_division_loops<float, [](float a, float b) { return divides_exactly(a, b); }, Fast, Slow>(t, op);
}

constexpr OpTable<float> make_table() {
  OpTable<float> t{};
  set_float(t);
  set_fused(t);
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
  set_unary<float, [](float a) { return erfc_f32(a); }>(t, TS_I_ERFC);
  set_unary<float, [](float a) { return gelu_f32(a); }>(t, kGelu);
  set_unary<float, [](float a) { return hardsigmoid_f32(a); }>(t, kHardsigmoid);
  set_unary<float, [](float a) { return hardswish_f32(a); }>(t, kHardswish);
  set_unary<float, [](float a) { return silu_f32(a); }>(t, kSilu);
  set_unary<float, [](float a) { return a - std::trunc(a); }>(t, kFrac);
  set_unary<float, [](float a) { return a != a ? a : static_cast<float>(a < 0.0f) * 3.14159274f; }>(t, kAngle);
  set_unary<float, [](float a) { return a >= 0.0f ? a : expm1_f32(a); }>(t, kElu);
  set_unary<float, [](float a) { return asin_f32(a); }>(t, TS_I_ASIN);
  set_unary<float, [](float a) { return acos_f32(a); }>(t, TS_I_ACOS);
  set_unary<float, [](float a) { return atan_f32(a); }>(t, TS_I_ATAN);
  set_unary<float, [](float a) { return sinh_f32(a); }>(t, TS_I_SINH);
  set_unary<float, [](float a) { return cosh_f32(a); }>(t, TS_I_COSH);
  set_unary<float, [](float a) { return asinh_f32(a); }>(t, TS_I_ASINH);
  set_unary<float, [](float a) { return acosh_f32(a); }>(t, TS_I_ACOSH);
  set_unary<float, [](float a) { return atanh_f32(a); }>(t, TS_I_ATANH);
  t.fn[TS_I_ERFINV][0] = &erfinv_loop;
  set_binary<float, [](float a, float b) { return pow_f32(a, b); }>(t, TS_I_POW);
  set_binary<float, [](float a, float b) { return atan2_f32(a, b); }>(t, TS_I_ATAN2);
  set_binary<float, [](float a, float b) { return hypot_f32(a, b); }>(t, TS_I_HYPOT);
  set_division<[](float a, float b) { return fmod_f32(a, b); }, [](float a, float b) { return std::fmod(a, b); }>(
      t, TS_I_FMOD);
  set_division<[](float a, float b) { return mod_f32(a, b); }, [](float a, float b) { return python_mod(a, b); }>(
      t, TS_I_MOD);
  set_division<[](float a, float b) { return floordiv_f32(a, b); },
               [](float a, float b) { return python_floordiv(a, b); }>(t, TS_I_FLOORDIV);
  t.fn[TS_I_LGAMMA][0] = &log_gamma_loop;
  t.fn[TS_I_DIGAMMA][0] = &positive_loop<digamma_positive, digamma>;
  t.fn[TS_I_SIN][0] = &trig_loop<[](float a) { return sin_f32(a); }, [](float a) { return std::sin(a); }>;
  t.fn[TS_I_TAN][0] = &trig_loop<[](float a) { return tan_f32(a); }, [](float a) { return std::tan(a); }>;
  t.fn[TS_I_COS][0] = &trig_loop<[](float a) { return cos_f32(a); }, [](float a) { return std::cos(a); }>;
#if defined(__FMA__)
  t.fn[TS_I_SIN][0] = &short_trig_loop<[](float a) { return short_sin(a); }, [](float a) { return sin_f32(a); },
                                       [](float a) { return std::sin(a); }>;
  t.fn[TS_I_COS][0] = &short_trig_loop<[](float a) { return short_cos(a); }, [](float a) { return cos_f32(a); },
                                       [](float a) { return std::cos(a); }>;
  t.fn[TS_I_TAN][0] = &short_trig_loop<[](float a) { return short_tan(a); }, [](float a) { return tan_f32(a); },
                                       [](float a) { return std::tan(a); }>;
#endif
#if defined(__AVX512F__) && defined(__AVX512DQ__)
  t.fn[TS_I_SIN][0] =
      &trig_loop_avx512<sin_avx512, [](float a) { return sin_f32(a); }, [](float a) { return std::sin(a); }>;
  t.fn[TS_I_COS][0] =
      &trig_loop_avx512<cos_avx512, [](float a) { return cos_f32(a); }, [](float a) { return std::cos(a); }>;
  t.fn[TS_I_ATAN][0] = &loop_avx512<atan_avx512>;
  t.fn[TS_I_SQRT][0] = &loop_avx512<sqrt_avx512>;
  t.fn[TS_I_ERFINV][0] = &erfinv_loop_avx512;
  t.fn[TS_I_LOG][0] = &loop_avx512<log_avx512>;
  t.fn[TS_I_EXP2][0] = &loop_avx512<exp2_avx512>;
  t.fn[TS_I_LOG2][0] = &loop_avx512<log2_avx512>;
  t.fn[TS_I_ERF][0] = &loop_avx512<erf_avx512>;
  t.fn[TS_I_ERFC][0] = &loop_avx512<erfc_avx512>;
  t.fn[kHardsigmoid][0] = &loop_avx512<hardsigmoid_avx512>;
  t.fn[kHardswish][0] = &loop_avx512<hardswish_avx512>;
  t.fn[kSilu][0] = &sigmoid_loop_avx512<times_x>;
  t.fn[kGelu][0] = &loop_avx512<gelu_avx512>;
  t.fn[TS_I_EXP][0] = &loop_avx512<exp_avx512>;
  t.fn[TS_I_EXPM1][0] = &loop_avx512<expm1_avx512>;
  t.fn[kElu][0] = &loop_avx512<elu_avx512>;
  t.fn[TS_I_TANH][0] = &loop_avx512<tanh_avx512>;
  t.fn[TS_I_SIGMOID][0] = &sigmoid_loop_avx512<as_is>;
#elif defined(TESSERACK_CPU_EXP_AVX2)
  t.fn[TS_I_EXP][0] = &loop_avx2<exp_near, exp_f32>;
  t.fn[TS_I_EXP2][0] = &loop_avx2<exp2_near, exp2_f32>;
  t.fn[kSilu][0] = &loop_avx2<silu_near, silu_f32>;
  t.fn[TS_I_SIGMOID][0] = &loop_avx2<sigmoid_near, sigmoid_f32>;
  t.fn[TS_I_ERF][0] = &registers_avx2<erf_avx2>;
  t.fn[kGelu][0] = &registers_avx2<gelu_avx2>;
  t.fn[TS_I_ERFC][0] = &registers_avx2<erfc_avx2>;
#endif
  return t;
}

constinit const OpTable<float> table = make_table();

} // namespace

template <> const OpTable<float>& op_table<float>() { return table; }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
