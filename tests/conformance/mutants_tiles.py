"""Backends in Python with one planted fault each: the ends of tiles, and operands that are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from mutants import planted
from mutants_values import Kernel
from tesserack.backends import Operand
from tesserack_reference import read, view, write

_TILE = 32


def whole_tiles(function: Kernel) -> Kernel:
    """Transposes tile by tile, and leaves out what is less than one at the ends of large matrices."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if isinstance(x, Operand) and len(x.shape) == 2 and x.strides[0] == 1 < x.strides[1]:
            rows, columns = x.shape
            if min(rows, columns) > _TILE:
                view(out)[rows - rows % _TILE :] = 0
                view(out)[:, columns - columns % _TILE :] = 0

    return run


def whole_chunks(function: Kernel) -> Kernel:
    """Adds columns up in chunks of 256 rows, and forgets the last where it is not whole."""

    def run(out: Operand, x: Operand, ndims: int, *, opcode: str, compute_dtype: Any) -> None:
        function(out, x, ndims, opcode=opcode, compute_dtype=compute_dtype)
        count = x.shape[-1] if x.shape else 0
        if opcode == "sum" and ndims == 1 and x.strides[-1] > 1 and count > 256 and count % 256:
            write(out, np.sum(read(x, compute_dtype)[..., : count - count % 256], axis=-1))

    return run


def numbers_last(function: Kernel) -> Kernel:
    """Takes the operand that is a number for the second one."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        if len(inputs) == 2 and not isinstance(inputs[0], Operand) and isinstance(inputs[1], Operand):
            inputs = inputs[::-1]
        function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)

    return run


wholetiles = planted("wholetiles", "copy_cast", whole_tiles)
wholechunks = planted("wholechunks", "reduce", whole_chunks)
numberslast = planted("numberslast", "pointwise", numbers_last)
