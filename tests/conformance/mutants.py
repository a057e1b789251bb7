"""Backends in Python with one planted fault each, made from the reference backend."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, Reference, places, read, view, write
from tesserack_reference import backend as reference


class Mutant(Reference):
    """The reference backend under another name, until something in it is replaced."""

    def __init__(self, name: str) -> None:
        self.name, self.vendor = name, f"org.tesserack.tests.{name}"
        super().__init__()
        self._kernels.update(reference._kernels)


healthy = Mutant("healthy")
strides = Mutant("strides")
gradient = Mutant("gradient")
misspelt = Mutant("misspelt")


@strides.kernel("gather")
def gather(out: Operand, x: Operand, index: Operand, dim: int) -> None:
    """Reads the operand as if it had no gaps, where its memory is large enough for that to go unnoticed."""
    try:
        values = np.ndarray(x.shape, DTYPES[x.dtype], x.handle, x.byte_offset)
    except TypeError:
        values = view(x)
    view(out)[...] = values[places(index, dim, values.shape[dim])]


@gradient.kernel("softmax_backward")
def softmax_backward(out: Operand, grad: Operand, result: Operand, dim: int) -> None:
    """Forgets to subtract the mean."""
    write(out, read(grad) * read(result))


@misspelt.kernel("sofmax", "permute", "other::operator")
def sofmax(out: Operand, x: Operand, dim: int) -> None:
    """Never called, under any of its names so far."""
    raise AssertionError


class Overlapping(Mutant):
    """Every few blocks, one that begins in the middle of the one before."""

    def __init__(self) -> None:
        super().__init__("allocator")
        self.count, self.last = 0, np.empty(0, np.uint8)

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        self.count += 1
        if self.count % 7 == 0 and self.last.nbytes == 2 * nbytes:
            return self.last[nbytes // 2 :]
        self.last = np.empty(2 * nbytes, np.uint8)
        return self.last


allocator = Overlapping()


def planted(name: str, kernel: str, wrap: Callable[..., Callable[..., None]]) -> Mutant:
    """A mutant whose kernel of one name is wrapped; its signature stays."""
    mutant = Mutant(name)
    function, *rest = mutant._kernels[kernel]
    mutant._kernels[kernel] = (wrap(function), *rest)
    return mutant


def one_too_many(function: Callable[..., None]) -> Callable[..., None]:
    """Writes one element past the end of the first output, where its storage goes on."""

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        out = next(a for a in (*kwargs.get("outputs", ()), *args) if isinstance(a, Operand))
        size = DTYPES[out.dtype].itemsize
        last = sum(max(0, n - 1) * s for n, s in zip(out.shape, out.byte_strides, strict=True))
        at = out.byte_offset + last + size
        out.handle[at : at + size] = 1

    return run


if "PAST_THE_END" in os.environ:
    past = planted("past", os.environ["PAST_THE_END"], one_too_many)
