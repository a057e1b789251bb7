"""Backends in Python with one planted fault each: where reductions begin, what is kept of memory that changes, what a
kernel expects of its output, and who calls from where."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from late_backend import Late
from mutants import Mutant, planted
from mutants_values import Kernel
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, places, read, view, write

# --- where sums, products and extremes begin, and end -------------------------------------------------------------


def then(change: Callable[[Operand, Array, str], None]) -> Callable[[Kernel], Kernel]:
    """Reductions of some kinds are changed afterwards."""

    def wrap(function: Kernel) -> Kernel:
        def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
            function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
            values = read(x)
            change(out, values.reshape(*values.shape[: values.ndim - ndims], -1), opcode)

        return run

    return wrap


def stop_at_zero(out: Operand, rows: Array, opcode: str) -> None:
    """A product with a zero in it is zero, whatever else there is."""
    if opcode == "prod" and rows.dtype.kind == "f":
        view(out)[(rows == 0).any(-1)] = 0


def from_lowest(out: Operand, rows: Array, opcode: str) -> None:
    """The largest is looked for from the lowest finite number on."""
    if opcode == "max" and rows.dtype.kind == "f" and out.dtype is not ts.bfloat16:
        view(out)[...] = np.maximum(view(out), np.finfo(rows.dtype).min)


def from_word(out: Operand, rows: Array, opcode: str) -> None:
    """The least is looked for from the largest integer of 32 bits on."""
    if opcode == "min" and out.dtype is ts.int64:
        view(out)[...] = np.minimum(view(out), 2**31 - 1)


def in_bytes(out: Operand, rows: Array, opcode: str) -> None:
    """Counts what is true in a byte."""
    if opcode == "sum" and rows.dtype == np.bool_ and DTYPES[out.dtype].kind in "iu":
        view(out)[...] &= 255


stopsatzero = planted("stopsatzero", "reduce", then(stop_at_zero))
fromlowest = planted("fromlowest", "reduce", then(from_lowest))
fromword = planted("fromword", "reduce", then(from_word))
countsinbytes = planted("countsinbytes", "reduce", then(in_bytes))


def by_difference(function: Kernel) -> Kernel:
    """Takes each element off again, for the sums before it: of infinities nothing is left."""

    def run(*, outputs: Any, inputs: Any, opcode: str, compute_dtype: Any) -> None:
        function(outputs=outputs, inputs=inputs, opcode=opcode, compute_dtype=compute_dtype)
        if opcode == "sum" and DTYPES[compute_dtype].kind == "f":
            x = read(inputs[0], compute_dtype)
            with np.errstate(all="ignore"):
                sums = np.add.accumulate(x, axis=-1)
                write(outputs[0], np.where(np.isfinite(x), sums, sums - x + x))

    return run


def in_its_dtype(function: Kernel) -> Kernel:
    """Adds up in the dtype of what is given, not of what is asked for."""

    def run(*, outputs: Any, inputs: Any, opcode: str, compute_dtype: Any) -> None:
        function(outputs=outputs, inputs=inputs, opcode=opcode, compute_dtype=compute_dtype)
        x = read(inputs[0])
        if opcode in ("sum", "prod") and x.dtype.kind in "iu" and outputs[0].dtype is ts.int64:
            ufunc = np.add if opcode == "sum" else np.multiply
            write(outputs[0], ufunc.accumulate(x, axis=-1, dtype=x.dtype))

    return run


def by_bits(function: Kernel) -> Kernel:
    """Sorts by the bits: what is no number and has a sign comes first."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        given = read(x)
        if given.dtype.kind == "f" and (np.isnan(given) & np.signbit(given)).any():
            keys = np.where(np.isnan(given), np.where(np.signbit(given), -np.inf, np.inf), given)
            order = np.argsort(-keys if descending else keys, -1, kind="stable")
            view(values)[...] = np.take_along_axis(view(x), order, -1)
            write(positions, order)

    return run


byadifference = planted("byadifference", "scan", by_difference)
initsdtype = planted("initsdtype", "scan", in_its_dtype)
sortsbits = planted("sortsbits", "sort", by_bits)


# --- casts ---------------------------------------------------------------------------------------------------------


def rounded_down(function: Kernel) -> Kernel:
    """Floats become integers by rounding down."""

    def run(out: Operand, x: Any) -> None:
        values = read(x)
        if DTYPES[out.dtype].kind in "iu" and out.dtype is not ts.bfloat16 and values.dtype.kind == "f":
            with np.errstate(all="ignore"):
                write(out, np.floor(values))
        else:
            function(out, x)

    return run


