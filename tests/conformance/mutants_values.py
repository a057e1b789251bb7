"""Backends in Python with one planted fault each: values and forms."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from mutants import Mutant, Seen, planted
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, places, read, view, write

Kernel = Callable[..., None]


def outputs_of(args: Any, kwargs: Any) -> list[Operand]:
    """What a kernel writes, however it was given."""
    return [x for x in (*kwargs.get("outputs", ()), *args[:1]) if isinstance(x, Operand)]


def afterwards(change: Callable[[Operand], None]) -> Callable[[Kernel], Kernel]:
    """Changes what a kernel wrote."""

    def wrap(function: Kernel) -> Kernel:
        def run(*args: Any, **kwargs: Any) -> None:
            function(*args, **kwargs)
            for out in outputs_of(args, kwargs):
                change(out)

        return run

    return wrap


def is_float(out: Operand) -> bool:
    return DTYPES[out.dtype].kind == "f"


def flush(out: Operand) -> None:
    """Denormal numbers become zero."""
    if is_float(out):
        values = view(out)
        values[np.abs(values) < np.finfo(values.dtype).tiny] = 0


def spoil_small(out: Operand) -> None:
    """What is tiny is a tenth of a per cent off."""
    if is_float(out):
        values = view(out)
        small = np.abs(values) < 1e-12
        values[small] = (values[small] * 1.001).astype(values.dtype)


def lose_nan(out: Operand) -> None:
    """NaN is taken for nothing."""
    if is_float(out):
        values = view(out)
        values[np.isnan(values)] = 0


def all_bits(out: Operand) -> None:
    """Truth has all bits set, as comparisons of vectors have it."""
    if out.dtype is ts.bool:
        bytes_of = np.ndarray(out.shape, np.uint8, out.handle, out.byte_offset, out.byte_strides)
        bytes_of[bytes_of != 0] = 255


def low_byte(function: Kernel) -> Kernel:
    """Casts integers to bool by their lowest byte."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if out.dtype is ts.bool and isinstance(x, Operand) and DTYPES[x.dtype].kind in "iu":
            view(out)[...] = (read(x) & 255) != 0

    return run


def fill_by_float(function: Kernel) -> Kernel:
    """The value travels as a double."""

    def run(out: Operand, value: Any) -> None:
        function(out, value if out.dtype is ts.uint64 else min(float(value), 2.0**63 - 1024))

    return run


def iota_by_float(function: Kernel) -> Kernel:
    def run(out: Operand, start: Any, step: Any) -> None:
        write(out, float(start) + float(step) * np.arange(out.numel, dtype=np.float64))

    return run


def narrow_products(function: Kernel) -> Kernel:
    """Adds float16 up in float16, a term after the other."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        if out.dtype is not ts.float16:
            function(out, a, b, bias, compute_dtype=compute_dtype)
            return
        x, y = view(a), view(b)
        total = np.zeros(out.shape, np.float16)
        for k in range(x.shape[-1]):
            total = total + x[..., k, None] * y[..., k, None, :]
        view(out)[...] = total if bias is None else total + read(bias).astype(np.float16)

    return run


def short_products(function: Kernel) -> Kernel:
    """Forgets what follows 2,048 products."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        product = np.matmul(read(a, compute_dtype)[..., :2048], read(b, compute_dtype)[..., :2048, :])
        write(out, product if bias is None else product + read(bias, compute_dtype))

    return run


def no_products(function: Kernel) -> Kernel:
    """Returns at once where there is nothing to multiply, and writes nothing."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        if a.shape[-1]:
            function(out, a, b, bias, compute_dtype=compute_dtype)

    return run


def at_most(elements: int) -> Callable[[Kernel], Kernel]:
    """A reduction of no more elements in a row: its counter wraps around."""

    def wrap(function: Kernel) -> Kernel:
        def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
            function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
            count = int(np.prod(x.shape[len(x.shape) - ndims :]))
            if opcode == "sum" and count > elements:
                kept = x.shape[: len(x.shape) - ndims]
                write(out, read(x, compute_dtype).reshape(*kept, -1)[..., :elements].sum(-1))

        return run

    return wrap


def few_rows(function: Kernel) -> Kernel:
    """A grid of 65,535 groups: the rows that follow are not computed."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if out.numel > 65_535 and out.is_contiguous:
            view(out).reshape(-1)[65_535:] = 0

    return run


def without_carry(function: Kernel) -> Kernel:
    """Blocks of 1,024 elements, of which each begins anew."""

    def run(*, outputs: Any, inputs: Any, opcode: str, compute_dtype: Any) -> None:
        function(outputs=outputs, inputs=inputs, opcode=opcode, compute_dtype=compute_dtype)
        values = read(inputs[0], compute_dtype)
        if opcode == "sum" and values.shape[-1] > 1024:
            parts = [values[..., k : k + 1024].cumsum(-1) for k in range(0, values.shape[-1], 1024)]
            write(outputs[0], np.concatenate(parts, -1))

    return run


