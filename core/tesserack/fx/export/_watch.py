"""Sizes that a program looks at while it is traced: what it compares them with tells which sizes to try besides."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import tesserack as ts

__all__ = ["Watch", "stated", "watching"]

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_PACKAGE = str(Path(__file__).resolve().parents[2])  # whose own comparisons check, and decide nothing
_INTERPRETER = str(Path(_PACKAGE) / "fx" / "interpreter.py")
_FEW = 8  # larger divisors leave too many remainders to try


class Watch:
    """Notes of one trace: ``compared`` holds pairs of a size and what it was compared with, ``divided`` pairs of a size
    and a divisor whose remainder was asked for."""

    def __init__(self) -> None:
        self.compared: dict[tuple[Any, Any], None] = {}
        self.divided: set[tuple[int, int]] = set()
        # The comparisons since a condition was stated, each with where the program makes it.
        self.pending: list[tuple[str, Any, Any, types.CodeType, int]] = []
        self.unknown: set[int] = set()  # sizes that follow from values
        self.reader: Callable[[], Any] = lambda: None  # the step that read the last number of a tensor's
        self.state: Callable[[Any, Any, Any], None] | None = None  # writes down what one compares, which holds

    def shown(self, shape: Any) -> ts.Size:
        """Sizes that tell what is done with them."""
        return ts.Size([self._size(n) for n in shape])

    def _size(self, n: int) -> Any:
        return _derived(n, self, (n, 1, 0), ()) if n in self.unknown else _Watched.of(n, self)

    def watched(self, value: Any) -> Any:
        """A number of a tensor's that tells what it, and what is made of it, is compared with."""
        return _derived(value, self, (value, 1, 0), (self.reader(),))

    def further(self, factor: int, offset: int, value: int) -> set[int]:
        """Values to try of a symbol that was ``value``, where ``factor * value + offset`` is a size."""
        size = factor * value + offset
        wanted = {c + d for s, c in self.compared if s == size for d in (-1, 0, 1)}
        wanted |= {size + d for s, c in self.divided if s == size for d in range(1, c)}
        return {(n - offset) // factor for n in wanted if n >= 0 and not (n - offset) % factor}

    def note(self, name: str, one: Any, other: Any, frame: Any) -> None:
        """A comparison of the program's."""
        made_of = getattr(one, "made_of", None)
        if made_of is None:
            self.compared[int(one), math.floor(other)] = None
            return
        origin, scale, offset = made_of
        number = (float(other) - offset) / scale if scale else float(other)
        if math.isfinite(number):
            self.compared[origin, number if isinstance(origin, float) else math.floor(number)] = None
        self.pending.append((name, one, other, frame.f_code, frame.f_lineno))


_watches: list[Watch] = []  # of the traces under way


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Within it a trace that ``watch`` is of is under way."""
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)


_OTHERWISE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "le": "gt", "gt": "le"}


def stated(frame: Any = None) -> None:
    """A condition holds that the program states: what it compares is written down. Of the frame's call; None: all."""
    watch = _watches[-1] if _watches else None
    if watch is None or watch.state is None:
        return
    lines = range(sys.maxsize) if frame is None else _lines(frame)
    pending, watch.pending = watch.pending, []
    found = [
        (name, one, other)
        for name, one, other, code, line in pending
        if frame is None or (code is frame.f_code and line in lines)
    ]
    holds = [bool(getattr(operator, name)(_plain(one), _plain(other))) for name, one, other in found]
    if holds == [False]:
        found, holds = [(_OTHERWISE[name], one, other) for name, one, other in found], [True]
    if all(holds):  # of others it is not known which of them the condition needs
        for name, one, other in found:
            watch.state(getattr(operator, name), one, other)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


def _lines(frame: Any) -> range:
    """The lines of the call that a frame is at."""
    first, positions = frame.f_lineno, getattr(frame.f_code, "co_positions", None)
    if positions is None:
        return range(first, first + _LONG)
    at = next(itertools.islice(positions(), frame.f_lasti // 2, None), (first, first))
    return range(at[0] or first, (at[1] or first) + 1)


_LONG = 10  # lines of a call, where Python does not tell


class _Watched(int):
    """A size of a tensor in a trace: a plain number, but for the notes."""

    watch: Watch
    made_of: tuple[Any, float, float] | None = None  # a number of a tensor's, times what, plus what
    step: tuple[Any, ...] = ()  # the node that it is of, or the function that made it, and of what

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
        self.watch.note("ne", self, 0, sys._getframe(1))
        return int.__bool__(self)

    def __reduce__(self) -> Any:
        return int, (int(self),)


class _WatchedFloat(float):
    """An element of a tensor in a trace."""

    watch: Watch
    made_of: tuple[Any, float, float] | None = None
    step: tuple[Any, ...] = ()

    @classmethod
    def of(cls, value: float, watch: Watch) -> _WatchedFloat:
        made = cls(value)
        made.watch = watch
        return made

    def __bool__(self) -> bool:
        self.watch.note("ne", self, 0, sys._getframe(1))
        return float.__bool__(self)

    def __reduce__(self) -> Any:
        return float, (float(self),)


def _is_own(frame: Any) -> bool:
    """Whether a comparison is this package's, which checks, and not that of a graph that it runs."""
    name: str = frame.f_code.co_filename
    return name.startswith(_PACKAGE) and name != _INTERPRETER


def _comparing(name: str, kind: Any) -> Callable[[Any, Any], Any]:
    plain = getattr(kind, f"__{name}__")

    def compare(self: Any, other: Any) -> Any:
        asks = isinstance(other, (int, float)) and not isinstance(other, bool)
        if asks and not _is_own(frame := sys._getframe(1)):
            self.watch.note(name, self, other, frame)
        return plain(self, other)

    return compare


def _derived(value: Any, watch: Watch, made_of: tuple[Any, float, float], step: tuple[Any, ...]) -> Any:
    made: Any = (_WatchedFloat if isinstance(value, float) else _Watched).of(value, watch)
    made.made_of, made.step = made_of, step
    return made


# What becomes of the factor and the summand where a number is made of one and a plain number.
_MADE: dict[str, Callable[[float, float, float], tuple[float, float]]] = {
    "__add__": lambda a, b, c: (a, b + c),
    "__radd__": lambda a, b, c: (a, b + c),
    "__sub__": lambda a, b, c: (a, b - c),
    "__rsub__": lambda a, b, c: (-a, c - b),
    "__mul__": lambda a, b, c: (a * c, b * c),
    "__rmul__": lambda a, b, c: (a * c, b * c),
    "__truediv__": lambda a, b, c: (a / c, b / c),
    "__floordiv__": lambda a, b, c: (a / c, b / c),
}


def _making(name: str, kind: Any) -> Callable[[Any, Any], Any]:
    plain = getattr(kind, name)

    def make(self: Any, other: Any) -> Any:
        found = plain(self, other)
        if self.made_of is None or type(other) not in (int, float) or found is NotImplemented:
            return found
        origin, scale, offset = self.made_of
        reflected = name.startswith("__r")
        function = getattr(operator, name.replace("__r", "__"))
        step = (function, other, self) if reflected else (function, self, other)
        return _derived(found, self.watch, (origin, *_MADE[name](scale, offset, other)), step)

    return make


def _negative(kind: Any) -> Callable[[Any], Any]:
    def negative(self: Any) -> Any:
        found = kind.__neg__(self)
        if self.made_of is None:
            return found
        origin, scale, offset = self.made_of
        return _derived(found, self.watch, (origin, -scale, -offset), (operator.neg, self))

    return negative


def _methods(kind: Any) -> dict[str, Any]:
    compared = {f"__{name}__": _comparing(name, kind) for name in _COMPARED}
    # Equality takes the hash away.
    return {**compared, **{name: _making(name, kind) for name in _MADE}, "__neg__": _negative(kind),
            "__hash__": kind.__hash__}  # fmt: skip


for _kind in (_Watched, _WatchedFloat):
    for _name, _method in _methods(_kind.__base__).items():
        setattr(_kind, _name, _method)
