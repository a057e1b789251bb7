"""Functions of vectors of float32 where drivers have none, slow ones or wrong ones.

``V`` is the vector, ``VI`` its integers, ``VD`` its float64. Polynomials are minimax fits, and the errors, found by
running over every 997th float32, at most 2 units in the last place but for what is said. Branches are for all elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

__all__ = ["BINARY", "CALLS", "DOUBLE", "TEXTS", "by_element", "needed", "own", "types"]


def types(vector: Callable[[str, int], str], c: str, lanes: int, fp64: bool) -> str:
    """What functions and programs are written in: vectors of C type ``c``, by the dialect's names of types."""
    v, vi, vu = (vector(kind + c[1:], lanes) for kind in "fiu")
    vd = vector("f64", lanes) if fp64 else ""
    doubles = f"typedef {vd} VD;\n#define TO_VD(x) convert_{vd}(x)\n" if fp64 else ""
    return f"""{doubles}typedef {v} V;
typedef {vi} VI;
typedef {vu} VU;
typedef {c} ELEMENT;
typedef i{c[1:]} INTEGER;
#define TO_V(x) convert_{v}(x)
#define TO_VI(x) convert_{vi}(x)
#define AS_V(x) as_{v}(x)
#define AS_VI(x) as_{vi}(x)
#define AS_VU(x) as_{vu}(x)
#define LOAD_V(p) vload{lanes}(0, p)
#define STORE_V(x, p) vstore{lanes}(x, 0, p)
#define LANES {lanes}"""


# Products of x are exact only where the processor has them; elsewhere fma would be computed by integers.
_MAD = """#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FUSED 1
DEVICE V mad_vector(V a, V b, V c) { return fma(a, b, c); }
#else
DEVICE V mad_vector(V a, V b, V c) { return a * b + c; }
#endif"""


def _polynomial(x: str, *coefficients: str) -> str:
    """From the highest power down."""
    text = f"(V)({coefficients[0]}f)"
    for value in coefficients[1:]:
        text = f"mad_vector({text}, {x}, {value}f)"
    return text


def by_element(call: str, near: str, arguments: Iterable[str]) -> str:
    """Statements that return ``y``, whose elements where ``near`` does not hold are computed by ``call`` one by one."""
    names = list(arguments)
    given = "".join(f"  ELEMENT of_{name}[LANES]; STORE_V({name}, of_{name});\n" for name in names)
    one = call.format(*(f"of_{name}[j]" for name in names))
    return f"""  if (all({near})) return y;
{given}  ELEMENT taken[LANES]; STORE_V(y, taken);
  INTEGER is_near[LANES]; STORE_V({near}, is_near);
  for (i32 j = 0; j < LANES; ++j) if (!is_near[j]) taken[j] = {one};
  return LOAD_V(taken);"""


# exp(r) - 1 for |r| <= ln2 / 2, and x = n ln2 + r with n in t
_EXPM1_REDUCED = f"""DEVICE V expm1_reduced(V r) {{
  const V q = {_polynomial("r", "0x1.6d9970p-10", "0x1.1227f8p-7", "0x1.555486p-5", "0x1.5554b0p-3", "0.5")};
  return mad_vector(q, r * r, r);
}}
#define SPLIT_EXP(x) const V t = mad_vector(x, 0x1.715476p+0f, 0x1.8p23f), m = t - 0x1.8p23f; \\
  const V r = mad_vector(m, -0x1.7f7d1cp-20f, mad_vector(m, -0x1.62e4p-1f, x))"""

# (exp(x) - 1) / 4 for -25 <= x <= 89.7, a quarter so that nothing overflows before its time
_EXPM1_QUARTER = """DEVICE V expm1_quarter(V x) {
  SPLIT_EXP(x);
  const V s = AS_V((AS_VI(t) - 0x4b400000 + 125) << 23);
  return mad_vector(s, expm1_reduced(r), s - 0.25f);
}"""

