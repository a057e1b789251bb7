"""Packing and padding by masks of tensors: in a trace the lengths stay data, which numbers of Python would not."""

from __future__ import annotations

import tesserack as ts
from tesserack import Tensor

__all__ = ["order_of", "packed", "padded"]


def order_of(lengths: Tensor) -> Tensor:
    """The places of ``lengths`` from long to short, equal ones as they were."""
    return lengths.argsort(descending=True, stable=True)


def packed(rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The data and the batch sizes of ``rows`` (longest, number, *) with falling ``lengths``."""
    steps = ts.arange(rows.shape[0], device=rows.device)
    alive = steps.unsqueeze(1) < lengths.to(rows.device).unsqueeze(0)
    sizes = alive.sum(1).cpu()
    return rows[alive], sizes[sizes > 0]


def padded(data: Tensor, sizes: Tensor, number: int, value: float, steps: int | None) -> tuple[Tensor, Tensor]:
    """The rows (longest, number, *) and their lengths of packed ``data`` with these batch sizes."""
    alive = sizes.unsqueeze(1) > ts.arange(number).unsqueeze(0)
    lengths = alive.sum(0)
    longest = sizes.shape[0] if steps is None else steps
    if steps is not None:
        alive = ts.cat([alive, alive.new_zeros(steps - sizes.shape[0], number)])
    rows = ts.full((longest, number, *data.shape[1:]), value, dtype=data.dtype, device=data.device)
    rows[alive.to(data.device)] = data
    return rows, lengths
