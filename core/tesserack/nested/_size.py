"""``NestedInt``: the size of a ragged dimension, equal to itself only."""

from __future__ import annotations

import weakref
from typing import Any

from tesserack import Tensor

__all__ = ["NestedInt", "ragged_size"]


class NestedInt:
    """Stands in a shape where the sizes differ along the batch; printed ``j1``, and ``2*j1`` for its multiples."""

    __ragged_size__ = True  # what the native Size takes besides ints
    __slots__ = ("_coeff", "_number")

    def __init__(self, number: int, coeff: int = 1) -> None:
        self._number, self._coeff = number, coeff

    def __repr__(self) -> str:
        return f"j{self._number}" if self._coeff == 1 else f"{self._coeff}*j{self._number}"

    def __hash__(self) -> int:
        return hash((NestedInt, self._number, self._coeff))

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, NestedInt) and self._number == other._number
        return same and isinstance(other, NestedInt) and self._coeff == other._coeff

    def __mul__(self, other: Any) -> NestedInt:
        if not isinstance(other, int):
            return NotImplemented
        return NestedInt(self._number, self._coeff * other)

    __rmul__ = __mul__

    def __ge__(self, other: Any) -> bool:
        if isinstance(other, NestedInt) and self._number == other._number:
            return self._coeff >= other._coeff
        if isinstance(other, int) and other <= 2:
            return True
        raise ValueError(f"ge: relation is indeterminate, of {self} and {other}; try the lengths of the nested tensor")

    def __le__(self, other: Any) -> bool:
        if isinstance(other, NestedInt):
            return other >= self
        if isinstance(other, int) and other < 2:
            return False
        raise ValueError(f"ge: relation is indeterminate, of {other} and {self}; try the lengths of the nested tensor")

    def __lt__(self, other: Any) -> bool:
        return not self >= other

    def __gt__(self, other: Any) -> bool:
        return not self <= other


_known: dict[int, tuple[weakref.ref[Tensor], NestedInt]] = {}
_made = [0]


def ragged_size(source: Tensor, same_as: Tensor | None = None) -> NestedInt:
    """The size that belongs to these offsets or lengths: one for each tensor of them, or that of ``same_as``."""
    key = id(source)
    if key in _known:
        return _known[key][1]
    if same_as is not None:
        size = ragged_size(same_as)
    else:
        _made[0] += 1
        size = NestedInt(_made[0])
    _known[key] = (weakref.ref(source, lambda _: _known.pop(key, None)), size)
    return size
