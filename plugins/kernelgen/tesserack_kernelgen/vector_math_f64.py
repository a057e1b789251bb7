"""Functions of vectors of float64: what drivers compute element by element, or not at all, as the cpu card has it.

``V`` is the vector, ``VI`` its integers, ``VU`` those without a sign. Polynomials are minimax fits or Chebyshev's, and
the errors against 50 digits at most 2 units in the last place but for what is said. Branches are for all elements.
What takes products whole is the driver's where processors do not.
"""

from __future__ import annotations

from tesserack_kernelgen.emit import HELPERS, NORMAL_POINTS
from tesserack_kernelgen.vector_math import by_element

__all__ = ["CALLS", "TEXTS"]

_MAD = """#if defined(FP_FAST_FMA) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FUSED 1
DEVICE V mad_vector(V a, V b, V c) { return fma(a, b, c); }
#else
DEVICE V mad_vector(V a, V b, V c) { return a * b + c; }
#endif
DEVICE V copysign_vector(V x, V y) {
  const VU sign = 0x8000000000000000UL;
  return AS_V((AS_VU(x) & ~sign) | (AS_VU(y) & sign));
}"""


def _polynomial(x: str, *coefficients: str) -> str:
    """From the highest power down."""
    text = f"(V)({coefficients[0]})"
    for value in coefficients[1:]:
        text = f"mad_vector({text}, {x}, (V)({value}))"
    return text


def _fused(name: str, arguments: str, body: str, driver: str) -> str:
    """A function that is the driver's where products are not whole."""
    given = ", ".join(f"V {a}" for a in arguments)
    return f"DEVICE V {name}_vector({given}) {{\n#ifdef FUSED\n{body}\n#else\n  return {driver};\n#endif\n}}"


# exp(r) - 1 for |r| <= ln2 / 2, and x = n ln2 + r with n in t
_EXPM1_REDUCED = f"""DEVICE V expm1_reduced(V r) {{
  const V q = {
    _polynomial(
        "r",
        *("0x1.1f95478c9ef76p-29", "0x1.af5ebcba2f3dcp-26", "0x1.27e4c5b378841p-22", "0x1.71ddf8550e1b7p-19"),
        *("0x1.a01a01b0ae039p-16", "0x1.a01a01afe4846p-13", "0x1.6c16c16c1446ep-10", "0x1.111111110f6b0p-7"),
        *("0x1.555555555555ap-5", "0x1.5555555555559p-3", "0.5"),
    )
};
  return mad_vector(q, r * r, r);
}}
#define SPLIT_EXP(x) const V t = mad_vector(x, (V)(0x1.71547652b82fep+0), (V)(0x1.8p52)), n = t - 0x1.8p52; \\
  const V r = mad_vector(n, (V)(-0x1.a39ef35793c76p-33), mad_vector(n, (V)(-0x1.62e42fee00000p-1), x))
#define EXPONENT(t) (AS_VI(t) - 0x4338000000000000L)
#define POWER_OF_2(n) AS_V(((n) + 1023) << 52)
DEVICE V scaled(V x, V t) {{
  const VI i = EXPONENT(t) + 4096, h = AS_VI(AS_VU(i) >> 1);
  return x * POWER_OF_2(h - 2048) * POWER_OF_2(i - h - 2048);
}}"""
_EXP = """DEVICE V exp_vector(V x) {
  const V low = (x < -746.0) ? (V)(-746.0) : x, a = (low > 710.0) ? (V)(710.0) : low;
  SPLIT_EXP(a);
  return scaled(expm1_reduced(r) + 1, t);
}"""
_EXP2 = """DEVICE V exp2_vector(V x) {
  const V low = (x < -1080.0) ? (V)(-1080.0) : x, a = (low > 1025.0) ? (V)(1025.0) : low;
  const V t = a + 0x1.8p52, n = t - 0x1.8p52;
  return scaled(expm1_reduced((a - n) * 0x1.62e42fefa39efp-1) + 1, t);
}"""
# Doubled last, as 2^1023 is the largest power of two.
_EXPM1 = """DEVICE V expm1_vector(V x) {
  const V low = (x < -40.0) ? (V)(-40.0) : x, a = (low > 710.0) ? (V)(710.0) : low;
  SPLIT_EXP(a);
  const V s = POWER_OF_2(EXPONENT(t) - 1), y = 2 * mad_vector(s, expm1_reduced(r), s - 0.5);
  return (fabs(x) < 0x1p-54) ? x : y;
}"""
# 3 units
_TANH = """DEVICE V tanh_vector(V x) {
  const V b = fabs(x), a = (b > 20.0) ? (V)(20.0) : b, e = expm1_vector(-2 * a);
  return copysign_vector(-e / (e + 2), x);
}"""
_SIGMOID = """DEVICE V sigmoid_vector(V x) {
  const V z = exp_vector(-fabs(x));
  return ((x >= 0) ? (V)(1) : z) / (1 + z);
}"""
# Beyond 700 exp may be infinite where its half is not.
_HALF_EXP = """DEVICE V half_exp(V a, V y) {
  const V h = exp_vector(0.5 * a);
  return (a > 700.0) ? 0.5 * h * h : y;
}"""
_SINH = """DEVICE V sinh_vector(V x) {
  const V a = fabs(x), e = expm1_vector(a), z = 0.5 * (e + e / (e + 1)), y = any(a > 700.0) ? half_exp(a, z) : z;
  return (a < 0x1p-28) ? x : copysign_vector(y, x);
}"""
_COSH = """DEVICE V cosh_vector(V x) {
  const V a = fabs(x), z = exp_vector(a), y = 0.5 * z + 0.5 / z;
  return any(a > 700.0) ? half_exp(a, y) : y;
}"""

