#include "ops/pointwise/functions.h"

namespace ts::pointwise {
namespace {

using Args = std::span<const Expr>;

constexpr NamedFunction kFunctions[] = {
    {"trigamma", 1, [](Args a) { return trigamma(a[0]); }},
    {"zeta", 2, [](Args a) { return zeta(a[0], a[1]); }},
    {"erfcx", 1, [](Args a) { return erfcx(a[0]); }},
    {"ndtri", 1, [](Args a) { return ndtri(a[0]); }},
    {"airy_ai", 1, [](Args a) { return airy_ai(a[0]); }},
    {"bessel_j0", 1, [](Args a) { return bessel_j(0, a[0]); }},
    {"bessel_j1", 1, [](Args a) { return bessel_j(1, a[0]); }},
    {"bessel_y0", 1, [](Args a) { return bessel_y(0, a[0]); }},
    {"bessel_y1", 1, [](Args a) { return bessel_y(1, a[0]); }},
    {"i0e", 1, [](Args a) { return bessel_i_scaled(0, a[0]); }},
    {"i1e", 1, [](Args a) { return bessel_i_scaled(1, a[0]); }},
    {"k0", 1, [](Args a) { return bessel_k(0, a[0], false); }},
    {"k1", 1, [](Args a) { return bessel_k(1, a[0], false); }},
    {"k0e", 1, [](Args a) { return bessel_k(0, a[0], true); }},
    {"k1e", 1, [](Args a) { return bessel_k(1, a[0], true); }},
};

} // namespace

const NamedFunction* find_function(std::string_view name) {
  for (const NamedFunction& f : kFunctions)
    if (name == f.name) return &f;
  return nullptr;
}

} // namespace ts::pointwise
