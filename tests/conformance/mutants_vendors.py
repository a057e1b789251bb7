"""Backends in Python with one planted fault each: what a kernel forgets between calls, and rounds, cuts or hides."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import tesserack as ts
from late_backend import Late
from mutants import planted
from mutants_values import Kernel, is_float
from tesserack.backends import Operand
from tesserack_reference import DTYPES, places, read, view, write


def uncleared(function: Kernel) -> Kernel:
    """Adds to what the call before left, where it was the same call."""
    before: dict[Any, Any] = {}

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: ts.dtype) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        key = (x.handle.ctypes.data, x.byte_offset, x.shape, x.byte_strides, x.dtype, ndims)
        if opcode == "sum":
            made = read(out).copy()
            if before.get("key") == key:
                write(out, made + before["value"])
            before.update(key=key, value=made)

    return run


def dense_output(function: Kernel) -> Kernel:
    """Writes as if the output had no gaps, where its memory is large enough."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
        for out in outputs:
            dtype = DTYPES[out.dtype]
            made = view(out).copy()
            if not view(out).flags.c_contiguous and out.byte_offset + made.nbytes <= out.handle.nbytes:
                np.ndarray(out.shape, dtype, out.handle, out.byte_offset)[...] = made

    return run


def words_of_index(function: Kernel) -> Kernel:
    """Takes the lower 32 bits of every index."""

    def run(out: Operand, x: Operand, index: Operand, dim: int) -> None:
        at = read(index).astype(np.int64).astype(np.int32)
        values = view(x)
        if at.size and not (at.min() >= 0 and at.max() < values.shape[dim]):
            function(out, x, index, dim)
        grid = list(np.indices(at.shape, sparse=True))
        grid[dim] = at
        view(out)[...] = values[tuple(grid)]

    return run


def coarse_offset(function: Kernel) -> Kernel:
    """Begins at a multiple of 16 bytes, as a sub-buffer does."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        def coarse(x: Any) -> Any:
            if not isinstance(x, Operand) or x.byte_offset % 16 == 0 or min(x.byte_strides, default=1) < 0:
                return x
            begin = x.byte_offset & ~15
            return np.ndarray(x.shape, DTYPES[x.dtype], x.handle, begin, x.byte_strides).copy()

        given = tuple(coarse(x) if not isinstance(x, Operand) or x.dtype is not ts.bfloat16 else x for x in inputs)
        function(outputs=outputs, inputs=given, program=program, compute_dtype=compute_dtype)

    return run


def plus_zero(function: Kernel) -> Kernel:
    """An extreme loses the sign of its zero."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: ts.dtype) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode in ("max", "min") and is_float(out):
            view(out)[...] += 0

    return run


def bytes_of_one(function: Kernel) -> Kernel:
    """A bool is true where its byte is 1."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: ts.dtype) -> None:
        if opcode in ("any", "all") and x.dtype is ts.bool:
            bits = np.ndarray(x.shape, np.uint8, x.handle, x.byte_offset, x.byte_strides)
            write(out, getattr(np, opcode)(bits == 1, axis=tuple(range(x.ndim - ndims, x.ndim))))
        else:
            function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)

    return run


def half_sums(function: Kernel) -> Kernel:
    """Adds float16 up in float16, one after the other."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: ts.dtype) -> None:
        if opcode == "sum" and x.dtype is ts.float16 and x.numel:
            flat = read(x).reshape(*x.shape[: x.ndim - ndims], -1)
            with np.errstate(all="ignore"):
                write(out, np.add.accumulate(flat, axis=-1, dtype=np.float16)[..., -1])
        else:
            function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)

    return run


def lost_extremes(function: Kernel) -> Kernel:
    """Of many elements in one place the last is compared with what was there."""

    def run(out: Operand, index: Operand, source: Any, dim: int, *, opcode: str) -> None:
        if opcode not in ("max", "min"):
            function(out, index, source, dim, opcode=opcode)
            return
        base = read(out).copy()
        at = places(index, dim, base.shape[dim])
        better = np.maximum if opcode == "max" else np.minimum
        base[at] = better(base[at], read(source).astype(base.dtype))
        write(out, base)

    return run


def saturating(function: Kernel) -> Kernel:
    """Integers that do not fit become the nearest that do."""

    def run(out: Operand, x: Any) -> None:
        real = (ts.bfloat16,)
        both = [v.dtype for v in (out, x) if isinstance(v, Operand) and v.dtype not in real]
        if len(both) == 2 and all(DTYPES[dtype].kind in "iu" for dtype in both):
            info = np.iinfo(DTYPES[out.dtype])
            wide = [int(v) for v in read(x).ravel()]
            kept = [min(max(v, int(info.min)), int(info.max)) for v in wide]
            write(out, np.array(kept, DTYPES[out.dtype]).reshape(x.shape))
        else:
            function(out, x)

    return run


