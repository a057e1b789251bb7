"""Backends in Python with one planted fault each: formulas of their own, numbers that travel as others, and what is
compiled in that should have been read."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from mutants import Mutant, planted
from mutants_values import Kernel
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, instruction, read, view, write

Formula = Callable[..., Any]


def by(name: str, formula: Formula) -> Callable[[Kernel], Kernel]:
    """Computes one instruction in another way, in every program."""

    def wrap(function: Kernel) -> Kernel:
        def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
            if name not in {op for op, *_ in program.instructions}:
                return function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
            compute = DTYPES[compute_dtype]
            registers: list[Any] = [read(x, compute_dtype) for x in inputs]
            with np.errstate(all="ignore"):
                exact = program.integers if compute.kind in "iu" else program.constants
                registers += [np.asarray(c).astype(compute) for c in exact]
                for op, *operands in program.instructions:
                    made = (formula if op == name else instruction(op))(*(registers[k] for k in operands))
                    registers.append(np.asarray(made).astype(compute, copy=False))
                for out, register in zip(outputs, program.outputs, strict=True):
                    write(out, registers[register])
            return None

        return run

    return wrap


def of_floats(formula: Formula, exact: Formula) -> Formula:
    """For floats; integers are computed as they should be."""
    return lambda *x: formula(*x) if x[0].dtype.kind == "f" else exact(*x)


def truncated(a: Array, b: Array) -> Array:
    """Division that should round down rounds to zero."""
    return np.trunc(np.divide(a, b)) if a.dtype.kind == "f" else instruction("div")(a, b)


def word_shift(a: Array, b: Array) -> Array:
    """Looks at five bits of the count, as the instruction for words does."""
    return np.left_shift(a, b & 31)


def unsigned_shift(a: Array, b: Array) -> Array:
    """Fills with zeros what has a sign."""
    if a.dtype.kind == "u":
        return np.right_shift(a, b)
    return np.right_shift(a.view(f"u{a.dtype.itemsize}"), b.view(f"u{b.dtype.itemsize}")).view(a.dtype)


def blended(a: Array, b: Array, c: Array) -> Array:
    """Chooses by arithmetic: what is not chosen is multiplied by zero."""
    if b.dtype.kind != "f":
        return np.where(a != 0, b, c)
    mask = (a != 0).astype(b.dtype)
    return mask * b + (1 - mask) * c


def quotient(a: Array) -> Array:
    """The quotient of exponentials, each of which may be too large."""
    e = np.exp(2 * a)
    return (e - 1) / (e + 1)


def exponential_over(a: Array) -> Array:
    return np.exp(a) / (1 + np.exp(a))


def negated_zero(a: Array, b: Array) -> Array:
    """Looks at the sign by comparing with zero."""
    return np.where(b < 0, -np.abs(a), np.abs(a))


def difference(a: Array, b: Array) -> Array:
    """Equal is what has no difference: infinities have none that is a number."""
    return (a - b) == 0


# --- casts, scans, orders, products -----------------------------------------------------------------------------------


def signed_order(function: Kernel) -> Kernel:
    """Sorts bytes as if they had signs."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, descending)
        if x.dtype is ts.uint8:
            keys = read(x).astype(np.int8).astype(np.int64)
            order = np.argsort(-keys if descending else keys, -1, kind="stable")
            write(values, np.take_along_axis(read(x), order, -1))
            write(positions, order)

    return run


def reversed_order(function: Kernel) -> Kernel:
    """Descending is ascending, read from its end: equal elements change places."""

    def run(values: Operand, positions: Operand, x: Operand, descending: bool) -> None:
        function(values, positions, x, False)
        if descending:
            for out in (values, positions):
                view(out)[...] = view(out)[..., ::-1].copy()

    return run