# x = 2^e (1 + f), 1 + f from sqrt(1/2) to sqrt(2). With s = f / (2 + f) and z = s^2,
# log(1 + f) = f - f^2 / 2 + s (f^2 / 2 + z tail(z)).
_SPLIT_LOG = f"""#define SPLIT_LOG(x) const VI tiny = x < 0x1p-1022; \\
  const VU bits = AS_VU(tiny ? x * 0x1p54 : x) - 0x3fe6a09e667f3bcdUL + (1023UL << 52); \\
  const V f = AS_V((bits & 0xfffffffffffffUL) + 0x3fe6a09e667f3bcdUL) - 1; \\
  const V e = AS_V((bits >> 52) | 0x4330000000000000UL) - (tiny ? (V)(0x1p52 + 1077.0) : (V)(0x1p52 + 1023.0))
DEVICE V log_tail(V z) {{
  return {
    _polynomial(
        "z",
        *("0x1.0f62d78097da8p-3", "0x1.0f5cd0265343cp-3", "0x1.3b20ab347844cp-3", "0x1.745cde3801528p-3"),
        *("0x1.c71c7258f4bf6p-3", "0x1.249249242b4a6p-2", "0x1.9999999999dfep-2", "0x1.5555555555555p-1"),
    )
};
}}
DEVICE V log_limits(V x, V y) {{
  const V below = (x == 0) ? (V)(-INFINITY) : (V)(NAN);
  return (x > 0) ? ((x < INFINITY) ? y : x) : (x != x) ? x : below;
}}"""
_LOG = """DEVICE V log_vector(V x) {
  SPLIT_LOG(x);
  const V s = f / (2 + f), z = s * s, half_f = 0.5 * f * f;
  const V low = mad_vector(e, (V)(0x1.a39ef35793c76p-33), s * (half_f + z * log_tail(z)));
  return log_limits(x, mad_vector(e, (V)(0x1.62e42fee00000p-1), f - (half_f - low)));
}"""
# The logarithm in two parts, the first of half the bits, so that whole powers of the base are exact; after fdlibm.
_LOG_PARTS = """#define LOG_PARTS(x) SPLIT_LOG(x); \\
  const V s = f / (2 + f), z = s * s, half_f = 0.5 * f * f; \\
  const V high = AS_V(AS_VU(f - half_f) & 0xffffffff00000000UL); \\
  const V rest = ((f - high) - half_f) + s * mad_vector(z, log_tail(z), half_f)"""