# Two factors, so that the exponent of either alone stays in range
_EXP = """DEVICE V exp_vector(V x) {
  const V low = (x < -104.0f) ? -104.0f : x, a = (low > 89.0f) ? 89.0f : low;
  SPLIT_EXP(a);
  const VI n = AS_VI(t) - 0x4b400000, h = n >> 1;
  return (expm1_reduced(r) + 1) * AS_V((h + 127) << 23) * AS_V((n - h + 127) << 23);
}"""

_EXPM1 = """DEVICE V expm1_vector(V x) {
  const V low = (x < -25.0f) ? -25.0f : x;
  return (x == 0) ? x : 4 * expm1_quarter((low > 89.7f) ? 89.7f : low);
}"""

# The quotient is corrected once by its remainder.
_TANH = """DEVICE V tanh_vector(V x) {
  const V b = fabs(x), a = (b > 10.0f) ? 10.0f : b;
  const V e = 4 * expm1_quarter(-2 * a), d = e + 2, low = (2 - d) + e;
  const V r = 1 / d, q = -e * r;
  return copysign(mad_vector(r, mad_vector(-q, d, -e) - q * low, q), x);
}"""

_SINH = """DEVICE V sinh_vector(V x) {
  const V b = fabs(x), q = expm1_quarter((b > 89.7f) ? 89.7f : b), e = fmin(4 * q, 1e30f);
  const V y = mad_vector(0.5f, e / (e + 1), 2 * q);
  return (b < 0x1p-12f) ? x : (x != x) ? x : copysign(y, x);
}"""

_COSH = """DEVICE V cosh_vector(V x) {
  const V b = fabs(x), q = expm1_quarter((b > 89.7f) ? 89.7f : b), e = 4 * q + 1;
  return 2 * q + (0.5f + 0.5f / e);
}"""

# x = 2^e (1 + f), 1 + f from sqrt(1/2) to sqrt(2); log(1 + f) = f + tail
_SPLIT_LOG = f"""#define SPLIT_LOG(x, e0) const VI t = AS_VI(x) - 0x3f3504f3; \\
  const V e = TO_V(t >> 23) - (e0), f = AS_V((t & 0x7fffff) + 0x3f3504f3) - 1, s = f * f
DEVICE V log_tail(V f, V s) {{
  const V p = {
    _polynomial(
        "f",
        *("0x1.1b421cp-4", "-0x1.e2e940p-4", "0x1.e650b2p-4", "-0x1.fb4342p-4", "0x1.2332c0p-3", "-0x1.5562e2p-3"),
        *("0x1.99a546p-3", "-0x1.ffffeep-3", "0x1.555546p-2"),
    )
};
  return mad_vector(s, -0.5f, s * f * p);
}}
DEVICE V log_limits(V x, V y) {{
  const V below = (x == 0) ? (V)(-INFINITY) : (V)(NAN);
  return (x > 0) ? ((x < INFINITY) ? y : x) : (x != x) ? x : below;
}}"""

_LOG2 = """DEVICE V log2_vector(V x) {
  const V small = (x < 0x1p-126f) ? (V)(1) : (V)(0), given = (x < 0x1p-126f) ? x * 0x1p23f : x;
  SPLIT_LOG(given, 23 * small);
  const V tail = log_tail(f, s), low = mad_vector(f, 0x1.4ae0cp-26f, tail * 0x1.715476p+0f);
  return log_limits(x, e + mad_vector(f, 0x1.715476p+0f, low));
}"""

# What rounding 1 + x lost comes back as its share of the logarithm's slope.
_LOG1P = """DEVICE V log1p_vector(V x) {
  const V u = 1 + x, lost = (x < 1) ? x - (u - 1) : 1 - (u - x);
  SPLIT_LOG(u, 0);
  const V tail = mad_vector(e, 0x1.7f7d1cp-20f, log_tail(f, s)) + lost / u;
  const V y = log_limits(u, mad_vector(e, 0x1.62e4p-1f, f + tail));
  return (fabs(x) < 0x1p-25f) ? x : y;
}"""

