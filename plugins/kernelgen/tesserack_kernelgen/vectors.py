"""Pointwise programs in the vectors of a dialect, for serial devices whose compiler has functions of vectors.

Registers are vectors of float32 or of float64, whatever the dtypes in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen import vector_math, vector_math_f64
from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE, load, store
from tesserack_kernelgen.emit import constant

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = [
    *("STORED", "costly", "functions_text", "has_vectors", "instruction", "lanes_of", "streams"),
    *("vector_helpers", "vector_program", "vector_type"),
]

# Drivers' vload and vstore take a vector apart, byte by byte at worst.
_BITS = "*(GLOBAL const any_{name}*)((GLOBAL const {c}*)p + i)"
_KEEP = "*(GLOBAL any_{name}*)((GLOBAL {c}*)p + i) = "
_BOOL = "fabs(TO_V(" + _BITS + " != (u8)0))"
_LOADS = {
    "f32": {
        "float32": _BITS,
        "float16": "halves(" + _BITS + ")",
        "bfloat16": "AS_V(TO_VI(" + _BITS + ") << 16)",
        "bool": _BOOL,
    },
    "f64": {
        "float64": _BITS,
        "float16": "TO_V(halves(" + _BITS + "))",
        "bfloat16": "TO_V(as_float{n}(convert_int{n}(" + _BITS + ") << 16))",
        "bool": _BOOL,
    },
}
_TRUE = _KEEP + "convert_uchar{n}((x != 0) & 1)"
_STORES = {
    "f32": {
        "float32": _KEEP + "x",
        "float16": "vstore_half{n}_rte(x, 0, (GLOBAL half*)p + i)",
        "bfloat16": _KEEP + "convert_ushort{n}((bf16_bits(x) >> 16) & 0xffff)",
        "bool": _TRUE,
        "float64": _KEEP + "TO_VD(x)",
    },
    "f64": {"float64": _KEEP + "x", "float32": _KEEP + "convert_float{n}(x)", "bool": _TRUE},
}
_NOT_STORED = {"f32": ("uint64",), "f64": ("uint64", "float16", "bfloat16")}
#: Dtypes that a vector of each C type is stored as; those of integers by way of 64 bits, as elements are.
STORED = {c: tuple(name for name in STORAGE if name not in but) for c, but in _NOT_STORED.items()}

# By way of a variable: PoCL takes it that memory of which a vector of halves is loaded is aligned as the vector.
_HALVES = """DEVICE float{n} halves(any_float16 bits) {{
  const ushort{n} kept = bits;
  return vload_half{n}(0, (const half*)&kept);
}}"""

_BF16_BITS = """DEVICE VI bf16_bits(V x) {
  const VI bits = AS_VI(x);
  return (x != x) ? (VI)(0x7fc00000) : bits + 0x7fff + ((bits >> 16) & 1);
}"""

# The last vector of a loop is a part, whose other elements are 0 and are not stored.
_LOAD = """DEVICE V load_{name}(GLOBAL const u8* p, idx i, idx step, i32 many) {{
  if (many == {n} && step == 1) return {whole};
  ELEMENT part[{n}];
  for (i32 j = 0; j < {n}; ++j) part[j] = j < many ? {one} : 0;
  return LOAD_V(part);
}}"""
_STORE = """DEVICE void store_{name}(GLOBAL u8* p, idx i, idx step, i32 many, V x) {{
  if (many == {n} && step == 1) {{ {whole}; return; }}
  ELEMENT part[{n}];
  STORE_V(x, part);
  for (i32 j = 0; j < many; ++j) {{ {one} }}
}}"""

# What is more than the caches hold is stored past them, which saves reading every line before it is written.
_REGISTERED = {"f32": "float32", "f64": "float64"}
_STREAM = """#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
DEVICE void stream_NAME(GLOBAL u8* p, idx i, idx step, i32 many, V x) {
#if __has_builtin(__builtin_nontemporal_store)
  if (many == LANES && step == 1 && ((size_t)((GLOBAL ELEMENT*)p + i) & (sizeof(V) - 1)) == 0) {
    __builtin_nontemporal_store(x, (GLOBAL V*)((GLOBAL ELEMENT*)p + i));
    return;
  }
#endif
  store_NAME(p, i, step, many, x);
}
#if __has_builtin(__builtin_ia32_sfence) && defined(__SSE__)
#define STREAM_END __builtin_ia32_sfence()
#else
#define STREAM_END
#endif"""

