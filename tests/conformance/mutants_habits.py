"""Backends in Python with one planted fault each: what was right for the numbers and forms that somebody tried."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from late_backend import Late, Stream
from mutants import planted
from mutants_ranks import Joined
from mutants_values import Kernel, is_float
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, places, read, view, write

Pointwise = Callable[[Operand, tuple[Any, ...], set[str]], None]


def of_programs(change: Pointwise) -> Callable[[Kernel], Kernel]:
    """Changes what a program of one instruction made of its operands."""

    def wrap(function: Kernel) -> Kernel:
        def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
            function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
            names = {name for name, *_ in program.instructions}
            if len(program.instructions) == 1 and is_float(outputs[0]):
                change(outputs[0], inputs, names)

        return run

    return wrap


# --- numbers ----------------------------------------------------------------------------------------------------------


def by_logarithms(out: Operand, inputs: tuple[Any, ...], names: set[str]) -> None:
    """A power is the exponential of a logarithm: there is none of negative numbers."""
    if names == {"pow"} and isinstance(inputs[0], Operand):
        values = view(out)
        values[np.broadcast_to(read(inputs[0]) < 0, values.shape)] = np.nan


def half_away(out: Operand, inputs: tuple[Any, ...], names: set[str]) -> None:
    """Rounds halves away from zero, as C's round does."""
    if names == {"round"}:
        given = read(inputs[0])
        write(out, np.copysign(np.floor(np.abs(given) + 0.5), given))


def short_angles(out: Operand, inputs: tuple[Any, ...], names: set[str]) -> None:
    """Takes off turns with a pi of single precision."""
    if names in ({"sin"}, {"cos"}) and out.dtype is ts.float32:
        turn = np.float32(2 * np.pi)
        given = read(inputs[0]).astype(np.float32)
        left = given - np.round(given / turn) * turn
        write(out, np.sin(left) if names == {"sin"} else np.cos(left))


def no_denormal_exp(out: Operand, inputs: tuple[Any, ...], names: set[str]) -> None:
    """An exponential too small to be normal is zero."""
    if names == {"exp"}:
        values = view(out)
        values[values < np.finfo(values.dtype).tiny] = 0


def skipping_zeros(function: Kernel) -> Kernel:
    """Leaves out factors of zero: of NaN and infinity, too."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        x, y = read(a, compute_dtype), read(b, compute_dtype)
        zeros = bool(x.size and y.size) and bool((x == 0).all(axis=-1).any())
        function(out, a, b, bias, compute_dtype=compute_dtype)
        if zeros and is_float(out) and bias is None:
            view(out)[np.broadcast_to((x == 0).all(axis=-1)[..., None], out.shape)] = 0

    return run


def ten_bits(function: Kernel) -> Kernel:
    """Multiplies float32 with ten bits of each factor."""

    def cut(x: Operand) -> Any:
        return (read(x).view(np.uint32) + 0x1000 & np.uint32(0xFFFFE000)).view(np.float32)

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        function(out, a, b, bias, compute_dtype=compute_dtype)
        if a.dtype is ts.float32 and bias is None:
            write(out, np.matmul(cut(a), cut(b)))

    return run


def top_bit(function: Kernel) -> Kernel:
    """Makes floats of uint64 as if it had a sign."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if isinstance(x, Operand) and x.dtype is ts.uint64 and is_float(out):
            write(out, read(x).view(np.int64))

    return run


def nan_is_false(function: Kernel) -> Kernel:
    """What is neither less nor more than zero is false."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if isinstance(x, Operand) and out.dtype is ts.bool and DTYPES[x.dtype].kind == "f":
            view(out)[np.isnan(read(x))] = False

    return run


def nan_is_nothing(function: Kernel) -> Kernel:
    """The same, of any and all."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode in ("any", "all") and DTYPES[x.dtype].kind == "f":
            some = np.nan_to_num(read(x), nan=0.0) != 0
            write(out, getattr(np, opcode)(some, axis=tuple(range(x.ndim - ndims, x.ndim))))

    return run


