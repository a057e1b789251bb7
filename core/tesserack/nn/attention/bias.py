"""Causal masks for queries and keys of different lengths."""

from __future__ import annotations

import tesserack as ts
from tesserack import Tensor

__all__ = ["causal_lower_right", "causal_upper_left"]


def _causal(rows: int, columns: int, offset: int) -> Tensor:
    return ts.ones((rows, columns), dtype=ts.bool).tril(offset)


def causal_upper_left(*size: int) -> Tensor:
    """The bool mask (rows, columns) under which query i sees keys up to i.

    >>> causal_upper_left(2, 3).tolist()
    [[True, False, False], [True, True, False]]
    """
    rows, columns = _two(size)
    return _causal(rows, columns, 0)


def causal_lower_right(*size: int) -> Tensor:
    """The bool mask (rows, columns) under which the last query sees all keys, the one before all but the last...

    >>> causal_lower_right(2, 3).tolist()
    [[True, True, False], [True, True, True]]
    """
    rows, columns = _two(size)
    return _causal(rows, columns, columns - rows)


def _two(size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise RuntimeError(f"causal mask: expected two sizes, got {size}")
    return size