_FUNCTIONS = (
    *("sqrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
    *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc"),
)
_TRUTH = "(({condition}) ? (V)(1) : (V)(0))"
_SHARED = {
    **{name: name + "({a})" for name in _FUNCTIONS},
    "fmod": "fmod({a}, {b})",
    "pow": "pow({a}, {b})",
    **{
        name: _TRUTH.replace("{condition}", f"{{a}} {sign} {{b}}")
        for name, sign in (("eq", "=="), ("ne", "!="), ("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">="))
    },
    "copy": "{a}",
    "not": _TRUTH.replace("{condition}", "{a} == 0"),
    "add": "{a} + {b}",
    "sub": "{a} - {b}",
    "mul": "{a} * {b}",
    "div": "{a} / {b}",
    "neg": "-{a}",
    "abs": "fabs({a})",
    "sign": f"{_TRUTH.replace('{condition}', '{a} > 0')} - {_TRUTH.replace('{condition}', '{a} < 0')}",
    "recip": "1 / {a}",
    "rsqrt": "1 / sqrt({a})",
    "sigmoid": "1 / (1 + exp(-{a}))",
    "round": "rint({a})",
    "select": "({a} != 0) ? {b} : {c}",
    "max": "(({a} >= {b}) | ({a} != {a})) ? {a} : {b}",
    "min": "(({a} <= {b}) | ({a} != {a})) ? {a} : {b}",
    "atan2": "atan2({a}, {b})",
    "copysign": "copysign({a}, {b})",
    "fma": "{a} * {b} + {c}",
}


def _own(texts: Iterable[str]) -> dict[str, str]:
    return {name: name + ("_vector({a}, {b})" if name in vector_math.BINARY else "_vector({a})") for name in texts}


_MATH = {"f32": vector_math, "f64": vector_math_f64}
_TEXT = {
    c: {**_SHARED, **_own(vector_math.own(functions.TEXTS)), **({"exp": "exp({a})"} if c == "f32" else {})}
    for c, functions in _MATH.items()  # exp of float32 is part of others; drivers' is as fast
}
_COSTLY = {*vector_math.own(vector_math_f64.TEXTS), *_FUNCTIONS} - {"sqrt", "floor", "ceil", "trunc"}


def functions_text(names: Iterable[str], c: str) -> str:
    """The functions of vectors of C type ``c`` that these instructions call."""
    return vector_math.needed(names, _MATH[c].TEXTS, _MATH[c].CALLS)


def has_vectors(call: Call, program: Any, c: str) -> bool:
    """Whether the device runs loops, its dialect has functions of vectors, and the program needs no others."""
    if not call.device.serial or not call.card.dialect.vector_functions:
        return False
    names = {name for name, *_ in program.instructions}
    return names <= _TEXT[c].keys() and (call.device.fp64 or not names & set(vector_math.DOUBLE))


def lanes_of(call: Call, c: str) -> int:
    """How many elements of C type ``c`` a vector has."""
    return max(4, call.device.simd_bytes // (int(c[1:]) // 8))


def costly(program: Any) -> bool:
    """Whether the program calls a function that takes longer than to gather its operands."""
    return any(name in _COSTLY for name, *_ in program.instructions)


def vector_helpers(
    call: Call, program: Any, loaded: Iterable[str], stored: Iterable[str], streamed: bool, lanes: int, c: str = "f32"
) -> str:
    """Types, and the functions that loads, stores and the program's instructions call.

    Args:
        call: for the dialect, and whether there is float64.
        program: whose functions are wanted.
        loaded: dtypes that are loaded.
        stored: dtypes that are stored.
        streamed: whether what registers hold is stored past the caches.
        lanes: elements of a vector.
        c: the C type of an element.
    """
    parts = [vector_math.types(call.card.dialect.vector, c, lanes, call.device.fp64)]
    loaded, stored = sorted(set(loaded)), sorted(set(stored))
    for name in sorted({*loaded, *stored}):
        parts.append(f"typedef {vector_type(name)}{lanes} any_{name} ALIGNED({ITEMSIZE[name]});")
    parts += [_HALVES.format(n=lanes)] if "float16" in loaded else []
    for name in loaded:
        whole = _LOADS[c].get(name, "TO_V(" + _BITS + ")").format(name=name, n=lanes, c=STORAGE[name])
        parts.append(_LOAD.format(name=name, n=lanes, whole=whole, one=load("p", "i + j * step", name, c)))
    parts += [_BF16_BITS] if "bfloat16" in stored else []
    for name in stored:
        by_integers = _KEEP + f"convert_{vector_type(name)}{lanes}(convert_long{lanes}(x))"
        whole = _STORES[c].get(name, by_integers).format(name=name, n=lanes, c=STORAGE[name])
        one = store("p", "i + j * step", name, "part[j]", c)
        parts.append(_STORE.format(name=name, n=lanes, whole=whole, one=one))
    parts += [_STREAM.replace("NAME", _REGISTERED[c])] if streamed else []
    parts.append(functions_text((name for name, *_ in program.instructions), c))
    return "\n".join(filter(None, parts))


def streams(call: Call, dtype: str, c: str, touched: int) -> bool:
    """Whether a result of this dtype had better be stored past the caches, of which so many bytes are touched."""
    return 0 < call.device.cache_bytes < 4 / 3 * touched and dtype == _REGISTERED[c]


def vector_type(name: str) -> str:
    """The type of OpenCL for a dtype's storage."""
    c = STORAGE[name]
    words = {"8": "char", "16": "short", "32": "int", "64": "long"}
    if c in ("f32", "f64"):
        return "float" if c == "f32" else "double"
    return ("u" if c[0] == "u" else "") + words[c[1:]]


def instruction(name: str, *operands: str, c: str = "f32") -> str:
    """The expression of an instruction of vectors of C type ``c``."""
    return _TEXT[c][name].format(**dict(zip("abc", operands, strict=False)))


def vector_program(program: Any, inputs: Sequence[str], c: str) -> tuple[list[str], list[str]]:
    """Statements, and the expressions of the outputs; registers are of type ``V``."""
    registers = [*inputs, *(f"((V)({constant(value, c)}))" for value in program.constants)]
    lines = []
    for number, (name, *operands) in enumerate(program.instructions):
        lines.append(f"const V r{number} = {instruction(name, *(registers[k] for k in operands), c=c)};")
        registers.append(f"r{number}")
    return lines, [registers[k] for k in program.outputs]
