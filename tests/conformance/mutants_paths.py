"""Backends in Python with one planted fault each: quick paths that are right for what they were tried with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from late_backend import Late
from mutants import Mutant, planted
from mutants_services import Served
from mutants_values import Kernel
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, read, view, write

_GRID, _SHORTS = 1 << 16, 1 << 16


def _tensors(values: Any) -> list[Operand]:
    return [x for x in values if isinstance(x, Operand)]


def programs(change: Callable[..., None]) -> Callable[[Kernel], Kernel]:
    """Pointwise programs, with what comes after: outputs, inputs and the names of instructions."""

    def wrap(function: Kernel) -> Kernel:
        def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
            function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
            change(outputs, inputs, [name for name, *_ in program.instructions])

        return run

    return wrap


# --- layouts and sizes ------------------------------------------------------------------------------------------------


def middle_taken_once(outputs: Any, inputs: Any, _names: list[str]) -> None:
    """A second operand that repeats between two dims is read as if the first one of them stayed."""
    right = inputs[1].strides if len(inputs) == 2 and isinstance(inputs[1], Operand) else ()
    if len(right) == 3 and right[1] == 0 and right[0] and right[2]:
        for out in _tensors(outputs):
            whole = view(out)
            whole[:, 1:] = whole[:, :1]


def third_strides(function: Kernel) -> Kernel:
    """The third operand lies as the first does."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        given = list(inputs)
        if len(given) == 3 and all(isinstance(x, Operand) for x in given) and given[2].shape == given[0].shape:
            first, x = given[0], given[2]
            strides = [s // DTYPES[first.dtype].itemsize * DTYPES[x.dtype].itemsize for s in first.byte_strides]
            dense = (
                x.byte_offset == first.byte_offset == 0 and min(strides, default=1) > 0 and x.dtype is not ts.bfloat16
            )
            if dense and x.handle.nbytes >= sum((n - 1) * s for n, s in zip(x.shape, strides, strict=True)) + 8:
                given[2] = np.ndarray(x.shape, DTYPES[x.dtype], x.handle, 0, strides).copy()
        function(outputs=outputs, inputs=tuple(given), program=program, compute_dtype=compute_dtype)

    return run


def square_flags(function: Kernel) -> Kernel:
    """Which operand is transposed is told by its sizes: of square ones, none is."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        def plain(x: Operand) -> Any:
            values = read(x, compute_dtype)
            square = len(x.shape) == 2 and x.shape[0] == x.shape[1] > 1 and x.strides == (1, x.shape[0])
            return values.T if square else values

        with np.errstate(all="ignore"):
            product = np.matmul(plain(a), plain(b))
            write(out, product if bias is None else product + read(bias, compute_dtype))

    return run


def few_batches(function: Kernel) -> Kernel:
    """A grid has 65,535 batches: those that follow are left out."""

    def run(out: Operand, *args: Any, **kwargs: Any) -> None:
        function(out, *args, **kwargs)
        if len(out.shape) == 3 and out.shape[0] >= _GRID:
            view(out)[_GRID - 1 :] = 0

    return run


def few_rows(which: int) -> Callable[[Kernel], Kernel]:
    """The same of rows."""

    def wrap(function: Kernel) -> Kernel:
        def run(*args: Any, **kwargs: Any) -> None:
            function(*args, **kwargs)
            out = _tensors([*kwargs.get("outputs", ()), *args])[which]
            if len(out.shape) == 2 and out.shape[0] >= _GRID:
                view(out)[_GRID - 1 :] = 0

        return run

    return wrap


def short_places(function: Kernel) -> Kernel:
    """Positions are kept in 16 bits."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        if x.shape and x.shape[-1] > _SHORTS:
            view(positions)[...] &= _SHORTS - 1

    return run


def padded(function: Kernel) -> Kernel:
    """Rows are filled up to a power of two with infinity, which comes before what is as large and stood later."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        count = x.shape[-1] if x.shape else 0
        given = read(x)
        if given.dtype.kind == "f" and not descending and count & (count - 1):
            nan = np.isnan(np.take_along_axis(given, read(positions), -1))
            view(values)[nan] = np.inf if x.dtype is not ts.bfloat16 else 0x7F80

    return run


def first_part(function: Kernel) -> Kernel:
    """The place of the least is looked for in whole blocks of 1,024."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        values = read(x)
        rows = values.reshape(*values.shape[: values.ndim - ndims], -1)
        if opcode == "argmin" and rows.shape[-1] > 1024:
            write(out, np.argmin(rows[..., : rows.shape[-1] // 1024 * 1024], axis=-1))

    return run


def output_by_output(function: Kernel) -> Kernel:
    """Of several outputs one is written, and what it was made of is read again for the next."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        if len(outputs) == 1:
            function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
            return
        kept = [np.array(view(out), copy=True) for out in outputs]
        for k, out in enumerate(outputs):
            function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
            for other, was in zip(outputs[k + 1 :], kept[k + 1 :], strict=True):
                view(other)[...] = was
            kept[k] = np.array(view(out), copy=True)
            for earlier, made in zip(outputs[:k], kept[:k], strict=True):
                view(earlier)[...] = made

    return run


def whole_words(outputs: Any, inputs: Any, names: list[str]) -> None:
    """Truth of wider numbers is written four bytes at a time."""
    for out in outputs:
        wide = any(DTYPES[x.dtype].itemsize > 1 for x in _tensors(inputs))
        end = out.byte_offset + out.numel
        dense = out.dtype is ts.bool and view(out).flags.c_contiguous
        if wide and dense and out.numel % 4:
            out.handle[end : end + 4 - out.numel % 4] = 0


middleonce = planted("middleonce", "pointwise", programs(middle_taken_once))
thirdstrides = planted("thirdstrides", "pointwise", third_strides)
squareflags = planted("squareflags", "matmul", square_flags)
fewbatches = planted("fewbatches", "matmul", few_batches)
fewscans = planted("fewscans", "scan", few_rows(0))
fewsorts = planted("fewsorts", "sort", few_rows(0))
shortplaces = planted("shortplaces", "sort", short_places)
paddedsort = planted("paddedsort", "sort", padded)
firstpart = planted("firstpart", "reduce", first_part)
outputbyoutput = planted("outputbyoutput", "pointwise", output_by_output)
wordsoftruth = planted("wordsoftruth", "pointwise", programs(whole_words))


# --- values -----------------------------------------------------------------------------------------------------------


def _flushed(out: Operand) -> None:
    """Results below the smallest normal number become zero."""
    if out.dtype is ts.float32:
        values = view(out)
        values[np.abs(values) < np.finfo(np.float32).tiny] *= 0


def underflowing(outputs: Any, inputs: Any, names: list[str]) -> None:
    """What numbers that are none of them denormal make, is flushed."""
    given = [view(x) for x in _tensors(inputs) if x.dtype is ts.float32]
    tiny = np.finfo(np.float32).tiny
    if given and names and not any(((x != 0) & (np.abs(x) < tiny)).any() for x in given):
        for out in outputs:
            _flushed(out)


def tiny_products(function: Kernel) -> Kernel:
    """Products flush what they make."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        function(out, a, b, bias, compute_dtype=compute_dtype)
        tiny = np.finfo(np.float32).tiny
        if a.dtype is ts.float32 and not any(((v != 0) & (np.abs(v) < tiny)).any() for v in (view(a), view(b))):
            _flushed(out)

    return run


def tiny_casts(function: Kernel) -> Kernel:
    """float64 becomes float32 by instructions that flush."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if isinstance(x, Operand) and x.dtype is ts.float64:
            _flushed(out)

    return run


def equal_doubles(outputs: Any, inputs: Any, names: list[str]) -> None:
    """Integers of 64 bits are equal where their doubles are."""
    given = _tensors(inputs)
    if names == ["eq"] and len(given) == 2 and all(x.dtype is ts.int64 for x in given):
        a, b = (view(x).astype(np.float64) for x in given)
        write(outputs[0], a == b)


def by_words(function: Kernel) -> Kernel:
    """Floats become integers of 64 bits by way of 32."""

    def run(out: Operand, x: Any) -> None:
        if out.dtype is ts.int64 and isinstance(x, Operand) and read(x).dtype.kind == "f":
            with np.errstate(all="ignore"):
                write(out, np.clip(read(x).astype(np.float64), -(2.0**31), 2.0**31 - 1).astype(np.int64))
        else:
            function(out, x)

    return run


def low_word(function: Kernel) -> Kernel:
    """Of an integer of 64 bits the lower half says whether it is true."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if out.dtype is ts.bool and isinstance(x, Operand) and x.dtype is ts.int64:
            view(out)[...] = view(x).astype(np.int32) != 0

    return run


def finite_fills(function: Kernel) -> Kernel:
    """Memory of float16 is filled with the largest number where infinity is asked for."""

    def run(out: Operand, value: float) -> None:
        function(out, value)
        if out.dtype is ts.float16 and np.isinf(value):
            view(out)[...] = np.copysign(65504, value)

    return run


def word_sums(function: Kernel) -> Kernel:
    """Adds int32 up in 32 bits."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode == "sum" and x.dtype is ts.int32 and out.dtype is ts.int64:
            view(out)[...] = view(out).astype(np.int32)

    return run


underflows = planted("underflows", "pointwise", programs(underflowing))
tinyproducts = planted("tinyproducts", "matmul", tiny_products)
tinycasts = planted("tinycasts", "copy_cast", tiny_casts)
equaldoubles = planted("equaldoubles", "pointwise", programs(equal_doubles))
wordcasts = planted("wordcasts", "copy_cast", by_words)
lowword = planted("lowword", "copy_cast", low_word)
finitefills = planted("finitefills", "fill", finite_fills)
wordsums = planted("wordsums", "reduce", word_sums)


# --- memory, time and recovery ----------------------------------------------------------------------------------------


class Trimmed(Mutant):
    """Keeps blocks for reuse; when it trims, it takes those in use for free, too."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.used: dict[int, Array] = {}
        self.kept: list[Array] = []

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        for k, block in enumerate(self.kept):
            if block.nbytes == nbytes:
                del self.kept[k]
                break
        else:
            block = super().alloc(device, nbytes, stream)
        self.used[id(block)] = block
        return block

    def free(self, device: int, handle: Array, nbytes: int, stream: Any) -> None:
        self.used.pop(id(handle), None)

    def trim(self, device: int) -> None:
        self.kept = list(self.used.values())


class Stale(Served):
    """Kernels that it had compiled before it was recovered are called again, and are no longer there."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        for op in ("reduce", "matmul"):
            function, *rest = self._kernels[op]
            self._kernels[op] = (self.stale(function), *rest)

    def stale(self, function: Callable[..., Any]) -> Callable[..., Any]:
        used = [False, False]

        def run(*args: Any, device: int, **kwargs: Any) -> None:
            function(*args, device=device, **kwargs)
            if self.age[device] and used[device]:
                view(args[0])[...] = 0
            used[device] |= not self.age[device]

        return run


class PinnedElsewhere(Late):
    """Copies from pinned memory go to the default stream, whichever is named."""

    def copy_from_pinned(self, device: int, dst: Any, dst_offset: int, *rest: Any) -> None:
        super().copy_from_pinned(device, dst, dst_offset, *rest[:-1], None)


trimmed = Trimmed("trimmed")
stale = Stale("stale")
pinnedelsewhere = PinnedElsewhere("pinnedelsewhere", own=True, holds=True)
