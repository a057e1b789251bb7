"""A whole backend in pure Python over NumPy: the worked example of the backend author's manual, and an oracle.

It fills the required set of ``tesserack/abi.h`` and nothing else; the core decomposes every other operator into it.
Memory is a NumPy array of bytes that the core never looks into, as if it lay on a device of its own. What it lacks:
complex dtypes, which run on the cpu backend, visibly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from numpy.typing import NDArray
from scipy import special
from tesserack.backends import Backend, Operand, Program

Array = NDArray[Any]

# NumPy has no bfloat16: its bits travel as uint16, its values are computed as float32.
INTEGERS = "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"
NAMES = "bool", *INTEGERS, "float16", "bfloat16", "float32", "float64"
DTYPES = {getattr(ts, name): np.dtype(name if name != "bfloat16" else "uint16") for name in NAMES}


class Reference(Backend):
    """One device whose memory is NumPy's."""

    name, vendor, version = "reference", "org.tesserack.reference", "0.1.0"

    def properties(self, device: int) -> dict[str, Any]:
        return {"name": "NumPy", "dtypes": DTYPES, "compute_units": 1, "simulated": True}

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        return np.empty(nbytes, np.uint8)

    def copy_from_host(self, device: int, dst: Array, dst_offset: int, src: memoryview, stream: Any) -> None:
        dst[dst_offset : dst_offset + src.nbytes] = np.frombuffer(src, np.uint8)

    def copy_to_host(self, device: int, dst: memoryview, src: Array, src_offset: int, stream: Any) -> None:
        np.frombuffer(dst, np.uint8)[:] = src[src_offset : src_offset + dst.nbytes]

    def copy_within(self, device: int, dst: Array, to: int, src: Array, start: int, nbytes: int, stream: Any) -> None:
        dst[to : to + nbytes] = src[start : start + nbytes]


backend = Reference()


# --- tensors as arrays ----------------------------------------------------------------------------------------------


def view(x: Operand) -> Array:
    """The elements where they lie: strides may be zero or negative."""
    return np.ndarray(x.shape, DTYPES[x.dtype], x.handle, x.byte_offset, x.byte_strides)


def read(x: Any, dtype: Any = None) -> Array:
    """The values, converted to a dtype of Tesserack's. Numbers are tensors without storage."""
    values = view(x) if isinstance(x, Operand) else np.asarray(x)
    if isinstance(x, Operand) and x.dtype is ts.bfloat16:
        values = (values.astype(np.uint32) << 16).view(np.float32)
    if dtype is None:
        return values
    return values.astype(np.float32 if dtype is ts.bfloat16 else DTYPES[dtype], copy=False)


def write(out: Operand, values: Any) -> None:
    """Store values, converted to out's dtype."""
    if out.dtype is ts.bfloat16:
        bits = np.asarray(values, np.float32).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
        values = np.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FC0, rounded)
    elif out.dtype is ts.bool:
        values = np.asarray(values) != 0
    view(out)[...] = values


@backend.kernel("copy_cast")
def copy_cast(out: Operand, x: Operand) -> None:
    if isinstance(x, Operand) and x.dtype is out.dtype:  # bit for bit, what a NaN carries included
        view(out)[...] = view(x)
        return
    with np.errstate(all="ignore"):
        write(out, read(x))


@backend.kernel("fill")
def fill(out: Operand, value: float) -> None:
    with np.errstate(all="ignore"):
        write(out, value if out.dtype is not ts.uint64 else np.uint64(int(value) % 2**64))


@backend.kernel("iota")
def iota(out: Operand, start: float, step: float) -> None:
    with np.errstate(all="ignore"):
        write(out, start + step * np.arange(out.numel))


# --- pointwise ------------------------------------------------------------------------------------------------------


def truncating_division(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    return np.asarray(quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype))