_LOG2 = """DEVICE V log2_vector(V x) {
  LOG_PARTS(x);
  const V product = high * 0x1.71547652p+0, sum = e + product;
  const V low = mad_vector(rest + high, (V)(0x1.705fc2eefa2p-33), rest * 0x1.71547652p+0);
  return log_limits(x, sum + (low + ((e - sum) + product)));
}"""
_LOG10 = """DEVICE V log10_vector(V x) {
  LOG_PARTS(x);
  const V product = high * 0x1.bcb7b152p-2, whole = e * 0x1.34413509f78p-2, sum = whole + product;
  const V part = mad_vector(rest + high, (V)(0x1.b9438ca9aadd5p-36), rest * 0x1.bcb7b152p-2);
  const V low = mad_vector(e, (V)(0x1.fef311f12b358p-46), part);
  return log_limits(x, sum + (low + ((whole - sum) + product)));
}"""
# What rounding 1 + x lost comes back as its share of the logarithm's slope.
_LOG1P = """DEVICE V log1p_vector(V x) {
  const V u = 1 + x, lost = (x < 1) ? x - (u - 1) : 1 - (u - x), y = log_vector(u);
  const V corrected = ((u > 0) & (u < INFINITY)) ? y + lost / u : y;
  return (fabs(x) < 0x1p-54) ? x : corrected;
}"""
_ATANH = """DEVICE V atanh_vector(V x) {
  const V a = fabs(x), y = 0.5 * log1p_vector(2 * a / (1 - a));
  return copysign_vector((a == 1) ? (V)(INFINITY) : y, x);
}"""
# Where squares would overflow, log(2 a).
_ASINH = """DEVICE V asinh_vector(V x) {
  const V a = fabs(x), z = a * a, y = log1p_vector(a + z / (1 + sqrt(1 + z)));
  return copysign_vector(any(a > 0x1p500) ? ((a > 0x1p500) ? log_vector(a) + 0x1.62e42fefa39efp-1 : y) : y, x);
}"""
_ACOSH = """DEVICE V acosh_vector(V x) {
  const V a = x - 1, y = log1p_vector(a + sqrt(a * (a + 2)));
  const V z = any(x > 0x1p500) ? ((x > 0x1p500) ? log_vector(x) + 0x1.62e42fefa39efp-1 : y) : y;
  return (x < 1) ? (V)(NAN) : z;
}"""

# Below 1 x + x q(x^2), above it 1 - erfc.
_ERF = f"""DEVICE V erf_vector(V x) {{
  const V z = x * x, q = {
    _polynomial(
        "z",
        *("-0x1.29b9f1b3df556p-38", "0x1.7f072188e194dp-34", "-0x1.4e607b41a6416p-30", "0x1.fc4356498c2d9p-27"),
        *("-0x1.5f6d925a0bc7ap-23", "0x1.b9e6509b9867dp-20", "-0x1.f4d2561aeafd4p-17", "0x1.f9a326c233146p-14"),
        *("-0x1.c02db3feeb579p-11", "0x1.565bcd0e6502dp-8", "-0x1.b82ce312889bap-6", "0x1.ce2f21a042bdep-4"),
        *("-0x1.812746b0379e7p-2", "0x1.06eba8214db69p-3"),
    )
};
  const V near = mad_vector(x, q, x), a = fabs(x);
  if (all(a < 1)) return near;
  return (a < 1) ? near : copysign_vector(1 - erfc_vector(a), x);
}}"""
# exp(-a^2) / (1 + 2 a) p((a - 3) / (a + 3)); one division serves both quotients, and the square is taken in two parts.
# 5 units, near 0.
_ERFC = f"""DEVICE V erfc_vector(V x) {{
  const V whole = fabs(x), a = (whole > 27.3) ? (V)(27.3) : whole;
  const V b = a + 3, c = 1 + 2 * a, r = 1 / (b * c), t = (a - 3) * c * r;
  const V p = {
    _polynomial(
        "t",
        *("0x1.32f916d7f24bap-31", "0x1.4506fff442275p-32", "-0x1.05aac0c41f5f7p-27", "-0x1.703abbbe34070p-27"),
        *("0x1.60d95cb4ecaebp-25", "0x1.a331fbdb48692p-24", "-0x1.306ed7718ab49p-23", "-0x1.48edb7639c1ecp-21"),
        *("0x1.7fecf28a61665p-22", "0x1.d1bfc39a95099p-19", "-0x1.890959090a61ep-21", "-0x1.5137874a8ac3dp-16"),
        *("0x1.4c2b9e952f690p-18", "0x1.065a168ff926fp-13", "-0x1.b91289739688ap-14", "-0x1.98db4fb0af7c3p-11"),
        *("0x1.ef1bdd6f30d1dp-10", "0x1.4b884e3b08132p-9", "-0x1.8574c40bf8dc6p-6", "0x1.17ca2877f5227p-4"),
        *("-0x1.e88b803a48d95p-4", "0x1.098366a5b45e9p-3", "-0x1.85a15c58aa5f0p-5", "-0x1.15c084bb9e8f3p-3"),
        "0x1.40c522d7e4987p+0",
    )
};
  const V high = AS_V(AS_VU(a) & ~0x7ffffffUL), z = (a - high) * (a + high);
  const V y = exp_vector(-high * high) * (p * (b * r));
  const V tail = mad_vector(-y, z * mad_vector(z, mad_vector(z, (V)(1.0 / 6), (V)(-0.5)), (V)(1)), y);
  return (x < 0) ? 2 - tail : tail;
}}"""


# One division for all three quotients. 4 units.
def _quotient(region: int) -> str:
    over, under = (_polynomial("r", *coefficients) for coefficients in NORMAL_POINTS[region])
    return f"over = ({over}), under = ({under})"


