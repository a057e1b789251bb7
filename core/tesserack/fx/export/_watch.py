"""Sizes that a program looks at while it is traced: what it compares them with tells which sizes to try besides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tesserack as ts

__all__ = ["Watch"]

_COMPARED = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
_PACKAGE = str(Path(__file__).resolve().parents[2])  # whose own comparisons check, and decide nothing
_FEW = 8  # larger divisors leave too many remainders to try


class Watch:
    """Notes of one trace: ``compared`` holds pairs of a size and what it was compared with, ``divided`` pairs of a size
    and a divisor whose remainder was asked for."""

    def __init__(self) -> None:
        self.compared: set[tuple[int, int]] = set()
        self.divided: set[tuple[int, int]] = set()

    def shown(self, shape: Any) -> ts.Size:
        """Sizes that tell what is done with them."""
        return ts.Size([_Watched.of(n, self) for n in shape])

    def further(self, factor: int, offset: int, value: int) -> set[int]:
        """Values to try of a symbol that was ``value``, where ``factor * value + offset`` is a size."""
        size = factor * value + offset
        wanted = {c + d for s, c in self.compared if s == size for d in (-1, 0, 1)}
        wanted |= {size + d for s, c in self.divided if s == size for d in range(1, c)}
        return {(n - offset) // factor for n in wanted if n >= 0 and not (n - offset) % factor}


class _Watched(int):
    """A size of a tensor in a trace: a plain number, but for the notes."""

    watch: Watch

    @classmethod
    def of(cls, value: int, watch: Watch) -> _Watched:
        made = cls(value)
        made.watch = watch
        return made

    def __mod__(self, other: Any) -> Any:
        if type(other) is int and 1 < other <= _FEW:
            self.watch.divided.add((int(self), other))
        return int.__mod__(self, other)

    def __divmod__(self, other: Any) -> Any:
        return int.__floordiv__(self, other), self % other

    def __bool__(self) -> bool:
        self.watch.compared.add((int(self), 0))
        return int.__bool__(self)

    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        return int, (int(self),)


def _comparing(name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(int, name)

    def compare(self: _Watched, other: Any) -> Any:
        asks = isinstance(other, int) and not isinstance(other, bool)
        if asks and not sys._getframe(1).f_code.co_filename.startswith(_PACKAGE):
            self.watch.compared.add((int(self), int(other)))
        return plain(self, other)

    return compare


for _name in _COMPARED:
    setattr(_Watched, _name, _comparing(_name))
_Watched.__hash__ = int.__hash__  # type: ignore[assignment, method-assign]  # which __eq__ takes away
