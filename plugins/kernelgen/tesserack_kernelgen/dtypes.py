"""Types of elements: how each is called in C, which computes for which, and how one becomes another."""

from __future__ import annotations

__all__ = ["ITEMSIZE", "REAL", "STORAGE", "accumulator", "convert", "load", "name_of", "register", "store"]

STORAGE = {
    "bool": "u8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "u16",
    "bfloat16": "u16",
    "float32": "f32",
    "float64": "f64",
}
ITEMSIZE = {name: 1 if c == "u8" else int(c[1:]) // 8 for name, c in STORAGE.items()}
REAL = ("f32", "f64")
#: What the value is once it was loaded.
LOADED = {**STORAGE, "bool": "i32", "float16": "f32", "bfloat16": "f32"}
#: Characters of ``struct``.
FORMAT = {"i32": "i", "u32": "I", "i64": "q", "u64": "Q", "f32": "f", "f64": "d"}


def name_of(dtype: object) -> str:
    """ "float32" for ``tesserack.float32``."""
    return str(dtype).rpartition(".")[2]


def accumulator(dtype: str) -> str:
    """The C type that holds every value of a dtype, as a register does."""
    if dtype == "float64" or dtype in ("uint64",):
        return STORAGE[dtype]
    if dtype.startswith(("float", "bfloat")):
        return "f32"
    return "i64" if dtype in ("uint32", "int64") else "i32"


def register(compute: str | None) -> str:
    """The C type of registers for a compute dtype."""
    return accumulator(compute or "float32")


def convert(text: str, source: str, target: str) -> str:
    """An expression of C type ``source`` as one of ``target``."""
    if source == target:
        return text
    if source in REAL and target == "u64":
        return f"REAL_TO_U64({text})"
    if source in REAL and target not in REAL:
        return f"({target})(i64)({text})"
    return f"({target})({text})"


def load(pointer: str, index: str, dtype: str, target: str) -> str:
    """An expression for an element in memory, as a value of C type ``target``."""
    return convert(f"LOAD_{dtype}({pointer}, {index})", LOADED[dtype], target)


def store(pointer: str, index: str, dtype: str, value: str, source: str) -> str:
    """A statement that stores an expression of C type ``source``."""
    if dtype == "float16" and source in REAL:
        return f"STORE_HALF_{source.upper()}({pointer}, {index}, {value});"
    if dtype == "float16":
        return f"STORE_HALF_F32({pointer}, {index}, (f32)({value}));"
    if dtype == "bfloat16":
        return f"((GLOBAL u16*)({pointer}))[{index}] = f32_to_bf16((f32)({value}));"
    if dtype == "bool":
        return f"((GLOBAL u8*)({pointer}))[{index}] = (u8)(({value}) != 0);"
    c = STORAGE[dtype]
    return f"((GLOBAL {c}*)({pointer}))[{index}] = {convert(value, source, c)};"