def _erfinv_beyond(region: int, least: str) -> str:
    return f"""const VI beyond = {least};
      const V {_quotient(region)};
      top = beyond ? copysign_vector(over, x) : top;
      bottom = beyond ? under : bottom;"""


_ERFINV = f"""DEVICE V erfinv_vector(V x) {{
  const V a = fabs(x);
  V top, bottom;
  {{
    const V r = 0.180625 - 0.25 * x * x, {_quotient(0)};
    top = 0.5 * x * over;
    bottom = under;
  }}
  if (any(a >= 0.85)) {{
    const V root = sqrt(-log_vector(0.5 * (1 - a)));
    {{
      const V r = root - 1.6;
      {_erfinv_beyond(1, "a >= 0.85")}
    }}
    if (any(root >= 5)) {{
      const V r = root - 5;
      {_erfinv_beyond(2, "(a >= 0.85) & (root >= 5)")}
    }}
  }}
  const V y = 0x1.6a09e667f3bcdp-1 * (top / bottom);
  return (a < 1) ? y : (a == 1) ? copysign_vector((V)(INFINITY), x) : (V)(NAN);
}}"""

# x less a multiple of pi / 2, in two parts; the multiple, in t, is taken off in three parts of 53 bits.
_PERIODIC = f"""
#define SPLIT_PERIODIC(x) const V t = mad_vector(x, (V)(0x1.45f306dc9c883p-1), (V)(0x1.8p52)), n = t - 0x1.8p52; \\
  const V first = mad_vector(n, (V)(-0x1.921fb54442d18p+0), x), product = n * 0x1.1a62633145c07p-54; \\
  const V lost = mad_vector(n, (V)(0x1.1a62633145c07p-54), -product), r = first - product, back = first - r; \\
  const V low = ((first - (r + back)) + (back - product)) - mad_vector(n, (V)(-0x1.f1976b7ed8fbcp-110), lost)
DEVICE V sin_reduced(V r, V low) {{
  const V z = r * r, p = {
    _polynomial(
        "z",
        *("1.0 / 355687428096000", "-1.0 / 1307674368000", "1.0 / 6227020800", "-1.0 / 39916800", "1.0 / 362880"),
        *("-1.0 / 5040", "1.0 / 120", "-1.0 / 6"),
    )
};
  return r + mad_vector(r * z, p, low * mad_vector(z, (V)(-0.5), (V)(1)));
}}
DEVICE V cos_reduced(V r, V low) {{
  const V z = r * r, half_z = 0.5 * z, w = 1 - half_z, p = {
    _polynomial(
        "z",
        *("1.0 / 20922789888000", "-1.0 / 87178291200", "1.0 / 479001600", "-1.0 / 3628800", "1.0 / 40320"),
        *("-1.0 / 720", "1.0 / 24"),
    )
};
  return w + (((1 - w) - half_z) + mad_vector(z * z, p, -r * low));
}}"""
_NEAR = "(fabs(x) < 1e6)"


def _periodic(name: str, value: str) -> str:
    body = f"  SPLIT_PERIODIC(x);\n  const VU k = AS_VU(t);\n  {value}\n{by_element(name + '({})', _NEAR, 'x')}"
    return _fused(name, "x", body, f"{name}(x)")


def _sin(shift: str, zero: str) -> str:
    return f"""const VU quadrant = k + {shift};
  const V c = (AS_VI(quadrant << 63) < 0) ? cos_reduced(r, low) : sin_reduced(r, low);
  const V y = (x == 0) ? {zero} : AS_V(AS_VU(c) ^ ((quadrant & 2) << 62));"""


_TAN = """const V s = sin_reduced(r, low), c = cos_reduced(r, low);
  const VI odd = AS_VI(k << 63) < 0;
  const V y = (x == 0) ? x : (odd ? -c : s) / (odd ? s : c);"""

