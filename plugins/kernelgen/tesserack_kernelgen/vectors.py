"""Pointwise programs in the vectors of a dialect, for serial devices whose compiler has functions of vectors.

Registers are vectors of float32, whatever the dtypes in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tesserack_kernelgen import vector_math
from tesserack_kernelgen.dtypes import ITEMSIZE, STORAGE, load, store
from tesserack_kernelgen.emit import constant

if TYPE_CHECKING:
    from tesserack_kernelgen.call import Call

__all__ = ["STORED", "costly", "has_vectors", "instruction", "vector_helpers", "vector_program", "vector_type"]

# Drivers' vload and vstore take a vector apart, byte by byte at worst.
_BITS = "*(GLOBAL const any_{name}*)((GLOBAL const {c}*)p + i)"
_KEEP = "*(GLOBAL any_{name}*)((GLOBAL {c}*)p + i) = "
_LOADS = {
    "float32": _BITS,
    "float16": "vload_half{n}(0, (GLOBAL const half*)p + i)",
    "bfloat16": "AS_V(TO_VI(" + _BITS + ") << 16)",
    "bool": "fabs(TO_V(" + _BITS + " != (u8)0))",
}
_STORES = {
    "float32": _KEEP + "x",
    "float16": "vstore_half{n}_rte(x, 0, (GLOBAL half*)p + i)",
    "bfloat16": _KEEP + "convert_ushort{n}((bf16_bits(x) >> 16) & 0xffff)",
    "bool": _KEEP + "convert_uchar{n}((x != 0) & 1)",
    "float64": _KEEP + "TO_VD(x)",
}
#: Dtypes that a vector is stored as; those of integers by way of 64 bits, as elements are.
STORED = tuple(name for name in STORAGE if name != "uint64")

_BF16_BITS = """DEVICE VI bf16_bits(V x) {
  const VI bits = AS_VI(x);
  return (x != x) ? (VI)(0x7fc00000) : bits + 0x7fff + ((bits >> 16) & 1);
}"""

# The last vector of a loop is a part, whose other elements are 0 and are not stored.
_LOAD = """DEVICE V load_{name}(GLOBAL const u8* p, idx i, idx step, i32 many) {{
  if (many == {n} && step == 1) return {whole};
  f32 part[{n}];
  for (i32 j = 0; j < {n}; ++j) part[j] = j < many ? {one} : 0;
  return LOAD_V(part);
}}"""
_STORE = """DEVICE void store_{name}(GLOBAL u8* p, idx i, idx step, i32 many, V x) {{
  if (many == {n} && step == 1) {{ {whole}; return; }}
  f32 part[{n}];
  STORE_V(x, part);
  for (i32 j = 0; j < many; ++j) {{ {one} }}
}}"""

# What is more than the caches hold is stored past them, which saves reading every line before it is written.
_STREAM = """#ifndef __has_builtin
#define __has_builtin(x) 0
#endif
DEVICE void stream_float32(GLOBAL u8* p, idx i, idx step, i32 many, V x) {
#if __has_builtin(__builtin_nontemporal_store)
  if (many == LANES && step == 1 && ((size_t)((GLOBAL f32*)p + i) & (sizeof(V) - 1)) == 0) {
    __builtin_nontemporal_store(x, (GLOBAL V*)((GLOBAL f32*)p + i));
    return;
  }
#endif
  store_float32(p, i, step, many, x);
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
_TEXT = {
    **{name: name + "({a})" for name in _FUNCTIONS},
    "fmod": "fmod({a}, {b})",
    "pow": "pow({a}, {b})",
    **{
        name: name + ("_vector({a}, {b})" if name in vector_math.BINARY else "_vector({a})") for name in vector_math.OWN
    },
    "exp": "exp({a})",  # our own is part of others; drivers' is as fast
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
_COSTLY = {*vector_math.OWN, *_FUNCTIONS, "sigmoid", "atan2"} - {"sqrt", "floor", "ceil", "trunc"}


def has_vectors(call: Call, program: Any) -> bool:
    """Whether the device runs loops, its dialect has functions of vectors, and the program needs no others."""
    if not call.device.serial or not call.card.dialect.vector_functions:
        return False
    names = {name for name, *_ in program.instructions}
    return names <= _TEXT.keys() and (call.device.fp64 or not names & set(vector_math.DOUBLE))


def costly(program: Any) -> bool:
    """Whether the program calls a function that takes longer than to gather its operands."""
    return any(name in _COSTLY for name, *_ in program.instructions)


def vector_helpers(
    call: Call, program: Any, loaded: Iterable[str], stored: Iterable[str], streamed: bool, lanes: int
) -> str:
    """Types, and the functions that loads, stores and the program's instructions call.

    Args:
        call: for the dialect, and whether there is float64.
        program: whose functions are wanted.
        loaded: dtypes that are loaded.
        stored: dtypes that are stored.
        streamed: whether float32 is stored past the caches.
        lanes: elements of a vector.
    """
    vector = call.card.dialect.vector
    parts = [vector_math.types(vector("f32", lanes), vector("i32", lanes), _doubles(call, lanes), lanes)]
    loaded, stored = sorted(set(loaded)), sorted(set(stored))
    for name in sorted({*loaded, *stored}):
        parts.append(f"typedef {vector_type(name)}{lanes} any_{name} ALIGNED({ITEMSIZE[name]});")
    for name in loaded:
        whole = _LOADS.get(name, "TO_V(" + _BITS + ")").format(name=name, n=lanes, c=STORAGE[name])
        parts.append(_LOAD.format(name=name, n=lanes, whole=whole, one=load("p", "i + j * step", name, "f32")))
    parts += [_BF16_BITS] if "bfloat16" in stored else []
    for name in stored:
        by_integers = _KEEP + f"convert_{vector_type(name)}{lanes}(convert_long{lanes}(x))"
        whole = _STORES.get(name, by_integers).format(name=name, n=lanes, c=STORAGE[name])
        one = store("p", "i + j * step", name, "part[j]", "f32")
        parts.append(_STORE.format(name=name, n=lanes, whole=whole, one=one))
    parts += [_STREAM] if streamed else []
    parts.append(vector_math.needed(name for name, *_ in program.instructions))
    return "\n".join(filter(None, parts))


def _doubles(call: Call, lanes: int) -> str | None:
    return call.card.dialect.vector("f64", lanes) if call.device.fp64 else None


def vector_type(name: str) -> str:
    """The type of OpenCL for a dtype's storage."""
    c = STORAGE[name]
    words = {"8": "char", "16": "short", "32": "int", "64": "long"}
    if c in ("f32", "f64"):
        return "float" if c == "f32" else "double"
    return ("u" if c[0] == "u" else "") + words[c[1:]]


def instruction(name: str, *operands: str) -> str:
    """The expression of an instruction of vectors."""
    return _TEXT[name].format(**dict(zip("abc", operands, strict=False)))


def vector_program(program: Any, inputs: Sequence[str]) -> tuple[list[str], list[str]]:
    """Statements, and the expressions of the outputs; registers are of type ``V``."""
    registers = [*inputs, *(f"((V)({constant(value, 'f32')}))" for value in program.constants)]
    lines = []
    for number, (name, *operands) in enumerate(program.instructions):
        lines.append(f"const V r{number} = {instruction(name, *(registers[k] for k in operands))};")
        registers.append(f"r{number}")
    return lines, [registers[k] for k in program.outputs]