def power(a: Array, b: Array) -> Array:
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    # An integer to a negative power is 0 unless the base is 1 or -1.
    small = np.where(a == 1, 1, np.where(a == -1, 1 - 2 * (b & 1), 0)) if a.dtype.kind == "i" else 0
    return np.where(b < 0, small, np.power(a, np.maximum(b, 0)))


def shifted(shift: Callable[..., Array]) -> Callable[..., Array]:
    """Shifts by the width and more give what shifting one by one would."""

    def apply(a: Array, b: Array) -> Array:
        bits = a.dtype.itemsize * 8
        beyond = 0 if shift is np.left_shift else np.where(a < 0, -1, 0).astype(a.dtype)
        return np.where((b < 0) | (b >= bits), beyond, shift(a, np.clip(b, 0, bits - 1)))

    return apply


INSTRUCTIONS: dict[str, Callable[..., Any]] = {
    "copy": np.positive,
    "neg": np.negative,
    "abs": np.abs,
    "sign": lambda a: np.where(np.isnan(a), 0, np.sign(a)),
    "recip": lambda a: 1 / a,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "erf": special.erf,
    "erfc": special.erfc,
    "erfinv": lambda a: np.copysign(special.erfinv(a), a),  # which loses the sign of zero
    "lgamma": lambda a: np.where(abs(a) < 1e-290, -np.log(abs(a)), np.where(a - a == 0, special.gammaln(a), a * a)),
    "digamma": lambda a: np.where(a == 0, np.copysign(np.inf, -a), special.psi(a)),
    "sigmoid": special.expit,
    "round": np.rint,
    "bitnot": np.invert,
    "not": lambda a: a == 0,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": truncating_division,
    "floordiv": np.floor_divide,
    "mod": lambda a, b: np.where(((r := np.fmod(a, b)) != 0) & ((r < 0) != (b < 0)), r + b, r),
    "fmod": np.fmod,
    "pow": power,
    "max": lambda a, b: np.where((a >= b) | np.isnan(a), a, b),
    "min": lambda a, b: np.where((a <= b) | np.isnan(a), a, b),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shl": shifted(np.left_shift),
    "shr": shifted(np.right_shift),
    "select": lambda a, b, c: np.where(a != 0, b, c),
    "fma": lambda a, b, c: a * b + c,
}
# The others are NumPy's by name, some with another spelling.
SPELLED = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
SPELLED |= {"atanh": "arctanh", "atan2": "arctan2"}


DIVISIONS = ("div", "floordiv", "mod", "fmod")  # of integers by zero: an error, of which NumPy only warns


def instruction(name: str) -> Callable[..., Any]:
    return INSTRUCTIONS.get(name) or getattr(np, SPELLED.get(name, name))


@backend.kernel("pointwise")
def pointwise(*, outputs: tuple[Operand, ...], inputs: tuple[Any, ...], program: Program, compute_dtype: Any) -> None:
    compute = DTYPES[compute_dtype]
    registers = [read(x, compute_dtype) for x in inputs]
    with np.errstate(all="ignore"):
        exact = program.integers if compute.kind in "iu" else program.constants
        registers += [np.asarray(c).astype(compute) for c in exact]
        for name, *operands in program.instructions:
            given = [registers[k] for k in operands]
            if name in DIVISIONS and compute.kind in "iu" and not np.all(given[1]):
                raise ZeroDivisionError("integer division by zero")
            registers.append(np.asarray(instruction(name)(*given)).astype(compute, copy=False))
        for out, register in zip(outputs, program.outputs, strict=True):
            write(out, registers[register])


# --- reductions, scans, products ------------------------------------------------------------------------------------

REDUCTIONS: Any = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "all": np.all}


@backend.kernel("reduce")
def reduce(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: ts.dtype) -> None:
    values = read(x)
    kept, axes = values.shape[: values.ndim - ndims], tuple(range(values.ndim - ndims, values.ndim))
    with np.errstate(all="ignore"):
        if opcode in ("argmax", "argmin"):  # positions count through all reduced dims; NumPy's first NaN wins
            write(out, getattr(np, opcode)(values.reshape(*kept, -1), axis=-1))
        elif opcode in ("sum", "prod"):
            write(out, REDUCTIONS[opcode](read(x, compute_dtype), axis=axes))
        else:
            write(out, REDUCTIONS[opcode](values, axis=axes))


