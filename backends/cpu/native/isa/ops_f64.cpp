// float64 instructions of the tile machine.
#include "erfc_f64.h"
#include "ops_float.h"

namespace tesserack::cpu {
inline namespace TESSERACK_VARIANT {
namespace {

constexpr OpTable<double> make_table() {
  OpTable<double> t{};
  set_float(t);
  set_fused(t);
  set_unary<double, [](double a) { return exp_f64(a); }>(t, TS_I_EXP);
  set_unary<double, [](double a) { return std::exp2(a); }>(t, TS_I_EXP2);
  set_unary<double, [](double a) { return std::expm1(a); }>(t, TS_I_EXPM1);
  set_unary<double, [](double a) { return log_f64(a); }>(t, TS_I_LOG);
  set_unary<double, [](double a) { return std::log2(a); }>(t, TS_I_LOG2);
  set_unary<double, [](double a) { return std::log10(a); }>(t, TS_I_LOG10);
  set_unary<double, [](double a) { return std::log1p(a); }>(t, TS_I_LOG1P);
  set_unary<double, [](double a) { return std::sin(a); }>(t, TS_I_SIN);
  set_unary<double, [](double a) { return std::cos(a); }>(t, TS_I_COS);
  set_unary<double, [](double a) { return tanh_f64(a); }>(t, TS_I_TANH);
  set_unary<double, [](double a) { return sigmoid_f64(a); }>(t, TS_I_SIGMOID);
  set_unary<double, [](double a) { return std::erf(a); }>(t, TS_I_ERF);
  set_unary<double, [](double a) { return erfc_f64(a); }>(t, TS_I_ERFC);
  set_binary<double, [](double a, double b) { return std::pow(a, b); }>(t, TS_I_POW);
  return t;
}

constinit const OpTable<double> table = make_table();

} // namespace

template <> const OpTable<double>& op_table<double>() { return table; }

} // namespace TESSERACK_VARIANT
} // namespace tesserack::cpu