# asin and acos of x itself up to 1/2, beyond by the root of (1 - |x|) / 2, whose rounding comes back (fdlibm).
_ARC = f"""#define ARC(x) const V a = fabs(x); const VI near = a < 0.5; \\
  const V z = near ? x * x : 0.5 * (1 - a), ratio = z * arc_tail(z), s = sqrt(z); \\
  const V root = AS_V(AS_VU(s) & 0xffffffff00000000UL), off = (z - root * root) / (s + root), lost = (s == 0) ? s : off
DEVICE V arc_tail(V z) {{
  return {
    _polynomial(
        "z",
        *("0x1.d72b2bc8155f8p-6", "-0x1.e6aaa8a0a04ccp-7", "0x1.1d189408314eep-6", "0x1.65a9c4dfcf8b2p-8"),
        *("0x1.52420b04b37bep-7", "0x1.782651caa6547p-7", "0x1.c9cf07674736ap-7", "0x1.1c4d35cf95421p-6"),
        *("0x1.6e8bb1c8209a2p-6", "0x1.f1c71c1db0623p-6", "0x1.6db6db6e31f13p-5", "0x1.3333333332ecap-4"),
        "0x1.5555555555556p-3",
    )
};
}}"""
_ASIN = """DEVICE V asin_vector(V x) {
  ARC(x);
  const V quarter = 0x1.921fb54442d18p-1, twice = 2 * root, high = quarter - twice, rest = (quarter - high) - twice;
  const V low = (twice + 2 * lost) * ratio - (0x1.1a62633145c07p-54 - 2 * lost) - rest;
  return near ? x + x * ratio : copysign_vector(quarter + (high - low), x);
}"""
_ACOS = """DEVICE V acos_vector(V x) {
  ARC(x);
  const V t = ratio * (root + lost) + lost, quarter = 0x1.921fb54442d18p+0;
  const V large = (x < 0) ? 2 * (quarter - (root + (t - 0x1.1a62633145c07p-54))) : 2 * (root + t);
  return near ? quarter - (x - (0x1.1a62633145c07p-54 - x * ratio)) : large;
}"""
# Less the angle whose tangent is 1/2, 1, 3/2 or infinite, what is left has a tangent of at most 7/16.
_ATAN_TAIL = f"""DEVICE V atan_tail(V z) {{
  return {
    _polynomial(
        "z",
        *("0x1.e4167464d3de8p-7", "-0x1.0f62bba6a2558p-5", "0x1.7001816fd063fp-5", "-0x1.ab59b417b2d3fp-5"),
        *("0x1.e170800a46210p-5", "-0x1.110c9ce7b0572p-4", "0x1.3b1375ce5bdc6p-4", "-0x1.745d154c84f7ap-4"),
        *("0x1.c71c71bd2b8bcp-4", "-0x1.2492492485503p-3", "0x1.99999999998c5p-3", "-0x1.5555555555555p-2"),
    )
};
}}"""
_ATAN = """DEVICE V atan_vector(V x) {
  const V a = fabs(x);
  const VI one = a >= 0x1.6p-1, more = a >= 0x1.3p+0, far = a >= 0x1.38p+1, none = a < 0x1.cp-2;
  const V c = none ? (V)(0) : more ? (V)(1.5) : one ? (V)(1) : (V)(0.5);
  const V base = more ? (V)(0x1.f730bd281f69bp-1) : one ? (V)(0x1.921fb54442d18p-1) : (V)(0x1.dac670561bb4fp-2);
  const V rest = more ? (V)(0x1.007887af0cbbdp-56) : one ? (V)(0x1.1a62633145c07p-55) : (V)(0x1.a2b7f222f65e2p-56);
  const V t = (far ? (V)(-1) : a - c) / (far ? a : mad_vector(a, c, (V)(1))), z = t * t;
  const V whole = far ? (V)(0x1.921fb54442d18p+0) : none ? (V)(0) : base;
  const V low = far ? (V)(0x1.1a62633145c07p-54) : none ? (V)(0) : rest;
  return copysign_vector(whole + (t + mad_vector(t * z, atan_tail(z), low)), x);
}"""

# Of both, scaled by a power of two so that neither their squares nor sums leave the range.
_SCALED = """#define SCALED(a, b, above, down) const V x_ = fabs(a), y_ = fabs(b); \\
  const V most = (x_ > y_) ? x_ : y_, least = (x_ > y_) ? y_ : x_; \\
  const VI big = most > (above), little = most < 1 / (above); \\
  const V by = big ? (V)(down) : little ? (V)(1 / (down)) : (V)(1); \\
  const V after = big ? (V)(1 / (down)) : little ? (V)(down) : (V)(1)"""