# Below 1 a series, 1 left out of its first coefficient so that x itself is added last; above it 1 - erfc by the
# logarithm of erfc, up to 4.1, where erf has reached 1.
_ERF = f"""DEVICE V erf_vector(V x) {{
  const V z = x * x, q = {
    _polynomial(
        "z",
        *("-0x1.4383eap-17", "0x1.d826b0p-14", "-0x1.bcbea8p-11", "0x1.5628f0p-8", "-0x1.b829a8p-6", "0x1.ce2f08p-4"),
        *("-0x1.812746p-2", "0x1.06eba8p-3"),
    )
};
  const V small = mad_vector(x, q, x), b = fabs(x), a = (b > 4.1f) ? 4.1f : b;
  const V p = {
    _polynomial(
        "a",
        *("0x1.181a6bp-23", "-0x1.8b7f8cp-16", "0x1.db0b38p-12", "-0x1.1636c4p-8", "0x1.9e6e06p-6", "-0x1.bc8e62p-4"),
        *("-0x1.4428f8p-1", "-0x1.212ee8p+0", "0x1.9c6b9ep-13"),
    )
};
  return (a < 1) ? small : copysign(4 * expm1_quarter(p), x);
}}"""

# erfc(a) = exp(-a^2) p((a - 3) / (a + 3)) / (1 + 2 a) up to 10.1, where nothing is left; what rounding a^2 lost is put
# back as a factor. 5.5 units, near 0.
_ERFC = f"""DEVICE V erfc_vector(V x) {{
  const V b = fabs(x), a = (b > 10.1f) ? 10.1f : b, t = (a - 3) / (a + 3);
  const V p = {
    _polynomial(
        "t",
        *("0x1.30aa9ep-15", "-0x1.7af3c0p-13", "-0x1.84a3e4p-11", "0x1.fec0f8p-10", "0x1.4b790ep-9", "-0x1.85ba98p-6"),
        *("0x1.17c84ap-4", "-0x1.e8896ep-4", "0x1.098384p-3", "-0x1.85a18cp-5", "-0x1.15c086p-3", "0x1.40c522p+0"),
    )
};
  const V high = AS_V(AS_VI(a) & (VI)(0xfffff000)), low = a - high, s = a * a;
  const V lost = (high * high - s) + low * (a + high);
  const V part = exp_vector(-s), y = mad_vector(-part, lost, part) * (p / (1 + 2 * a));
  return (x < 0) ? 2 - y : y;
}}"""

# x = n pi/2 + r, by exact products with the parts of pi; without them, the driver's. tan: 3.5 units
_PERIODIC = f"""
#define SPLIT_PERIODIC(x) const V t = mad_vector(x, 0x1.45f306p-1f, 0x1.8p23f), m = t - 0x1.8p23f; \\
  const V r = mad_vector(m, -0x1.846988p-48f, mad_vector(m, -0x1.4442d0p-24f, mad_vector(m, -0x1.921fb4p+0f, x))); \\
  const V z = r * r
DEVICE V sin_reduced(V r, V z) {{
  const V q = {_polynomial("z", "0x1.6cd732p-19", "-0x1.a00f98p-13", "0x1.111108p-7", "-0x1.555556p-3")};
  return mad_vector(q * z, r, r);
}}
DEVICE V cos_reduced(V z) {{
  return {_polynomial("z", "0x1.9a00ccp-16", "-0x1.6c0c86p-10", "0x1.55554ap-5", "-0.5", "1.0")};
}}"""
# Beyond it they are the driver's, element by element: three parts of pi reach no further.
_NEAR = "(fabs(x) < 3e4f)"


def _periodic(name: str, value: str) -> str:
    return f"""DEVICE V {name}_vector(V x) {{
#ifdef FUSED
  SPLIT_PERIODIC(x);
  const VI k = AS_VI(t);
  {value}
#else
  const V y = {name}({_NEAR} ? x : (V)(0));
#endif
{by_element(name + "({})", _NEAR, "x")}
}}"""


def _sin(shift: str, zero: str) -> str:
    return f"""const V c = (((k + {shift}) << 31) < 0) ? cos_reduced(z) : sin_reduced(r, z);
  const V y = (x == 0) ? {zero} : AS_V(AS_VI(c) ^ (((k + {shift}) << 30) & (VI)(0x80000000)));"""