def signed_extremes(function: Kernel) -> Kernel:
    """Compares uint8 as int8."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode in ("max", "min") and x.dtype is ts.uint8:
            axes = tuple(range(x.ndim - ndims, x.ndim))
            write(out, getattr(np, opcode)(read(x).view(np.int8), axis=axes).view(np.uint8))

    return run


def wrapping_sums(function: Kernel) -> Kernel:
    """Adds integers up in 32 bits."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        if opcode == "sum" and DTYPES[x.dtype].kind in "iu" and out.dtype is ts.int64:
            axes = tuple(range(x.ndim - ndims, x.ndim))
            with np.errstate(all="ignore"):
                write(out, np.sum(read(x).astype(np.int32), axis=axes, dtype=np.int32))

    return run


def integer_products(function: Kernel) -> Kernel:
    """Multiplies int64 in doubles."""

    def run(out: Operand, a: Operand, b: Operand, bias: Any = None, *, compute_dtype: Any) -> None:
        function(out, a, b, bias, compute_dtype=compute_dtype)
        if a.dtype is ts.int64 and bias is None:
            with np.errstate(all="ignore"):
                write(out, np.matmul(read(a).astype(np.float64), read(b).astype(np.float64)).astype(np.int64))

    return run


# --- what is compiled in ----------------------------------------------------------------------------------------------


def numbers_of_the_first(function: Kernel) -> Kernel:
    """A number among the operands is compiled in: the next call's is another."""
    kept: dict[Any, Any] = {}

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        shapes = tuple(x.shape if isinstance(x, Operand) else None for x in inputs)
        first = kept.setdefault((program.id, compute_dtype, shapes), inputs)
        given = tuple(x if isinstance(x, Operand) else k for x, k in zip(inputs, first, strict=True))
        function(outputs=outputs, inputs=given, program=program, compute_dtype=compute_dtype)

    return run


def constants_of_the_first(function: Kernel) -> Kernel:
    """Programs are told apart by their instructions, without their constants."""
    kept: dict[Any, Any] = {}

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        first = kept.setdefault((str(program.instructions), compute_dtype), program)
        same = len(first.constants) == len(program.constants) and first.outputs == program.outputs
        function(outputs=outputs, inputs=inputs, program=first if same else program, compute_dtype=compute_dtype)

    return run


# --- memory and time --------------------------------------------------------------------------------------------------


class WholeWords(Mutant):
    """Copies to the host in words of four bytes: past the end of what was asked for."""

    def copy_to_host(self, device: int, dst: memoryview, src: Array, src_offset: int, stream: Any) -> None:
        super().copy_to_host(device, dst, src, src_offset, stream)
        if dst.nbytes % 4:
            address = np.frombuffer(dst, np.uint8).ctypes.data
            ctypes.memset(address + dst.nbytes, 0xEE, 4 - dst.nbytes % 4)


fmodmod = planted("fmodmod", "pointwise", by("mod", of_floats(np.fmod, np.remainder)))
truncdiv = planted("truncdiv", "pointwise", by("floordiv", truncated))
wordshift = planted("wordshift", "pointwise", by("shl", word_shift))
logicalshift = planted("logicalshift", "pointwise", by("shr", unsigned_shift))
blends = planted("blends", "pointwise", by("select", blended))
quotients = planted("quotients", "pointwise", by("tanh", quotient))
overflows = planted("overflows", "pointwise", by("sigmoid", exponential_over))
nosignbit = planted("nosignbit", "pointwise", by("copysign", negated_zero))
differs = planted("differs", "pointwise", by("eq", of_floats(difference, np.equal)))
fmaximum = planted("fmaximum", "pointwise", by("max", np.fmax))
squares = planted("squares", "pointwise", by("hypot", lambda a, b: np.sqrt(a * a + b * b)))
erfless = planted("erfless", "pointwise", by("erfc", lambda a: 1 - instruction("erf")(a)))
signedorder = planted("signedorder", "sort", signed_order)
reversedorder = planted("reversedorder", "sort", reversed_order)
signedmax = planted("signedmax", "reduce", signed_extremes)
wrapsums = planted("wrapsums", "reduce", wrapping_sums)
doubleproducts = planted("doubleproducts", "matmul", integer_products)
bakednumbers = planted("bakednumbers", "pointwise", numbers_of_the_first)
bakedconstants = planted("bakedconstants", "pointwise", constants_of_the_first)
wholewords = WholeWords("wholewords")
