"""Causal masks for queries and keys of different lengths."""

from __future__ import annotations

import enum

import tesserack as ts
from tesserack import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(enum.IntEnum):
    """Which corner of the mask the triangle touches."""

    UPPER_LEFT = 1
    LOWER_RIGHT = 2


class CausalBias(Tensor):
    """The bool mask of a variant, which ``scaled_dot_product_attention`` takes as any other.

    >>> CausalBias(CausalVariant.UPPER_LEFT, 2, 2).tolist()
    [[True, False], [True, True]]
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    @staticmethod
    def __new__(cls: type[CausalBias], variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        if not isinstance(variant, CausalVariant):
            raise TypeError(f"CausalBias: expected a CausalVariant, got {type(variant).__name__}")
        offset = 0 if variant is CausalVariant.UPPER_LEFT else seq_len_kv - seq_len_q
        mask = ts.ones((seq_len_q, seq_len_kv), dtype=ts.bool).tril(offset)
        made: CausalBias = Tensor._make_subclass(cls, mask)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made


def causal_upper_left(*size: int) -> Tensor:
    """The bool mask (rows, columns) under which query i sees keys up to i.

    >>> causal_upper_left(2, 3).tolist()
    [[True, False, False], [True, True, False]]
    """
    rows, columns = _two(size)
    return CausalBias(CausalVariant.UPPER_LEFT, rows, columns)


def causal_lower_right(*size: int) -> Tensor:
    """The bool mask (rows, columns) under which the last query sees all keys, the one before all but the last...

    >>> causal_lower_right(2, 3).tolist()
    [[True, True, False], [True, True, True]]
    """
    rows, columns = _two(size)
    return CausalBias(CausalVariant.LOWER_RIGHT, rows, columns)


def _two(size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) != 2:
        raise RuntimeError(f"causal mask: expected two sizes, got {size}")
    return size