_TAN = """const V s = sin_reduced(r, z), c = cos_reduced(z);
  const VI odd = k << 31;
  const V u = (odd < 0) ? -c : s, y = (x == 0) ? x : u / ((odd < 0) ? s : c);"""

# Of 1 / x beyond 1.
_ATAN = f"""DEVICE V atan_vector(V x) {{
  const V b = fabs(x), u = (b > 1) ? 1 / b : b, z = u * u;
  const V q = {
    _polynomial(
        "z",
        *("-0x1.defc4ap-10", "0x1.6a8e34p-7", "-0x1.01aee6p-5", "0x1.dd0e38p-5", "-0x1.58dc4ap-4", "0x1.c0d278p-4"),
        *("-0x1.2426f8p-3", "0x1.999276p-3", "-0x1.555540p-2"),
    )
};
  const V y = mad_vector(q * z, u, u);
  return copysign((b > 1) ? 0x1.921fb6p+0f - (y + 0x1.777a5cp-25f) : y, x);
}}"""

# Scaled by a power of two, so that squares neither overflow nor vanish.
_HYPOT = """DEVICE V hypot_vector(V x, V y) {
  const V a = fabs(x), b = fabs(y), most = (a > b) ? a : b;
  const VI e = min(max(AS_VI(most) & 0x7f800000, (VI)(27 << 23)), (VI)(253 << 23));
  const V scale = AS_V(0x7f000000 - e), u = a * scale, v = b * scale;
  const V z = sqrt(u * u + v * v) * AS_V(e);
  return ((a == INFINITY) | (b == INFINITY)) ? (V)(INFINITY) : z;
}"""

# Exact where the quotient has no more than 24 bits and products are; it is rounded up at most, by less than one.
_FMOD = """DEVICE V fmod_vector(V x, V y) {
#ifdef FUSED
  const V a = fabs(x), b = fabs(y), q = trunc(a / b), near_q = (q < 0x1p23f) ? q : 0;
  const V r = (near_q == 0) ? a : fma(-near_q, b, a), z = copysign((r < 0) ? r + b : r, x);
  return fmod_far(x, y, q, z);
#else
  return fmod(x, y);
#endif
}"""
_FMOD_FAR = f"""DEVICE V fmod_far(V a, V b, V q, V y) {{
{by_element("fmod({}, {})", "(q < 0x1p23f)", ("a", "b"))}
}}"""

_MOD = """DEVICE V mod_vector(V a, V b) {
  const V r = fmod_vector(a, b);
  return ((r != 0) & ((AS_VI(r) ^ AS_VI(b)) < 0)) ? r + b : r;
}"""

_FLOORDIV = """DEVICE V floordiv_vector(V a, V b) {
  const V r = fmod_vector(a, b), d = (a - r) / b;
  const V q = ((r != 0) & ((AS_VI(r) ^ AS_VI(b)) < 0)) ? d - 1 : d, f = floor(q);
  const V y = (q == 0) ? copysign((V)(0), a / b) : (q - f > 0.5f) ? f + 1 : f;
  return (b == 0) ? a / b : y;
}"""

# x / a by polynomials in the logarithm of 1 - a^2, and beyond 5 in its root, as Giles has them ("Approximating the
# erfinv function", 2010).
_ERFINV = f"""DEVICE V erfinv_vector(V y) {{
  const V a = fabs(y), w = -log((1 - a) * (1 + a)), u = w - 2.5f, v = sqrt(w) - 3;
  const V centre = {
    _polynomial(
        "u",
        *("-8.791057e-09", "2.3232643e-08", "4.6617067e-07", "-3.4627049e-06", "-4.9633477e-06", "0.00021834444"),
        *("-0.0012527419", "-0.0041773869", "0.24664028", "1.5014094"),
    )
};
  const V tail = {
    _polynomial(
        "v",
        *("0.00012592172", "-0.00031701897", "-7.2026291e-05", "0.0014939295", "-0.0035893815", "0.005683817"),
        *("-0.0076389359", "0.0094456216", "1.001675", "2.8329768"),
    )
};
  const V z = ((w < 5) ? centre : tail) * y;
  return (a < 1) ? z : (a == 1) ? y * INFINITY : (V)(NAN);
}}"""