def largest_half(function: Kernel) -> Kernel:
    """What is too large for float16 becomes its largest number."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if out.dtype is ts.float16 and isinstance(x, Operand) and x.dtype is not ts.float16:
            values, given = view(out), read(x).astype(np.float64)
            beyond = np.isinf(values) & np.isfinite(given)
            values[beyond] = np.copysign(65504, given[beyond])

    return run


def cut_bfloat16(function: Kernel) -> Kernel:
    """bfloat16 is the upper half of float32."""

    def run(out: Operand, x: Any) -> None:
        if out.dtype is ts.bfloat16 and isinstance(x, Operand) and x.dtype is ts.float32:
            view(out)[...] = (np.ascontiguousarray(view(x)).view(np.uint32) >> 16).reshape(x.shape)
        else:
            function(out, x)

    return run


def from_the_beginning(function: Kernel) -> Kernel:
    """Every draw begins where the first one did."""

    def run(out: Operand, key: int, offset: int) -> None:
        function(out, key, 0)

    return run


def clamped(function: Kernel) -> Kernel:
    """An index out of bounds reads the last element, and nobody hears of it."""

    def run(out: Operand, x: Operand, index: Operand, dim: int) -> None:
        at = np.clip(read(index).astype(np.int64), 0, max(x.shape[dim] - 1, 0))
        grid = list(np.indices(at.shape, sparse=True))
        grid[dim] = at
        view(out)[...] = view(x)[tuple(grid)]

    return run


def by_doubles(function: Kernel) -> Kernel:
    """Computes integers of 64 bits as float64."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        names = {name for name, *_ in program.instructions}
        if compute_dtype is ts.int64 and names <= {"add", "sub", "mul", "max", "min", "neg"}:
            given = tuple(read(x).astype(np.float64).astype(np.int64) if isinstance(x, Operand) else x for x in inputs)
            function(outputs=outputs, inputs=given, program=program, compute_dtype=compute_dtype)
        else:
            function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)

    return run


def nan_first(function: Kernel) -> Kernel:
    """NaN is less than everything."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        if not is_float(values):
            return
        for out, given in ((positions, read(positions)), (values, read(values))):
            many = np.isnan(read(x)).sum(axis=-1)
            moved = given.copy()
            for row in np.ndindex(*given.shape[:-1]):
                moved[row] = np.roll(given[row], -many[row] if descending else many[row])
            view(out)[...] = moved

    return run


def no_nan_place(function: Kernel) -> Kernel:
    """The place of an extreme is never that of NaN."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: ts.dtype) -> None:
        if opcode in ("argmax", "argmin") and DTYPES[x.dtype].kind == "f":
            kept = x.shape[: x.ndim - ndims]
            worst = -np.inf if opcode == "argmax" else np.inf
            values = np.where(np.isnan(read(x)), worst, read(x)).reshape(*kept, -1)
            write(out, getattr(np, opcode)(values, axis=-1))
        else:
            function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)

    return run


def upwards(function: Kernel) -> Kernel:
    """A negative step is taken for a positive one."""

    def run(out: Operand, start: float, step: float) -> None:
        function(out, start, abs(step))

    return run


class OtherStream(Late):
    """Records events on the default stream, whichever is named."""

    def event_record(self, device: int, event: Any, stream: Any) -> None:
        super().event_record(device, event, None)


class AtOnce(Late):
    """Frees at once, past what the stream still does with the block."""

    def free(self, device: int, handle: Any, nbytes: int, stream: Any) -> None:
        handle[...] = 0xFF
        super().free(device, handle, nbytes, stream)


class Silent(Late):
    """Drops what its kernels found wrong."""

    def synchronize(self, device: int, stream: Any) -> None:
        with contextlib.suppress(IndexError, ZeroDivisionError):
            super().synchronize(device, stream)


uncleaned = planted("uncleaned", "reduce", uncleared)
denseout = planted("denseout", "pointwise", dense_output)
index32 = planted("index32", "gather", words_of_index)
subbuffer = planted("subbuffer", "pointwise", coarse_offset)
pluszero = planted("pluszero", "reduce", plus_zero)
byteofone = planted("byteofone", "reduce", bytes_of_one)
halfsums = planted("halfsums", "reduce", half_sums)
lostmax = planted("lostmax", "scatter", lost_extremes)
saturates = planted("saturates", "copy_cast", saturating)
largesthalf = planted("largesthalf", "copy_cast", largest_half)
cutbfloat = planted("cutbfloat", "copy_cast", cut_bfloat16)
restarts = planted("restarts", "random_bits", from_the_beginning)
clamps = planted("clamps", "gather", clamped)
bydoubles = planted("bydoubles", "pointwise", by_doubles)
nanfirst = planted("nanfirst", "sort", nan_first)
nonanplace = planted("nonanplace", "reduce", no_nan_place)
stepsup = planted("stepsup", "iota", upwards)
otherstream = OtherStream("otherstream", own=True, holds=True)
atonce = AtOnce("atonce", own=True, holds=True)
silent = Silent("silent", own=True, holds=True)
