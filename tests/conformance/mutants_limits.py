"""Truthful cards in Python that take less than others: aligned operands, four dims, small blocks, few dtypes.

A kernel that is given more than its card declares says so, and fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from mutants import Mutant
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array

_BLOCK = 64 << 20


class Limited(Mutant):
    """Checks what every kernel is given; ``limits`` are more of its properties."""

    def __init__(self, name: str, complaint: Callable[[Operand], str | None], **limits: Any) -> None:
        super().__init__(name)
        self.complaint, self.limits = complaint, limits
        for kernel, (function, *rest) in self._kernels.items():
            self._kernels[kernel] = (self.checked(kernel, function), *rest)

    def checked(self, kernel: str, function: Callable[..., None]) -> Callable[..., None]:
        def run(*args: Any, **kwargs: Any) -> None:
            for x in (*args, *kwargs.get("outputs", ()), *kwargs.get("inputs", ())):
                problem = self.complaint(x) if isinstance(x, Operand) else None
                if problem:
                    raise RuntimeError(f"{self.name}: {kernel} was given {problem}")
            function(*args, **kwargs)

        return run

    def properties(self, device: int) -> dict[str, Any]:
        return {**super().properties(device), **self.limits}

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        if nbytes > 1 << 40:
            raise MemoryError  # which the kit asks for
        if nbytes > self.limits.get("max_allocation", nbytes):
            raise RuntimeError(f"{self.name}: was asked for {nbytes} bytes in one piece")
        return super().alloc(device, nbytes, stream)


def misaligned(x: Operand) -> str | None:
    return f"an operand at offset {x.byte_offset}" if x.byte_offset % 64 else None


def many_dims(x: Operand) -> str | None:
    return f"an operand of {len(x.shape)} dims" if len(x.shape) > 4 else None


def nothing(x: Operand) -> str | None:
    return None


# Of real numbers, float16 alone, which it adds up as it is.
_FEW = [dtype for dtype in DTYPES if dtype not in (ts.float32, ts.float64, ts.bfloat16)]


def wide(x: Operand) -> str | None:
    return f"an operand of {x.dtype}" if x.dtype not in _FEW else None


alignedonly = Limited("alignedonly", misaligned, alignment=64)
fourdimsonly = Limited("fourdimsonly", many_dims, max_ndim=4)
smallblocks = Limited("smallblocks", nothing, max_allocation=_BLOCK)
halfonly = Limited("halfonly", wide, dtypes=_FEW)