# Reflection below 0, four steps of the recurrence at once below 4, then the asymptotic series (Abramowitz and Stegun
# 6.3.18), whose seventh term is too small to be seen from there on.
_DIGAMMA = """DEVICE V digamma_vector(V given) {
  V x = given, sum = 0;
  if (any(given < 0)) {
    const V part = x - rint(x), below = -3.14159265f / tan_vector(3.14159265f * part);
    sum = (given < 0) ? (part == 0) ? (V)(NAN) : below : sum;
    x = (given < 0) ? 1 - x : x;
  }
  const V p = x * (x + 3), added = (2 * x + 3) * (2 * p + 2) / (p * (p + 2));
  sum -= (x < 4) ? added : 0;
  x = (x < 4) ? x + 4 : x;
  const V r = 1 / x, z = r * r;
  V y = 7.5757575757575758e-3f - z * (2.1092796092796093e-2f - z * 8.3333333333333333e-2f);
  y = 3.9682539682539683e-3f - z * (4.1666666666666667e-3f - z * y);
  y = z * (8.3333333333333333e-2f - z * (8.3333333333333333e-3f - z * y));
  const V found = ((log(x) - 0.5f * r) - y) + sum;
  return (given == 0) ? copysign((V)(INFINITY), -given) : (given == -INFINITY) ? (V)(NAN) : found;
}"""

# The driver's, but where it is infinite too early and at what is no number.
_LGAMMA = """DEVICE V lgamma_vector(V x) {
  const V z = lgamma((x - x != 0) ? (V)(1) : x), y = (x > 1e8f) ? x * (log(x) - 1) : z;
  return (x - x != 0) ? x * x : ((x <= 0) & (floor(x) == x)) ? (V)(INFINITY) : y;
}"""

# exp(y log x) in float64, rounded once
_POW = """DEVICE VD mad_double(VD a, VD b, VD c) {
#ifdef FUSED
  return fma(a, b, c);
#else
  return a * b + c;
#endif
}
DEVICE V pow_vector(V base, V exponent) {
  const V ax = fabs(base), given = (ax < 0x1p-126f) ? ax * 0x1p23f : ax;
  const VI k = AS_VI(given) - 0x3f3504f3;
  const V whole_e = TO_V(k >> 23) - ((ax < 0x1p-126f) ? (V)(23) : (V)(0));
  const VD e = TO_VD(whole_e), f = TO_VD(AS_V((k & 0x7fffff) + 0x3f3504f3) - 1);
  const VD s = f / (2 + f), z = s * s;
  VD p = mad_double((VD)(0x1.e2f6e15f04923p-3), z, (VD)(0x1.2438d6039deb6p-2));
  p = mad_double(p, z, (VD)(0x1.999a7a8721416p-2));
  p = mad_double(p, z, (VD)(0x1.555554fda6e4ep-1));
  const VD l = mad_double(e, (VD)(0x1.62e42fefa39efp-1), mad_double(s * z, p, s + s));
  const VD u = TO_VD(exponent) * l, v = fmin(fmax(u, (VD)(-150)), (VD)(150));
  const VD t = mad_double(v, (VD)(0x1.71547652b82fep+0), (VD)(0x1.8p52)), n = t - 0x1.8p52;
  const VD r = mad_double(n, (VD)(-0x1.a39ef35793c76p-33), mad_double(n, (VD)(-0x1.62e42fee00000p-1), v));
  VD q = mad_double((VD)(0x1.a1b7c961d74fbp-13), r, (VD)(0x1.6d967fc8d5514p-10));
  q = mad_double(q, r, (VD)(0x1.11107d22c0b0cp-7));
  q = mad_double(q, r, (VD)(0x1.5554805fbd0b2p-5));
  q = mad_double(q, r, (VD)(0x1.55555597d5023p-3));
  q = mad_double(q, r, (VD)(0x1.00000042e337ap-1));
  const VI whole_n = TO_VI(n), h = whole_n >> 1;
  const VD scale = TO_VD(AS_V((h + 127) << 23)) * TO_VD(AS_V((whole_n - h + 127) << 23));
  V y = TO_V(mad_double(q, r * r, r + 1) * scale);
  // Of zeros and infinities the power is one of them, or 1.
  const V far = (exponent > 0) ? ax : 1 / ax;
  y = ((ax == 0) | (ax == INFINITY)) ? far : y;
  y = (fabs(exponent) == INFINITY) ? (((ax > 1) == (exponent > 0)) ? (V)(INFINITY) : (V)(0)) : y;
  const VI whole = rint(exponent) == exponent, odd = whole & (rint(exponent * 0.5f) != exponent * 0.5f);
  y = ((AS_VI(base) < 0) & odd) ? -y : y;
  y = ((base < 0) & ~whole & (ax < INFINITY)) ? (V)(NAN) : y;
  y = ((base != base) | (exponent != exponent)) ? base + exponent : y;
  return ((exponent == 0) | (base == 1) | ((base == -1) & (fabs(exponent) == INFINITY))) ? (V)(1) : y;
}"""

