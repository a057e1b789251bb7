"""What is known to be equal about the sizes in a graph's types."""

from __future__ import annotations

from typing import Any

__all__ = ["Equality"]


class Equality:
    """Two sizes that are the same.

    >>> Equality(2, 2) == Equality(2, 2), str(Equality(1, 3))
    (True, '1 = 3')
    """

    def __init__(self, lhs: Any, rhs: Any) -> None:
        self.lhs, self.rhs = lhs, rhs

    def __str__(self) -> str:
        return f"{self.lhs} = {self.rhs}"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equality) and (self.lhs, self.rhs) == (other.lhs, other.rhs)

    __hash__ = None  # type: ignore[assignment]