# The root's rounding and that of what it was taken from come back (Borges, "An improved algorithm for hypot(a, b)").
_HYPOT = _fused(
    "hypot",
    "ab",
    """  SCALED(a, b, 0x1p500, 0x1p-600);
  const V large = most * by, small = least * by;
  const V square = large * large, sum = mad_vector(small, small, square), h = sqrt(sum), hh = h * h;
  const V off = mad_vector(-small, small, hh - square) + mad_vector(h, h, -hh) - mad_vector(large, large, -square);
  const V y = ((large == 0) ? (V)(0) : h - off / (h + h)) * after;
  return ((x_ == INFINITY) | (y_ == INFINITY)) ? (V)(INFINITY) : (a != a) ? a : (b != b) ? b : y;""",
    "hypot(a, b)",
)
# As atan has it, of the smaller by the larger: less the angle whose tangent is 1/2 or 1. Of the angle base + t + tail:
# itself, or what it leaves of a quarter turn; and of that, what it leaves of half a one.
_ATAN2 = _fused(
    "atan2",
    "yx",
    """  SCALED(y, x, 0x1p1000, 0x1p-60);
  const VI steep = fabs(y) > fabs(x), equal = fabs(y) == fabs(x), infinite = most == INFINITY;
  const V small = equal ? ((most == 0) ? (V)(0) : (V)(1)) : infinite ? (V)(0) : least * by;
  const V large = (equal | infinite) ? (V)(1) : most * by;
  const VI none = small < 0x1.cp-2 * large, one = small >= 0x1.6p-1 * large;
  const V c = none ? (V)(0) : one ? (V)(1) : (V)(0.5);
  const V t = mad_vector(-c, large, small) / mad_vector(c, small, large);
  const V base = none ? (V)(0) : one ? (V)(0x1.921fb54442d18p-1) : (V)(0x1.dac670561bb4fp-2);
  const V rest = none ? (V)(0) : one ? (V)(0x1.1a62633145c07p-55) : (V)(0x1.a2b7f222f65e2p-56);
  const V tail = mad_vector(t * (t * t), atan_tail(t * t), rest);
  const V sign = steep ? (V)(-1) : (V)(1);
  const V high = (steep ? (V)(0x1.921fb54442d18p+0) : (V)(0)) + sign * base;
  const V low = (steep ? (V)(0x1.1a62633145c07p-54) : (V)(0)) + sign * tail;
  const VI behind = AS_VI(x) < 0;
  const V over = behind ? (V)(-1) : (V)(1);
  const V all_high = (behind ? (V)(0x1.921fb54442d18p+1) : (V)(0)) + over * high;
  const V all_low = (behind ? (V)(0x1.1a62633145c07p-53) : (V)(0)) + over * low;
  return (x != x) ? x : (y != y) ? y : copysign_vector(all_high + (over * sign * t + all_low), y);""",
    "atan2(y, x)",
)

# The quotient may round up to the next whole number; what is left then has the other sign. It is exact either way.
_DIVIDE = """#define DIVIDE(a, b) const V cut = trunc(a / b), left = mad_vector(-cut, b, a); \\
  const VI over = (left != 0) & ((left < 0) != (a < 0)); \\
  const V q = over ? cut - (((a < 0) != (b < 0)) ? (V)(-1) : (V)(1)) : cut; \\
  const V rest = copysign_vector(over ? left + copysign_vector(b, a) : left, a)"""
_DIVIDES = "((fabs(a / b) < 0x1p51) & (fabs(b) < INFINITY))"
_FMOD = _fused(
    "fmod",
    "ab",
    f"  DIVIDE(a, b);\n  const V y = rest;\n{by_element('fmod({}, {})', _DIVIDES, 'ab')}",
    "fmod(a, b)",
)
_MOD = """DEVICE V mod_vector(V a, V b) {
  const V r = fmod_vector(a, b);
  return ((r != 0) & ((b < 0) != (r < 0))) ? r + b : r;
}"""
_FLOORDIV = f"""{HELPERS["f64"]["floordiv"]}
DEVICE V floordiv_vector(V a, V b) {{
#ifdef FUSED
  DIVIDE(a, b);
  const V lower = ((rest != 0) & ((b < 0) != (rest < 0))) ? q - 1 : q;
  const V y = (lower == 0) ? copysign_vector((V)(0), a / b) : lower;
  const VI near = {_DIVIDES};
#else
  const V y = a;
  const VI near = 0;
#endif
{by_element("floordiv_f64({}, {})", "near", "ab")}
}}"""