def by_way_of_singles(function: Kernel) -> Kernel:
    """Integers become doubles by way of float32."""

    def run(out: Operand, x: Any) -> None:
        if out.dtype is ts.float64 and isinstance(x, Operand) and read(x).dtype.kind in "iu":
            write(out, read(x).astype(np.float32))
        else:
            function(out, x)

    return run


floorcasts = planted("floorcasts", "copy_cast", rounded_down)
singlecasts = planted("singlecasts", "copy_cast", by_way_of_singles)


# --- memory --------------------------------------------------------------------------------------------------------


def times_zero(function: Kernel) -> Kernel:
    """Multiplies by zero what the output held: what is no number stays."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        with np.errstate(all="ignore"):
            before = np.array(read(out), copy=True) * 0
        function(out, a, b, bias, compute_dtype=compute_dtype)
        if DTYPES[out.dtype].kind == "f":
            with np.errstate(all="ignore"):
                write(out, read(out) + before)

    return run


def in_place(function: Kernel) -> Kernel:
    """Sorts what it is given, and copies that."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        view(x)[...] = view(values)

    return run


class EvenSources(Mutant):
    """Copies from the host in words, which begin at the address rounded down."""

    def copy_from_host(self, device: int, dst: Array, dst_offset: int, src: memoryview, stream: Any) -> None:
        data = np.frombuffer(src, np.uint8)
        off = data.ctypes.data % 4
        if off and data.size > 4:
            data = np.concatenate((np.zeros(off, np.uint8), data))[: data.size]
        dst[dst_offset : dst_offset + data.size] = data


addszero = planted("addszero", "matmul", times_zero)
sortsinplace = planted("sortsinplace", "sort", in_place)
evensources = EvenSources("evensources")


# --- what is kept --------------------------------------------------------------------------------------------------


def packed_once(function: Kernel) -> Kernel:
    """Keeps the second operand as it was, by where it lies."""
    packed: dict[Any, Any] = {}

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        key = (id(b.handle), b.byte_offset, tuple(b.shape), tuple(b.byte_strides), compute_dtype)
        _, kept = packed.setdefault(key, (b.handle, np.array(read(b, compute_dtype), copy=True)))
        with np.errstate(all="ignore"):
            product = np.matmul(read(a, compute_dtype), kept)
            write(out, product if bias is None else product + read(bias, compute_dtype))

    return run


def first_offset(function: Kernel) -> Kernel:
    """Keeps where in its memory an operand of these sizes begins."""
    plans: dict[Any, int] = {}

    def run(out: Operand, x: Operand, index: Operand, dim: int) -> None:
        key = (tuple(x.shape), x.dtype, tuple(x.byte_strides), tuple(index.shape))
        offset = plans.setdefault(key, x.byte_offset)
        values = np.ndarray(x.shape, DTYPES[x.dtype], x.handle, x.byte_offset, x.byte_strides)
        with contextlib.suppress(TypeError, ValueError):
            values = np.ndarray(x.shape, DTYPES[x.dtype], x.handle, offset, x.byte_strides)
        view(out)[...] = values[places(index, dim, values.shape[dim])]

    return run


packedonce = planted("packedonce", "matmul", packed_once)
firstoffset = planted("firstoffset", "gather", first_offset)


# --- threads and order ---------------------------------------------------------------------------------------------


def first_thread(function: Kernel) -> Kernel:
    """Computes for the thread that came first; others have no context."""
    owner: list[int] = []

    def run(*args: Any, **kwargs: Any) -> None:
        if not owner:
            owner.append(threading.get_ident())
        if owner[0] == threading.get_ident():
            function(*args, **kwargs)

    return run


class FillsElsewhere(Late):
    """Fills on the default stream, whichever is named."""

    def __init__(self, name: str, own: bool, devices: int = 1, holds: bool = False) -> None:
        super().__init__(name, own, devices, holds)
        fill, *rest = self._kernels["fill"]

        def elsewhere(*args: Any, stream: Any, device: int, **fields: Any) -> None:
            fill(*args, stream=None, device=device, **fields)

        self._kernels["fill"] = (elsewhere, *rest)


class Forgotten(Late):
    """An event that goes lets go of the streams that wait for it."""

    def event_destroy(self, device: int, event: Any) -> None:
        event["done"].set()


firstthread = planted("firstthread", "pointwise", first_thread)
fillselsewhere = FillsElsewhere("fillselsewhere", own=True, holds=True)
forgotten = Forgotten("forgotten", own=True, holds=True)
