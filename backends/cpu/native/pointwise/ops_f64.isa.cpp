// float64 instructions of the tile machine.
#include "math/arc_f64.h"
#include "math/double_avx512.h"
#include "math/erfc_f64.h"
#include "math/hyperbolic_f64.h"
#include "math/pow_f64.h"
#include "math/quotient_f64.h"
#include "math/trig_f64.h"
#include "ops_float.h"
#include "split_loop.h"
#include "trig_loops.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

#if defined(__FMA__)
template <auto Fast, auto Slow> int trig_loop(double* out, const double* a, const double*, const double*, int64_t n) {
  trig_split<double, Fast, Slow>(out, a, n, kTrigLimitF64);
  return 0;
}

template <auto Fast, auto Slow> constexpr void set_division(OpTable<double>& t, int op) {
  set_division_loops<double, [](double a, double b) { return divides_f64(a, b); }, Fast, Slow>(t, op);
}
#endif

#if defined(__FMA__) && !defined(TESSERACK_CPU_DOUBLE_AVX512)
// Near takes less than Any where every argument of a part is Within, and gives the same.
template <auto Within, auto Near, auto Any>
int near_loop(double* out, const double* a, const double*, const double*, int64_t n) {
  constexpr int64_t kPart = 128;
  for (int64_t i = 0; i < n; i += kPart) {
    const int64_t count = n - i < kPart ? n - i : kPart;
    int beyond = 0;
    for (int64_t j = 0; j < count; ++j) beyond |= !Within(a[i + j]);
    (beyond == 0 ? &unary_loop<double, Near> : &unary_loop<double, Any>)(out + i, a + i, nullptr, nullptr, count);
  }
  return 0;
}
#endif

// What is next to 1, beyond it or no number goes through the C library.
int erfinv_loop(double* out, const double* a, const double*, const double*, int64_t n) {
  constexpr double kLeast = 2.8e-11; // of 1 - |x|: as far as the quotients reach
  constexpr int64_t kPart = 512;
  double slow[kPart];
  int64_t at[kPart];
  for (int64_t start = 0; start < n; start += kPart) {
    const int64_t count = n - start < kPart ? n - start : kPart;
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
      slow[found] = a[start + i];
      at[found] = start + i;
      found += !(1.0 - std::fabs(a[start + i]) > kLeast);
    }
    split_loop<[](double x) { return erfinv_near_f64(x); }, [](double x) { return erfinv_far_f64(x); }>(
        out + start, a + start, count, kErfinvNear);
    for (int64_t i = 0; i < found; ++i) out[at[i]] = erfinv(slow[i]);
  }
  return 0;
}
int erf_loop(double* out, const double* a, const double*, const double*, int64_t n) {
  split_loop<[](double x) { return erf_near_f64(x); }, [](double x) { return erf_far_f64(x); }>(out, a, n, 1.0);
  return 0;
}