# The logarithm as a sum of two numbers, to 2^-64 of it, and exp of its product with the exponent. Less than a unit.
_POW = _fused(
    "pow",
    "xy",
    f"""  const V ax = fabs(x);
  SPLIT_LOG(ax);
  const V d = 2 + f, d_low = f - (d - 2), inverse = 1 / d;
  const V s = f * inverse, s_low = inverse * (mad_vector(-s, d, f) - s * d_low);
  const V z = s * s, z_low = mad_vector(s, s, -z) + 2 * s * s_low;
  const V tail = {_polynomial("z", *(f"2.0 / {k}" for k in range(25, 4, -2)))};
  const V cube = s * z, cube_low = mad_vector(s, z, -cube) + (s * z_low + s_low * z);
  const V third = 2.0 / 3, u = cube * third;
  const V u_low = mad_vector(cube, third, -u) + (cube * 0x1.5555555555555p-55 + cube_low * third);
  const V b = 2 * s, sum = b + u, sum_low = (u - (sum - b)) + (2 * s_low + (u_low + cube * z * tail));
  const V c = e * 0x1.62e42fee00000p-1, whole_sum = c + sum, part = sum - (whole_sum - c);
  const V part_low = part + (sum_low + e * 0x1.a39ef35793c76p-33);
  const V high = whole_sum + part_low, low = part_low - (high - whole_sum);
  const V product = y * high;
  const VI far = fabs(product) > 800.0;
  const V product_low = far ? (V)(0) : mad_vector(y, high, -product) + y * low;
  const V above = (product < -800.0) ? (V)(-800.0) : product, given = (above > 800.0) ? (V)(800.0) : above;
  const V t = mad_vector(given, (V)(0x1.71547652b82fep+0), (V)(0x1.8p52)), n = t - 0x1.8p52;
  const V r_high = mad_vector(n, (V)(-0x1.62e42fee00000p-1), given);
  const V r_low = mad_vector(n, (V)(-0x1.a39ef35793c76p-33), product_low), r = r_high + r_low;
  V power = scaled(expm1_reduced(r) + (r_low - (r - r_high)) + 1, t);
  power = ((ax == 0) | (ax == INFINITY)) ? (((y < 0) == (ax == 0)) ? (V)(INFINITY) : (V)(0)) : power;
  const VI whole = floor(y) == y, odd = whole & (floor(y * 0.5) != y * 0.5);
  power = ((AS_VI(x) < 0) & odd) ? -power : power;
  power = ((x < 0) & ~whole & (ax < INFINITY)) ? (V)(NAN) : power;
  power = ((x != x) | (y != y)) ? x + y : power;
  return ((y == 0) | (x == 1) | ((x == -1) & (fabs(y) == INFINITY))) ? (V)(1) : power;""",
    "pow(x, y)",
)

# Reflection below 0, the recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18).
_DIGAMMA = """DEVICE V digamma_vector(V given) {
  V x = given, sum = 0;
  if (any(given < 0)) {
    const V part = x - rint(x), below = -3.14159265358979323846 / tan_vector(3.14159265358979323846 * part);
    sum = (given < 0) ? (part == 0) ? (V)(NAN) : below : sum;
    x = (given < 0) ? 1 - x : x;
  }
  const V reflected = sum;
  sum = 0;
  while (any(x < 10)) {
    sum = (x < 10) ? sum - 1 / x : sum;
    x = (x < 10) ? x + 1 : x;
  }
  const V r = 1 / x, z = r * r;
  V y = 7.5757575757575758e-3 - z * (2.1092796092796093e-2 - z * 8.3333333333333333e-2);
  y = 3.9682539682539683e-3 - z * (4.1666666666666667e-3 - z * y);
  y = z * (8.3333333333333333e-2 - z * (8.3333333333333333e-3 - z * y));
  const V found = log_vector(x) - 0.5 * r - y + sum + reflected;
  return (given == 0) ? copysign_vector((V)(INFINITY), -given) : (given == -INFINITY) ? (V)(NAN) : found;
}"""