@backend.kernel("scan")
def scan(*, outputs: tuple[Operand, ...], inputs: tuple[Operand], opcode: str, compute_dtype: ts.dtype) -> None:
    values = read(inputs[0], compute_dtype)
    ufunc = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[opcode]
    with np.errstate(all="ignore"):
        running = ufunc.accumulate(values, axis=-1)
    write(outputs[0], running)
    if len(outputs) == 2:  # where the running extreme was seen last
        reached = (values == running) | (np.isnan(values) if values.dtype.kind == "f" else False)
        positions = np.where(reached, np.arange(values.shape[-1]), 0)
        write(outputs[1], np.maximum.accumulate(positions, axis=-1))


@backend.kernel("matmul")
def matmul(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: ts.dtype) -> None:
    with np.errstate(all="ignore"):
        product = np.matmul(read(a, compute_dtype), read(b, compute_dtype))
        write(out, product if bias is None else product + read(bias, compute_dtype))


# --- indexing and sorting -------------------------------------------------------------------------------------------


def places(index: Operand, dim: int, size: int) -> tuple[Array, ...]:
    """What NumPy indexes with: the given positions along dim, each element's own along the others."""
    positions = read(index)
    if positions.size and not (positions.min() >= 0 and positions.max() < size):
        raise IndexError(f"index {positions.flat[np.argmax((positions < 0) | (positions >= size))]} is out of bounds")
    grid: list[Array] = list(np.indices(positions.shape, sparse=True))
    grid[dim] = positions
    return tuple(grid)


@backend.kernel("gather")
def gather(out: Operand, x: Operand, index: Operand, dim: int) -> None:
    values = view(x)
    view(out)[...] = values[places(index, dim, values.shape[dim])]


@backend.kernel("scatter")
def scatter(out: Operand, index: Operand, source: Any, dim: int, *, opcode: str) -> None:
    base = read(out).copy()
    at = places(index, dim, base.shape[dim])
    values = read(source).astype(base.dtype)
    if opcode == "set":
        base[at] = values
    else:
        {"add": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}[opcode].at(base, at, values)
    write(out, base)


@backend.kernel("sort")
def sort(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
    given = read(x)
    if descending:  # stable: equal elements keep their order
        order = given.shape[-1] - 1 - np.argsort(given[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    else:
        order = np.argsort(given, axis=-1, kind="stable")
    write(positions, order)
    view(values)[...] = np.take_along_axis(view(x), order, axis=-1)


# --- random numbers -------------------------------------------------------------------------------------------------


def philox(key: int, first_block: int, blocks: int) -> Array:
    """Words of Philox4x32-10 (Salmon et al., 2011), four per block: uint64 arrays of 32-bit values."""
    mask, counter = np.uint64(0xFFFFFFFF), np.arange(first_block, first_block + blocks, dtype=np.uint64)
    c = [counter & mask, counter >> np.uint64(32), np.zeros_like(counter), np.zeros_like(counter)]
    k0, k1 = key & 0xFFFFFFFF, key >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high0, high1 = p0 >> np.uint64(32), p1 >> np.uint64(32)
        c = [high1 ^ c[1] ^ np.uint64(k0), p1 & mask, high0 ^ c[3] ^ np.uint64(k1), p0 & mask]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=-1).reshape(-1)


@backend.kernel("random_bits")
def random_bits(out: Operand, key: int, offset: int) -> None:
    wide = out.dtype is ts.uint64
    words = out.numel * (2 if wide else 1)
    first = offset // 4
    stream = philox(key, first, (offset + words + 3) // 4 - first)[offset - 4 * first :][:words]
    write(out, ((stream[0::2] | stream[1::2] << np.uint64(32)) if wide else stream).reshape(out.shape))