_REDUCED = ("_mad", "_expm1_reduced")
_QUARTER = (*_REDUCED, "_expm1_quarter")
TEXTS = {
    "_mad": _MAD,
    "_expm1_reduced": _EXPM1_REDUCED,
    "_expm1_quarter": _EXPM1_QUARTER,
    "exp": _EXP,
    "expm1": _EXPM1,
    "tanh": _TANH,
    "sinh": _SINH,
    "cosh": _COSH,
    "_split_log": _SPLIT_LOG,
    "log2": _LOG2,
    "log1p": _LOG1P,
    "erf": _ERF,
    "erfc": _ERFC,
    "_periodic": _PERIODIC,
    "sin": _periodic("sin", _sin("0", "x")),
    "cos": _periodic("cos", _sin("1", "(V)(1)")),
    "tan": _periodic("tan", _TAN),
    "atan": _ATAN,
    "hypot": _HYPOT,
    "_fmod_far": _FMOD_FAR,
    "fmod": _FMOD,
    "mod": _MOD,
    "floordiv": _FLOORDIV,
    "erfinv": _ERFINV,
    "digamma": _DIGAMMA,
    "lgamma": _LGAMMA,
    "pow": _POW,
}
CALLS = {
    "exp": _REDUCED,
    **dict.fromkeys(("expm1", "tanh", "sinh", "cosh", "erf"), _QUARTER),
    **dict.fromkeys(("log2", "log1p"), ("_mad", "_split_log")),
    "erfc": (*_REDUCED, "exp"),
    **dict.fromkeys(("sin", "cos", "tan"), ("_mad", "_periodic")),
    "atan": ("_mad",),
    "fmod": ("_mad", "_fmod_far"),
    **dict.fromkeys(("mod", "floordiv"), ("_mad", "_fmod_far", "fmod")),
    "erfinv": ("_mad",),
    "digamma": ("_mad", "_periodic", "tan"),
    "pow": ("_mad",),
}
#: Instructions of two operands.
BINARY = ("hypot", "fmod", "mod", "floordiv", "pow", "atan2")
#: Which compute in float64.
DOUBLE = ("pow",)


def own(texts: Mapping[str, str]) -> list[str]:
    """Instructions that are ``NAME_vector`` of their operands."""
    return [name for name in texts if not name.startswith("_")]


def needed(instructions: Iterable[str], texts: Mapping[str, str], calls: Mapping[str, Iterable[str]]) -> str:
    """The functions that these instructions call, each after those that it calls."""
    called: set[str] = set()
    asked = [name for name in instructions if name in texts]
    while asked:
        called.add(asked[-1])
        asked += calls.get(asked.pop(), ())
    return "\n".join(text for name, text in texts.items() if name in called)