def places_by_doubles(function: Kernel) -> Kernel:
    """Looks for the largest integer among doubles."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode in ("argmax", "argmin") and x.dtype is ts.int64:
            values = read(x).astype(np.float64).reshape(*x.shape[: x.ndim - ndims], -1)
            write(out, getattr(np, opcode)(values, axis=-1))

    return run


def sorts_by_doubles(function: Kernel) -> Kernel:
    """Compares integers of 64 bits as doubles."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        if x.dtype is ts.int64:
            keys = read(x).astype(np.float64)
            order = np.argsort(-keys if descending else keys, -1, kind="stable")
            write(values, np.take_along_axis(read(x), order, -1))
            write(positions, order)

    return run


def radix_zeros(function: Kernel) -> Kernel:
    """Sorts by bits: zeros with a sign come first."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        given = read(x)
        if is_float(x) and (given == 0).any() and not np.isnan(given).any():
            lean = np.where((given == 0) & np.signbit(given), np.finfo(given.dtype).smallest_subnormal * -0.5, 0)
            keys = np.where(given == 0, np.where(np.signbit(given), -1, 1), np.sign(given) * 2) * 1.0
            order = np.lexsort(((keys, given + lean) if not descending else (-keys, -given)), axis=-1)
            write(values, np.take_along_axis(given, order, -1))
            write(positions, order)

    return run


def added_up(function: Kernel) -> Kernel:
    """Adds the step to what came before, and its error."""

    def run(out: Operand, start: float, step: float) -> None:
        if out.dtype is ts.float32 and out.numel:
            steps = np.full(out.numel, step, np.float32)
            steps[0] = start
            write(out, np.add.accumulate(steps, dtype=np.float32))
        else:
            function(out, start, step)

    return run


def fills_plus(function: Kernel) -> Kernel:
    """Clears the memory for any zero."""

    def run(out: Operand, value: Any) -> None:
        function(out, 0 if value == 0 else value)

    return run


def half_partials(function: Kernel) -> Kernel:
    """Adds up in two stages, and keeps what lies between in the dtype of the result."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode == "sum" and out.dtype is ts.float16:
            flat = read(x, compute_dtype).reshape(*x.shape[: x.ndim - ndims], -1)
            parts = [flat[..., k : k + 256].sum(-1).astype(np.float16) for k in range(0, flat.shape[-1], 256)]
            write(out, np.stack(parts, -1).astype(np.float32).sum(-1) if parts else flat.sum(-1))

    return run


# --- forms ------------------------------------------------------------------------------------------------------------


def _dense(x: Operand) -> Any:
    """As if it had no gaps and repeated nothing, where its memory is large enough."""
    try:
        return np.ndarray(x.shape, DTYPES[x.dtype], x.handle, x.byte_offset).copy()
    except (TypeError, ValueError):
        return view(x)


def dense_index(function: Kernel) -> Kernel:
    def run(out: Operand, x: Operand, index: Operand, dim: int) -> None:
        at = np.clip(_dense(index).astype(np.int64), 0, max(x.shape[dim] - 1, 0))
        if 0 in index.byte_strides and index.numel > 1 and at.shape == out.shape:
            view(out)[...] = view(x)[places_of(at, dim)]
        else:
            function(out, x, index, dim)

    return run


def places_of(at: Array, dim: int) -> tuple[Any, ...]:
    grid = list(np.indices(at.shape, sparse=True))
    grid[dim] = at
    return tuple(grid)


def first_source(function: Kernel) -> Kernel:
    """A source that repeats is read as if it did not: what lies behind it is zero here."""

    def run(out: Operand, index: Operand, source: Any, dim: int, *, opcode: str) -> None:
        if isinstance(source, Operand) and 0 in source.byte_strides and source.numel > 1 and opcode == "set":
            flat = np.zeros(source.numel, DTYPES[source.dtype])
            flat[0] = view(source).flat[0]
            base = read(out).copy()
            base[places(index, dim, base.shape[dim])] = flat.reshape(source.shape)
            write(out, base)
        else:
            function(out, index, source, dim, opcode=opcode)

    return run


