"""Pointwise programs as C: each instruction an expression, for real and for integer registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tesserack_kernelgen.dtypes import REAL

__all__ = ["DIVISIONS", "EXP_PLAIN", "HELPERS", "NORMAL_POINTS", "constant", "program_text", "real"]

_BOTH = {
    "copy": "{a}",
    "not": "({T})({a} == 0)",
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "eq": "({T})({a} == {b})",
    "ne": "({T})({a} != {b})",
    "lt": "({T})({a} < {b})",
    "le": "({T})({a} <= {b})",
    "gt": "({T})({a} > {b})",
    "ge": "({T})({a} >= {b})",
    "select": "{a} != 0 ? {b} : {c}",
}

# Functions of C by their own names; the others are written here.
_C_FUNCTIONS = (
    *("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc"),
)
_REAL = {
    **_BOTH,
    **{name: name + "({a})" for name in _C_FUNCTIONS},
    "neg": "-{a}",
    "abs": "fabs({a})",
    "sign": "({T})({a} > 0) - ({T})({a} < 0)",
    "recip": "1 / {a}",
    "rsqrt": "1 / sqrt({a})",
    "erfinv": "erfinv_{T}({a})",
    "lgamma": "lgamma_{T}({a})",
    "digamma": "digamma_{T}({a})",
    "sigmoid": "1 / (1 + exp(-{a}))",
    "round": "rint({a})",
    "bitnot": "({T})(~(i64){a})",
    "div": "{a} / {b}",
    "floordiv": "floordiv_{T}({a}, {b})",
    "mod": "mod_{T}({a}, {b})",
    "fmod": "fmod({a}, {b})",
    "pow": "pow({a}, {b})",
    "max": "({a} >= {b} || {a} != {a}) ? {a} : {b}",
    "min": "({a} <= {b} || {a} != {a}) ? {a} : {b}",
    "atan2": "atan2({a}, {b})",
    "hypot": "hypot({a}, {b})",
    "copysign": "copysign({a}, {b})",
    "fma": "{a} * {b} + {c}",
}
# U is the unsigned type of the same width: integers wrap.
_INTEGER = {
    **_BOTH,
    "neg": "({T})(0 - ({U}){a})",
    "abs": "{a} < 0 ? ({T})(0 - ({U}){a}) : {a}",
    "sign": "({T})({a} > 0) - ({T})({a} < 0)",
    "floor": "{a}",
    "ceil": "{a}",
    "trunc": "{a}",
    "round": "{a}",
    "bitnot": "~{a}",
    "add": "({T})(({U}){a} + ({U}){b})",
    "sub": "({T})(({U}){a} - ({U}){b})",
    "mul": "({T})(({U}){a} * ({U}){b})",
    "div": "div_{T}({a}, {b})",
    "floordiv": "floordiv_{T}({a}, {b})",
    "mod": "mod_{T}({a}, {b})",
    "fmod": "fmod_{T}({a}, {b})",
    "pow": "pow_{T}({a}, {b})",
    "max": "{a} > {b} ? {a} : {b}",
    "min": "{a} < {b} ? {a} : {b}",
    "and": "{a} & {b}",
    "or": "{a} | {b}",
    "xor": "{a} ^ {b}",
    "shl": "shl_{T}({a}, {b})",
    "shr": "shr_{T}({a}, {b})",
    "fma": "({T})(({U}){a} * ({U}){b} + ({U}){c})",
}
# Of integers these are computed as float64, or float32, and cut.
_THROUGH_REAL = {name: text for name, text in _REAL.items() if name not in _INTEGER}

#: Whose second operand must not be 0 where registers are integers.
DIVISIONS = ("div", "floordiv", "mod", "fmod")


def _integer_helpers(T: str, U: str, bits: int) -> dict[str, str]:
    signed = T != "u64"
    guard = "b == 0 ? 0 : b == -1 ? {minus} : {usual}" if signed else "b == 0 ? 0 : {usual}"

    def guarded(minus: str, usual: str) -> str:
        return guard.format(minus=minus, usual=usual)

    adjust = "r != 0 && (r < 0) != (b < 0)" if signed else "0"
    beyond = f"{'a < 0 ? -1 : 0' if signed else '0'}"
    negative = "a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0"
    return {
        "div": f"DEVICE {T} div_{T}({T} a, {T} b) {{ return {guarded(f'({T})(0 - ({U})a)', 'a / b')}; }}",
        "fmod": f"DEVICE {T} fmod_{T}({T} a, {T} b) {{ return {guarded('0', 'a % b')}; }}",
        "mod": f"DEVICE {T} mod_{T}({T} a, {T} b) {{ {T} r = {guarded('0', 'a % b')}; return {adjust} ? r + b : r; }}",
        "floordiv": f"DEVICE {T} floordiv_{T}({T} a, {T} b) {{ {T} r = {guarded('0', 'a % b')}; "
        f"{T} q = {guarded(f'({T})(0 - ({U})a)', 'a / b')}; return {adjust} ? q - 1 : q; }}",
        "pow": f"DEVICE {T} pow_{T}({T} a, {T} b) {{ "
        + (f"if (b < 0) return {negative}; " if signed else "")
        + f"{U} x = ({U})a, r = 1; for ({U} n = ({U})b; n; n >>= 1) {{ if (n & 1) r *= x; x *= x; }} return ({T})r; }}",
        "shl": f"DEVICE {T} shl_{T}({T} a, {T} b) {{ return ({U})b >= {bits} ? 0 : ({T})(({U})a << b); }}",
        "shr": f"DEVICE {T} shr_{T}({T} a, {T} b) {{ return ({U})b >= {bits} ? {beyond} : a >> b; }}",
    }


def _real_helpers(T: str) -> dict[str, str]:
    s = "f" if T == "f32" else ""
    return {
        "mod": f"DEVICE {T} mod_{T}({T} a, {T} b) {{ {T} r = fmod(a, b); "
        f"return r != 0 && (r < 0) != (b < 0) ? r + b : r; }}",
        "floordiv": f"DEVICE {T} floordiv_{T}({T} a, {T} b) {{\n"
        f"  if (b == 0) return a / b;\n"
        f"  {T} r = fmod(a, b), q = (a - r) / b;\n"
        f"  if (r != 0 && (b < 0) != (r < 0)) q -= 1;\n"
        f"  if (q == 0) return copysign(({T})0, a / b);\n"
        f"  {T} f = floor(q);\n"
        f"  return q - f > 0.5{s} ? f + 1 : f;\n}}",
        "lgamma": f"DEVICE {T} lgamma_{T}({T} a) {{ "
        f"return a - a != 0 ? a * a : a <= 0 && floor(a) == a ? 1 / fabs(a - a) : lgamma(a); }}",
        "erfinv": _ERFINV if T == "f32" else _ERFINV_F64,
        "digamma": _DIGAMMA.replace("TYPE", T).replace("@", s),
    }


# Giles, "Approximating the erfinv function" (2010), then a step of Newton's on erfc, which keeps the tails exact.
_ERFINV = """DEVICE f32 erfinv_f32(f32 y) {
  f32 a = fabs(y);
  if (!(a < 1)) return a == 1 ? copysign(1 / (a - a), y) : (y - y) / (y - y);
  f32 w = -log((1 - a) * (1 + a)), x;
  if (w < 5) {
    w -= 2.5f;
    x = 2.81022636e-08f;
    x = 3.43273939e-07f + x * w; x = -3.5233877e-06f + x * w; x = -4.39150654e-06f + x * w;
    x = 0.00021858087f + x * w; x = -0.00125372503f + x * w; x = -0.00417768164f + x * w;
    x = 0.246640727f + x * w; x = 1.50140941f + x * w;
  } else {
    w = sqrt(w) - 3;
    x = -0.000200214257f;
    x = 0.000100950558f + x * w; x = 0.00134934322f + x * w; x = -0.00367342844f + x * w;
    x = 0.00573950773f + x * w; x = -0.0076224613f + x * w; x = 0.00943887047f + x * w;
    x = 1.00167406f + x * w; x = 2.83297682f + x * w;
  }
  x *= a;
  f32 off = a < 0.5f ? erf(x) - a : (1 - a) - erfc(x);
  x -= off * 0.88622692545275801365f * exp(x * x);
  return copysign(x, y);
}"""

#: Wichura, "The percentage points of the normal distribution" (AS 241): quotients, of 0.180625 - (x/2)^2 up to 0.85,
#: and of r - 1.6 and r - 5 with r = sqrt(-log((1 - |x|) / 2)), the last beyond r = 5.
NORMAL_POINTS = (
    (
        (
            *("2.5090809287301226727e+3", "3.3430575583588128105e+4", "6.7265770927008700853e+4"),
            *("4.5921953931549871457e+4", "1.3731693765509461125e+4", "1.9715909503065514427e+3"),
            *("1.3314166789178437745e+2", "3.3871328727963666080e+0"),
        ),
        (
            *("5.2264952788528545610e+3", "2.8729085735721942674e+4", "3.9307895800092710610e+4"),
            *("2.1213794301586595867e+4", "5.3941960214247511077e+3", "6.8718700749205790830e+2"),
            *("4.2313330701600911252e+1", "1.0"),
        ),
    ),
    (
        (
            *("7.74545014278341407640e-4", "2.27238449892691845833e-2", "2.41780725177450611770e-1"),
            *("1.27045825245236838258e+0", "3.64784832476320460504e+0", "5.76949722146069140550e+0"),
            *("4.63033784615654529590e+0", "1.42343711074968357734e+0"),
        ),
        (
            *("1.05075007164441684324e-9", "5.47593808499534494600e-4", "1.51986665636164571966e-2"),
            *("1.48103976427480074590e-1", "6.89767334985100004550e-1", "1.67638483018380384940e+0"),
            *("2.05319162663775882187e+0", "1.0"),
        ),
    ),
    (
        (
            *("2.01033439929228813265e-7", "2.71155556874348757815e-5", "1.24266094738807843860e-3"),
            *("2.65321895265761230930e-2", "2.96560571828504891230e-1", "1.78482653991729133580e+0"),
            *("5.46378491116411436990e+0", "6.65790464350110377720e+0"),
        ),
        (
            *("2.04426310338993978564e-15", "1.42151175831644588870e-7", "1.84631831751005468180e-5"),
            *("7.86869131145613259100e-4", "1.48753612908506148525e-2", "1.36929880922735805310e-1"),
            *("5.99832206555887937690e-1", "1.0"),
        ),
    ),
)


def _normal_points(region: int) -> str:
    texts = []
    for coefficients in NORMAL_POINTS[region]:
        text = coefficients[0]
        for value in coefficients[1:]:
            text = f"({text}) * r + {value}"
        texts.append(f"({text})")
    return " / ".join(texts)


_ERFINV_F64 = f"""DEVICE f64 erfinv_f64(f64 y) {{
  const f64 a = fabs(y);
  if (!(a < 1)) return a == 1 ? copysign(1 / (a - a), y) : (y - y) / (y - y);
  f64 r = 0.180625 - 0.25 * a * a;
  if (a < 0.85) return 0.35355339059327376 * y * ({_normal_points(0)});
  r = sqrt(-log(0.5 * (1 - a)));
  f64 x;
  if (r < 5) {{ r -= 1.6; x = {_normal_points(1)}; }}
  else {{ r -= 5; x = {_normal_points(2)}; }}
  return copysign(0.70710678118654752 * x, y);
}}"""

# Reflection below 0, the recurrence up to 10, then the asymptotic series (Abramowitz and Stegun 6.3.18).
_DIGAMMA = """DEVICE TYPE digamma_TYPE(TYPE x) {
  if (x == 0) return copysign(1 / (x * x), -x);
  TYPE below = 0;
  if (x < 0) {
    TYPE whole = rint(x);  // the nearest: what is left keeps all its digits
    if (whole == x) return (x - x) / (x - x);
    below = -3.14159265358979323846@ / tan(3.14159265358979323846@ * (x - whole));
    x = 1 - x;
  }
  TYPE sum = 0;
  while (x < 10) { sum -= 1 / x; x += 1; }
  TYPE z = 1 / (x * x);
  TYPE y = 7.5757575757575758e-3@ - z * (2.1092796092796093e-2@ - z * 8.3333333333333333e-2@);
  y = 3.9682539682539683e-3@ - z * (4.1666666666666667e-3@ - z * y);
  y = z * (8.3333333333333333e-2@ - z * (8.3333333333333333e-3@ - z * y));
  return x > 1e17@ ? log(x) + below : log(x) - 0.5@ / x - y + sum + below;
}"""

_PLAIN_MAD = """#if defined(FP_FAST_FMAF) || defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define PLAIN_MAD(a, b, c) fma(a, b, c)
#else
#define PLAIN_MAD(a, b, c) ((a) * (b) + (c))
#endif
"""
_EXP_PLAIN = """DEVICE f32 exp_plain(f32 x) {
  const f32 low = x < -104.0f ? -104.0f : x, y = low > 89.0f ? 89.0f : low;
  const f32 t = PLAIN_MAD(y, 0x1.715476p+0f, 0x1.8p23f), m = t - 0x1.8p23f;
  const f32 r = PLAIN_MAD(m, -0x1.7f7d1cp-20f, PLAIN_MAD(m, -0x1.62e4p-1f, y));
  f32 q = PLAIN_MAD(0x1.6d9970p-10f, r, 0x1.1227f8p-7f);
  q = PLAIN_MAD(q, r, 0x1.555486p-5f);
  q = PLAIN_MAD(q, r, 0x1.5554b0p-3f);
  q = PLAIN_MAD(q, r, 0.5f);
  q = PLAIN_MAD(q, r * r, r);
  const i32 n = (i32)AS_U32(t) - 0x4b400000, h = n >> 1;
  return (q + 1) * AS_F32((u32)(h + 127) << 23) * AS_F32((u32)(n - h + 127) << 23);
}"""
_EXP_PLAIN_F64 = """DEVICE f64 exp_plain(f64 x) {
  const f64 low = x < -746.0 ? -746.0 : x, y = low > 710.0 ? 710.0 : low;
  const f64 t = PLAIN_MAD(y, 0x1.71547652b82fep+0, 0x1.8p52), m = t - 0x1.8p52;
  const f64 r = PLAIN_MAD(m, -0x1.a39ef35793c76p-33, PLAIN_MAD(m, -0x1.62e42fee00000p-1, y));
  f64 q = PLAIN_MAD(0x1.1f95478c9ef76p-29, r, 0x1.af5ebcba2f3dcp-26);
  q = PLAIN_MAD(q, r, 0x1.27e4c5b378841p-22);
  q = PLAIN_MAD(q, r, 0x1.71ddf8550e1b7p-19);
  q = PLAIN_MAD(q, r, 0x1.a01a01b0ae039p-16);
  q = PLAIN_MAD(q, r, 0x1.a01a01afe4846p-13);
  q = PLAIN_MAD(q, r, 0x1.6c16c16c1446ep-10);
  q = PLAIN_MAD(q, r, 0x1.111111110f6b0p-7);
  q = PLAIN_MAD(q, r, 0x1.555555555555ap-5);
  q = PLAIN_MAD(q, r, 0x1.5555555555559p-3);
  q = PLAIN_MAD(q, r, 0.5);
  q = PLAIN_MAD(q, r * r, r);
  const u64 n = AS_U64(t) - 0x4338000000000000ul + 4096, h = n >> 1;
  return (q + 1) * AS_F64((h - 1025) << 52) * AS_F64((n - h - 1025) << 52);
}"""
#: exp of each C type within a unit in the last place, without branches or calls: compilers turn loops over it into
#: vectors.
EXP_PLAIN = {"f32": _PLAIN_MAD + _EXP_PLAIN, "f64": _PLAIN_MAD + _EXP_PLAIN_F64}

HELPERS: dict[str, dict[str, str]] = {
    "f32": _real_helpers("f32"),
    "f64": _real_helpers("f64"),
    "i32": _integer_helpers("i32", "u32", 32),
    "i64": _integer_helpers("i64", "u64", 64),
    "u64": _integer_helpers("u64", "u64", 64),
}


def real(instruction: str, c: str, operands: Sequence[str]) -> str:
    """One instruction of floating registers of C type ``c``."""
    return _REAL[instruction].format(T=c, **dict(zip("abc", operands, strict=False)))


def constant(value: float, c: str) -> str:
    """A number as a literal of C type ``c``; infinities and NaN as expressions."""
    if c not in REAL:
        whole = int(value)
        if c == "u64":
            return f"{whole % 2**64}ul" if whole < 2**63 else f"{whole % 2**64}u"
        bits = int(c[1:])
        whole = (whole + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
        if whole == -(1 << bits - 1):
            return f"(({c})({whole + 1}) - 1)"
        return f"(({c}){whole})"
    if value != value:
        return f"AS_{c.upper()}({'0x7fc00000u' if c == 'f32' else '0x7ff8000000000000ul'})"
    if c == "f32":
        import struct

        try:
            (value,) = struct.unpack("f", struct.pack("f", value))
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
    if value in (float("inf"), float("-inf")):
        bits_text = "0x7f800000u" if c == "f32" else "0x7ff0000000000000ul"
        return f"({'-' if value < 0 else ''}AS_{c.upper()}({bits_text}))"
    text = float(value).hex() if value else repr(float(value))
    return f"({text}{'f' if c == 'f32' else ''})"


def program_text(
    program: Any, inputs: Sequence[str], c: str, on_zero: Callable[[str], str]
) -> tuple[list[str], list[str], str]:
    """Statements, the expressions of the outputs, and the helper functions that the statements call.

    Args:
        program: with ``constants``, ``instructions`` and ``outputs``; ``integers`` are the constants of integer
            registers, exact where a float is not.
        inputs: expressions of C type ``c``, one per input.
        on_zero: given a divisor, the statement for where it is 0; asked where registers are integers.
    """
    constants = program.constants if c in REAL else getattr(program, "integers", program.constants)
    registers = [*inputs, *(constant(value, c) for value in constants)]
    table = _REAL if c in REAL else _INTEGER
    unsigned = {"i32": "u32"}.get(c, "u64")
    lines: list[str] = []
    for number, (name, *operands) in enumerate(program.instructions):
        given = dict(zip("abc", (registers[k] for k in operands), strict=False))
        if c not in REAL and name in DIVISIONS:
            lines.append(f"if ({given['b']} == 0) {{ {on_zero(given['b'])} }}")
        if c not in REAL and name in _THROUGH_REAL:
            real = {key: f"((f32){text})" for key, text in given.items()}
            text = f"({c})({_THROUGH_REAL[name].format(T='f32', **real)})"
        else:
            text = table[name].format(T=c, U=unsigned, **given)
        lines.append(f"const {c} r{number} = {text};")
        registers.append(f"r{number}")
    return lines, [registers[k] for k in program.outputs], "\n".join(program_helpers(program, c).values())


def program_helpers(program: Any, c: str) -> dict[str, str]:
    """The helper functions that the statements of a program call, by name."""
    needed: dict[str, str] = {}
    for name, *_ in program.instructions:
        needed.update(_helper(name, "f32" if c not in REAL and name in _THROUGH_REAL else c))
    return needed


def _helper(name: str, c: str) -> dict[str, str]:
    return {f"{name}_{c}": HELPERS[c][name]} if name in HELPERS[c] else {}