def last_of_equals(function: Kernel) -> Kernel:
    """Combines blocks so that the last of equal elements wins."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode == "argmax":
            values = read(x).reshape(*x.shape[: len(x.shape) - ndims], -1)
            if values.shape[-1] > 1000:
                write(out, values.shape[-1] - 1 - values[..., ::-1].argmax(-1))

    return run


def unstable(function: Kernel) -> Kernel:
    """Sorts rows of more than a thousand elements without regard to where they stood."""

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        outs = [x for x in (*kwargs.get("outputs", ()), *args) if isinstance(x, Operand)][:2]
        values, positions = view(outs[0]), view(outs[1])
        if values.shape[-1] > 1000:
            for row, at in zip(
                values.reshape(-1, values.shape[-1]), positions.reshape(-1, values.shape[-1]), strict=True
            ):
                for k in range(len(row) - 1):
                    if row[k] == row[k + 1]:
                        at[k], at[k + 1] = at[k + 1], at[k]
                        break

    return run


# --- forms ------------------------------------------------------------------------------------------------------------


def odd_far(function: Kernel) -> Kernel:
    """Takes an odd count of far elements for an even one."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        far = isinstance(x, Operand) and x.shape and x.byte_strides[-1] >= 64 * DTYPES[x.dtype].itemsize
        if far and x.shape[-1] % 2 and x.shape[-1] > 1:
            view(out)[..., -1] = 0

    return run


def four_dims(function: Kernel) -> Kernel:
    """Has room for four strides: the fifth is taken to be that of a dense tensor."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
        if len(outputs[0].shape) > 4:
            values = view(outputs[0])
            values[1:] = values[:1]

    return run


def wide_index(function: Kernel) -> Kernel:
    """Reads positions of four bytes as if they had eight."""

    def run(out: Operand, x: Operand, index: Operand, dim: int) -> None:
        if index.dtype is not ts.int32:
            function(out, x, index, dim)
            return
        values, at = view(x), view(index).copy()
        at.reshape(-1)[1::2] = 0
        grid = list(np.indices(at.shape, sparse=True))
        grid[dim] = at
        view(out)[...] = values[tuple(grid)]

    return run


def lost_duplicates(function: Kernel) -> Kernel:
    """Adds without atomics: of many elements in one place, one is added."""

    def run(out: Operand, index: Operand, source: Any, dim: int, *, opcode: str) -> None:
        if opcode != "add":
            function(out, index, source, dim, opcode=opcode)
            return
        base = read(out).copy()
        at = places(index, dim, base.shape[dim])
        base[at] = base[at] + read(source).astype(base.dtype)
        write(out, base)

    return run


def near_offset(function: Kernel) -> Kernel:
    """Keeps offsets in 32 bits with a sign."""

    def near(x: Any) -> Any:
        if isinstance(x, Operand) and x.byte_offset >= 1 << 31:
            return _At(x, x.byte_offset & 0x7FFFFFFF)
        return x

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        given = tuple(near(x) for x in inputs)
        function(outputs=outputs, inputs=given, program=program, compute_dtype=compute_dtype)

    return run


def _At(x: Operand, offset: int) -> Any:
    """The values that lie there instead."""
    return np.ndarray(x.shape, DTYPES[x.dtype], x.handle, offset, x.byte_strides).copy()


class Misaligned(Seen):
    """Blocks begin four bytes after where vectors want them."""

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        whole = np.empty(nbytes + 80, np.uint8)
        begin = -int(whole.ctypes.data) % 64 + 4
        return whole[begin : begin + nbytes]


class LongCopies(Mutant):
    """Copies of a megabyte and more lose what follows the last whole page."""

    def copy_within(self, device: int, dst: Array, to: int, src: Array, start: int, nbytes: int, stream: Any) -> None:
        super().copy_within(device, dst, to, src, start, nbytes & ~4095 if nbytes >= 1 << 20 else nbytes, stream)


class LongUploads(Mutant):
    def copy_from_host(self, device: int, dst: Array, dst_offset: int, src: memoryview, stream: Any) -> None:
        most = src.nbytes & ~4095 if src.nbytes >= 1 << 20 else src.nbytes
        super().copy_from_host(device, dst, dst_offset, src[:most], stream)


class EvenCopies(Mutant):
    """Moves words, and so begins where a word does."""

    def copy_to_host(self, device: int, dst: memoryview, src: Array, src_offset: int, stream: Any) -> None:
        super().copy_to_host(device, dst, src, src_offset & ~1 if src_offset > 8 else src_offset, stream)


tinyresults = planted("tinyresults", "pointwise", afterwards(spoil_small))
nanlost = planted("nanlost", "gather", afterwards(lose_nan))
nanmax = planted("nanmax", "reduce", afterwards(lose_nan))
nanless = planted("nanless", "pointwise", afterwards(lose_nan))
allbits = planted("allbits", "pointwise", afterwards(all_bits))
lowbyte = planted("lowbyte", "copy_cast", low_byte)
floatfill = planted("floatfill", "fill", fill_by_float)
floatiota = planted("floatiota", "iota", iota_by_float)
narrow = planted("narrow", "matmul", narrow_products)
shortproducts = planted("shortproducts", "matmul", short_products)
noproducts = planted("noproducts", "matmul", no_products)
counter16 = planted("counter16", "reduce", at_most(1 << 16))
counter24 = planted("counter24", "reduce", at_most(1 << 24))
fewrows = planted("fewrows", "reduce", few_rows)
nocarry = planted("nocarry", "scan", without_carry)
lastwins = planted("lastwins", "reduce", last_of_equals)
swapped = planted("swapped", "sort", unstable)
oddfar = planted("oddfar", "copy_cast", odd_far)
fourdims = planted("fourdims", "pointwise", four_dims)
wideindex = planted("wideindex", "gather", wide_index)
duplicates = planted("duplicates", "scatter", lost_duplicates)
nearoffset = planted("nearoffset", "pointwise", near_offset)
misaligned = Misaligned("misaligned")
longcopies = LongCopies("longcopies")
longuploads = LongUploads("longuploads")
evencopies = EvenCopies("evencopies")

if "FLUSHES" in os.environ:
    flushes = planted("flushes", os.environ["FLUSHES"], afterwards(flush))