constexpr OpTable<double> make_table() {
  OpTable<double> t{};
  set_float(t);
  set_fused(t);
  set_unary<double, [](double a) { return exp_f64(a); }>(t, TS_I_EXP);
  set_unary<double, [](double a) { return exp2_f64(a); }>(t, TS_I_EXP2);
  set_unary<double, [](double a) { return expm1_f64(a); }>(t, TS_I_EXPM1);
  set_unary<double, [](double a) { return log_f64(a); }>(t, TS_I_LOG);
  set_unary<double, [](double a) { return log2_f64(a); }>(t, TS_I_LOG2);
  set_unary<double, [](double a) { return log10_f64(a); }>(t, TS_I_LOG10);
  set_unary<double, [](double a) { return log1p_f64(a); }>(t, TS_I_LOG1P);
#if defined(__FMA__)
  t.fn[TS_I_SIN][0] = &trig_loop<[](double a) { return sin_f64(a); }, [](double a) { return std::sin(a); }>;
  t.fn[TS_I_COS][0] = &trig_loop<[](double a) { return cos_f64(a); }, [](double a) { return std::cos(a); }>;
  t.fn[TS_I_TAN][0] = &trig_loop<[](double a) { return tan_f64(a); }, [](double a) { return std::tan(a); }>;
  set_division<[](double a, double b) { return fmod_f64(a, b); }, [](double a, double b) { return std::fmod(a, b); }>(
      t, TS_I_FMOD);
  set_division<[](double a, double b) { return mod_f64(a, b); }, [](double a, double b) { return python_mod(a, b); }>(
      t, TS_I_MOD);
  set_division<[](double a, double b) { return floordiv_f64(a, b); },
               [](double a, double b) { return python_floordiv(a, b); }>(t, TS_I_FLOORDIV);
  set_binary<double, [](double a, double b) { return hypot_f64(a, b); }>(t, TS_I_HYPOT);
  set_binary<double, [](double a, double b) { return atan2_f64(a, b); }>(t, TS_I_ATAN2);
#else
  set_unary<double, [](double a) { return std::sin(a); }>(t, TS_I_SIN);
  set_unary<double, [](double a) { return std::cos(a); }>(t, TS_I_COS);
#endif
  set_unary<double, [](double a) { return asin_f64(a); }>(t, TS_I_ASIN);
  set_unary<double, [](double a) { return acos_f64(a); }>(t, TS_I_ACOS);
  set_unary<double, [](double a) { return atan_f64(a); }>(t, TS_I_ATAN);
  set_unary<double, [](double a) { return sinh_f64(a); }>(t, TS_I_SINH);
  set_unary<double, [](double a) { return cosh_f64(a); }>(t, TS_I_COSH);
  set_unary<double, [](double a) { return tanh_f64(a); }>(t, TS_I_TANH);
  set_unary<double, [](double a) { return asinh_f64(a); }>(t, TS_I_ASINH);
  set_unary<double, [](double a) { return acosh_f64(a); }>(t, TS_I_ACOSH);
  set_unary<double, [](double a) { return atanh_f64(a); }>(t, TS_I_ATANH);
  t.fn[TS_I_ERFINV][0] = &erfinv_loop;
  set_unary<double, [](double a) { return sigmoid_f64(a); }>(t, TS_I_SIGMOID);
  t.fn[TS_I_ERF][0] = &erf_loop;
  set_unary<double, [](double a) { return erfc_f64(a); }>(t, TS_I_ERFC);
  // Large and called thrice: the compiler would leave it a function, and the loops without vectors.
  set_binary < double, [](double a, double b) __attribute__((always_inline)) { return pow_f64(a, b); }
  > (t, TS_I_POW);
#ifdef TESSERACK_CPU_DOUBLE_AVX512
  t.fn[TS_I_SQRT][0] = &loop_avx512<sqrt_avx512>;
  t.fn[TS_I_EXP][0] = &loop_avx512<exp_avx512>;
  t.fn[TS_I_LOG][0] = &loop_avx512<log_avx512>;
  t.fn[TS_I_ERF][0] = &loop_avx512<erf_avx512>;
  t.fn[TS_I_ERFC][0] = &loop_avx512<erfc_avx512>;
#elif defined(__FMA__)
  t.fn[TS_I_EXP][0] = &near_loop<[](double a) { return std::fabs(a) < kExpNear; },
                                 [](double a) { return exp_near_f64(a); }, [](double a) { return exp_f64(a); }>;
  t.fn[TS_I_LOG][0] = &near_loop<[](double a) { return (a >= 0x1p-1022) & (a < HUGE_VAL); },
                                 [](double a) { return log_normal_f64(a); }, [](double a) { return log_f64(a); }>;
  t.fn[TS_I_ERFC][0] = &near_loop<[](double a) { return std::fabs(a) < kErfcNear; },
                                  [](double a) { return erfc_near_f64(a); }, [](double a) { return erfc_f64(a); }>;
#endif
  return t;
}

constinit const OpTable<double> table = make_table();

} // namespace

template <> const OpTable<double>& op_table<double>() { return table; }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