# log(gamma(2 + y)) for |y| <= 1/2, to which the recurrence leads from 0 to 8; then Stirling's series. 3 units; below 0,
# by reflection, as many of the larger part.
_LGAMMA = f"""DEVICE V lgamma_near_2(V y) {{
  return y * {
    _polynomial(
        "y",
        *("-0x1.1be56b7e101c6p-23", "0x1.2b4bb069ee6a9p-22", "-0x1.d06b46182e294p-22", "0x1.edf317afe0c72p-21"),
        *("-0x1.125408d7ee6ebp-19", "0x1.2640a5e8ab73ep-18", "-0x1.3cb5f201754a6p-17", "0x1.5806d7786fbc2p-16"),
        *("-0x1.78de85fa0bf74p-15", "0x1.a127dd231f4b2p-14", "-0x1.d3fd4bda4f97bp-13", "0x1.0b36af3424c50p-11"),
        *("-0x1.38ac5c2c96006p-10", "0x1.7add6eae5b8fdp-9", "-0x1.e404fc218ecffp-8", "0x1.51322ac7d7fd2p-6"),
        *("-0x1.13e001a557607p-4", "0x1.4a34cc4a60fa7p-2", "0x1.b0ee6072093cep-2"),
    )
};
}}
DEVICE V lgamma_positive(V x) {{
  const VI far = x >= 8;
  V at = x, base = 2, product = 1;  // x - base is exact
  for (i32 k = 0; k < 2; ++k) {{
    const VI below = at < 1.5;
    product = below ? product * at : product;
    at = below ? at + 1 : at;
    base = below ? base - 1 : base;
  }}
  for (VI above = ~far & (at > 2.5); any(above); above = ~far & (at > 2.5)) {{
    at = above ? at - 1 : at;
    base = above ? base + 1 : base;
    product = above ? product * at : product;
  }}
  const V l = log_vector(far ? x : product), y_near = lgamma_near_2(x - base);
  const V near = (base == 2) ? y_near : (x < 2) ? y_near - l : y_near + l;
  const V r = 1 / x, z = r * r;
  V series = 1.9175269175269175e-3 - z * (6.4102564102564103e-3 - z * 2.9550653594771242e-2);
  series = 7.9365079365079365e-4 - z * (5.9523809523809524e-4 - z * (8.4175084175084175e-4 - z * series));
  series = r * (8.3333333333333333e-2 - z * (2.7777777777777778e-3 - z * series));
  const V y = (x - 0.5) * (l - 1) + (0.41893853320467274 + series);
  return far ? (x == INFINITY) ? x : y : near;
}}
DEVICE V lgamma_vector(V x) {{
  const V a = fabs(x);
  V y = lgamma_positive(a);
  if (any(x < 0)) {{
    const V part = a - rint(a), s = fabs(sin_vector(3.14159265358979323846 * part));
    const V below = (a < 0x1p-60) ? y : log_vector(3.14159265358979323846 / (a * s)) - y;
    y = (x < 0) ? below : y;
  }}
  y = ((x <= 0) & (floor(x) == x)) ? (V)(INFINITY) : y;
  return (x - x != 0) ? x * x : y;
}}"""

_REDUCED = ("_mad", "_expm1_reduced")
TEXTS = {
    "_mad": _MAD,
    "_expm1_reduced": _EXPM1_REDUCED,
    "exp": _EXP,
    "exp2": _EXP2,
    "expm1": _EXPM1,
    "tanh": _TANH,
    "sigmoid": _SIGMOID,
    "_half_exp": _HALF_EXP,
    "sinh": _SINH,
    "cosh": _COSH,
    "_split_log": _SPLIT_LOG,
    "log": _LOG,
    "_log_parts": _LOG_PARTS,
    "log2": _LOG2,
    "log10": _LOG10,
    "log1p": _LOG1P,
    "atanh": _ATANH,
    "asinh": _ASINH,
    "acosh": _ACOSH,
    "erfc": _ERFC,
    "erf": _ERF,
    "erfinv": _ERFINV,
    "_periodic": _PERIODIC,
    "sin": _periodic("sin", _sin("0", "x")),
    "cos": _periodic("cos", _sin("1", "(V)(1)")),
    "tan": _periodic("tan", _TAN),
    "_arc": _ARC,
    "asin": _ASIN,
    "acos": _ACOS,
    "_atan_tail": _ATAN_TAIL,
    "atan": _ATAN,
    "_scaled": _SCALED,
    "hypot": _HYPOT,
    "atan2": _ATAN2,
    "_divide": _DIVIDE,
    "fmod": _FMOD,
    "mod": _MOD,
    "floordiv": _FLOORDIV,
    "pow": _POW,
    "digamma": _DIGAMMA,
    "lgamma": _LGAMMA,
}
CALLS = {
    **dict.fromkeys(("exp", "exp2", "expm1"), _REDUCED),
    "_half_exp": ("exp",),
    **dict.fromkeys(("sinh", "cosh"), ("_half_exp", "expm1")),
    "tanh": ("expm1",),
    **dict.fromkeys(("sigmoid", "erfc"), ("exp",)),
    "_split_log": ("_mad",),
    "log": ("_split_log",),
    "_log_parts": ("_split_log",),
    **dict.fromkeys(("log2", "log10"), ("_log_parts",)),
    "log1p": ("log",),
    **dict.fromkeys(("atanh", "asinh", "acosh"), ("log1p",)),
    "erf": ("erfc",),
    "erfinv": ("log",),
    "_periodic": ("_mad",),
    **dict.fromkeys(("sin", "cos", "tan"), ("_periodic",)),
    "_arc": ("_mad",),
    **dict.fromkeys(("asin", "acos"), ("_arc",)),
    "_atan_tail": ("_mad",),
    "atan": ("_atan_tail",),
    "hypot": ("_mad", "_scaled"),
    "atan2": ("_atan_tail", "_scaled"),
    "fmod": ("_mad", "_divide"),
    "mod": ("fmod",),
    "floordiv": ("_mad", "_divide"),
    "pow": (*_REDUCED, "_split_log"),
    "digamma": ("log", "tan"),
    "lgamma": ("log", "sin"),
}