def first_batch(function: Kernel) -> Kernel:
    """Steps from matrix to matrix by their size, also where one stands for all."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        function(out, a, b, bias, compute_dtype=compute_dtype)
        if len(b.shape) > 2 and b.byte_strides[0] == 0 and b.shape[0] > 1:
            view(out)[1:] = 0

    return run


def dense_product(function: Kernel) -> Kernel:
    """Writes its product as if nothing lay between rows, where there is room."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        function(out, a, b, bias, compute_dtype=compute_dtype)
        made = read(out).copy()
        if not view(out).flags.c_contiguous and out.byte_offset + made.nbytes <= out.handle.nbytes:
            np.ndarray(out.shape, DTYPES[out.dtype], out.handle, out.byte_offset)[...] = made

    return run


def row_for_column(function: Kernel) -> Kernel:
    """What is added to a product is a row, though it be a column."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        function(out, a, b, bias, compute_dtype=compute_dtype)
        if bias is not None and len(bias.shape) == 2 and bias.byte_strides[1] == 0 and bias.shape[0] == bias.shape[1]:
            function(out, a, b, None, compute_dtype=compute_dtype)
            write(out, read(out) + np.swapaxes(read(bias), -1, -2))

    return run


# --- what is kept -----------------------------------------------------------------------------------------------------


def by_strides_of_the_first(function: Kernel) -> Kernel:
    """A plan by shape and opcode, which knows where the elements of the first operand lay."""
    plans: dict[Any, Any] = {}

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        strides = plans.setdefault((x.shape, ndims, opcode, x.dtype), x.byte_strides)
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode == "sum" and strides != x.byte_strides:
            try:
                other = np.ndarray(x.shape, DTYPES[x.dtype], x.handle, x.byte_offset, strides)
            except (TypeError, ValueError):
                return
            write(out, other.sum(axis=tuple(range(x.ndim - ndims, x.ndim))))

    return run


def dim_of_the_first(function: Kernel) -> Kernel:
    """Keeps a plan by the shapes: the dimension is that of the first call."""
    plans: dict[Any, int] = {}

    def run(out: Operand, x: Operand, index: Operand, dim: int) -> None:
        kept = plans.setdefault((x.shape, index.shape), dim)
        at = np.clip(read(index), 0, x.shape[kept] - 1) if x.shape else read(index)
        if kept != dim and all(n <= m for n, m in zip(index.shape, x.shape, strict=True)):
            view(out)[...] = view(x)[places_of(at.astype(np.int64), kept)]
        else:
            function(out, x, index, dim)

    return run


def addend_of_the_first(function: Kernel) -> Kernel:
    """Packs what is added to a product once for each size."""
    packed: dict[Any, Any] = {}

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        if bias is None or bias.dtype is ts.bfloat16:
            function(out, a, b, bias, compute_dtype=compute_dtype)
            return
        kept = packed.setdefault((a.shape, b.shape, out.dtype), read(bias).copy())
        function(out, a, b, None, compute_dtype=compute_dtype)
        write(out, read(out) + kept)

    return run


def compiled_by_one(function: Kernel) -> Kernel:
    """Notes that a program is being compiled, and takes it for done."""
    programs: dict[Any, bool] = {}

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        key = (program.id, compute_dtype)
        if key not in programs:
            programs[key] = False
            time.sleep(0.02)
            programs[key] = True
        if not programs[key]:
            raise RuntimeError("no program")
        function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)

    return run


# --- time -------------------------------------------------------------------------------------------------------------


class FirstRecord(Late):
    """An event tells of the first time that it was recorded."""

    def event_record(self, device: int, event: Any, stream: Any) -> None:
        if not event.get("recorded"):
            event["recorded"] = True
            super().event_record(device, event, stream)


class LaterRecord(Late):
    """A stream that waits looks at the event when it comes there: at what was recorded last by then."""

    def stream_wait_event(self, device: int, stream: Any, event: Any) -> None:
        self.stream(device, stream).put(lambda: None, lambda: event["done"].is_set())


class LeftOut(Late):
    """What copies within the device is no part of a recording."""

    def copy_within(self, device: int, dst: Any, to: int, src: Any, start: int, nbytes: int, stream: Any) -> None:
        if self.stream(device, stream).recording is None:
            super().copy_within(device, dst, to, src, start, nbytes, stream)


class CopiesAtOnce(Late):
    """Copies at once what should be written down."""

    def copy_within(self, device: int, dst: Any, to: int, src: Any, start: int, nbytes: int, stream: Any) -> None:
        chosen = self.stream(device, stream)
        kept, chosen.recording = chosen.recording, None
        super().copy_within(device, dst, to, src, start, nbytes, stream)
        chosen.recording = kept


class OnceOnly(Late):
    """A recording is used up when it is replayed."""

    def capture_replay(self, device: int, recording: Any, stream: Stream | None) -> None:
        super().capture_replay(device, recording, stream)
        recording["work"] = []


# --- communicators ----------------------------------------------------------------------------------------------------


class FirstPiece(Joined):
    """Moves no more than one piece of 64 KiB."""

    def store(self, c: Any, values: Any) -> None:
        values = np.asarray(values)
        super().store(c, values[: (64 << 10) // max(values.itemsize, 1)])


class LostNan(Joined):
    """The largest of two is not NaN."""

    def join(self, parts: list[Array], c: Any) -> Array:
        if c.reduction in (2, 3) and parts[0].dtype.kind == "f":
            return np.fmax.reduce(parts) if c.reduction == 2 else np.fmin.reduce(parts)
        return super().join(parts, c)


powbylogs = planted("powbylogs", "pointwise", of_programs(by_logarithms))
halfaway = planted("halfaway", "pointwise", of_programs(half_away))
shortangles = planted("shortangles", "pointwise", of_programs(short_angles))
expflush = planted("expflush", "pointwise", of_programs(no_denormal_exp))
skipszeros = planted("skipszeros", "matmul", skipping_zeros)
tenbits = planted("tenbits", "matmul", ten_bits)
topbit = planted("topbit", "copy_cast", top_bit)
nanfalse = planted("nanfalse", "copy_cast", nan_is_false)
nanany = planted("nanany", "reduce", nan_is_nothing)
bigplaces = planted("bigplaces", "reduce", places_by_doubles)
bigorder = planted("bigorder", "sort", sorts_by_doubles)
radixzeros = planted("radixzeros", "sort", radix_zeros)
addedup = planted("addedup", "iota", added_up)
fillsplus = planted("fillsplus", "fill", fills_plus)
halfpartials = planted("halfpartials", "reduce", half_partials)
denseindex = planted("denseindex", "gather", dense_index)
firstsource = planted("firstsource", "scatter", first_source)
firstbatch = planted("firstbatch", "matmul", first_batch)
denseproduct = planted("denseproduct", "matmul", dense_product)
rowforcolumn = planted("rowforcolumn", "matmul", row_for_column)
firststrides = planted("firststrides", "reduce", by_strides_of_the_first)
firstdim = planted("firstdim", "gather", dim_of_the_first)
firstaddend = planted("firstaddend", "matmul", addend_of_the_first)
compilerace = planted("compilerace", "pointwise", compiled_by_one)
firstrecord = FirstRecord("firstrecord", own=True, holds=True)
laterrecord = LaterRecord("laterrecord", own=True, holds=True)
leftout = LeftOut("leftout", own=True, holds=True)
copiesatonce = CopiesAtOnce("copiesatonce", own=True, holds=True)
onceonly = OnceOnly("onceonly", own=True, holds=True)
firstpiece = FirstPiece("firstpiece")
lostnan = LostNan("lostnan")
