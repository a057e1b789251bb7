"""Sizes that a program looks at while it is traced: what it compares them with tells which sizes to try besides."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import tesserack as ts
from tesserack.fx.export._extremes import PLAIN, caller, telling
from tesserack.fx.export._recorded import LOST

__all__ = ["Watch", "predicate", "stated", "watching"]

_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
_PACKAGE = str(Path(__file__).resolve().parents[2])  # whose own comparisons check, and decide nothing
_INTERPRETER = str(Path(_PACKAGE) / "fx" / "interpreter.py")
_FEW = 16  # larger divisors leave too many remainders to try: the least and the greatest of them
_MANY = 4096


def _further(first: int, divisor: int) -> Iterable[int]:
    """How much more than a size leaves other remainders, of which ``first`` more leaves none."""
    return range(1, divisor) if divisor <= _FEW else (first - 1, first, first + 1)


class Watch:
    """Notes of one trace: ``compared`` holds pairs of a size and what it was compared with, ``divided`` a size and a
    divisor whose remainder was asked for, and how much more than the size leaves none."""

    def __init__(self) -> None:
        self.compared: dict[tuple[Any, Any], str] = {}  # by the program's line
        self.divided: set[tuple[int, int, int]] = set()
        self.related = False  # whether sizes were compared with others
        self.decided: list[tuple[str, bool]] = []  # what came out of each comparison, with the program's line
        # The comparisons since a condition was stated, each with where the program makes it.
        self.pending: list[tuple[str, Any, Any, types.CodeType, int]] = []
        self.last: deque[tuple[str, Any, Any, Any]] = deque(maxlen=_LAST)  # comparisons, with whose they are
        self.varies = False  # whether there are sizes that do
        self.asked: dict[tuple[str, Any, Any], bool] = {}  # comparisons of what is made of sizes, and what came out
        self.unknown: set[int] = set()  # sizes that follow from values
        self.trees: dict[tuple[bool, Any], list[Any]] = {}  # how the program made numbers of sizes: see _recorded
        self.reader: Callable[[], Any] = lambda: None  # the step that read the last number of a tensor's
        self.state: Callable[[Any, Any, Any], None] | None = None  # writes down what one compares, which holds

    def shown(self, shape: Any) -> ts.Size:
        """Sizes that tell what is done with them."""
        return ts.Size([self.size(n) for n in shape])

    def size(self, n: int) -> Any:
        """A size that tells what is done with it."""
        if n in self.unknown:
            return _derived(n, self, (n, 1, 0), (), ("size", n))
        made = _Watched.of(n, self)
        made.line, made.tree = (n, 1, 0), ("size", n)
        return made

    def watched(self, value: Any) -> Any:
        """A number of a tensor's that tells what it, and what is made of it, is compared with."""
        return _derived(value, self, (value, 1, 0), (self.reader(),), ("size", value))

    def turns(self) -> list[tuple[str, bool]]:
        """Which way each of the program's comparisons went, a run of equal ones told once."""
        return [kept for kept, _ in itertools.groupby(self.decided)]

    def keep(self, value: Any, tree: Any) -> None:
        """Note how a number was made."""
        kept = self.trees.setdefault((isinstance(value, float), _plain(value)), [])
        if tree not in kept and len(kept) < _WAYS:
            kept.append(tree)

    def further(self, factor: int, offset: int, value: int) -> set[int]:
        """Values to try of a symbol that was ``value``, where ``factor * value + offset`` is a size."""
        size = factor * value + offset
        wanted = {c + d for s, c in self.compared if s == size for d in (-1, 0, 1)}
        wanted |= {size + d for s, c, first in self.divided if s == size for d in _further(first, c)}
        return {(n - offset) // factor for n in wanted if n >= 0 and not (n - offset) % factor}

    def note(self, name: str, one: Any, other: Any, frame: Any, holds: Any) -> None:
        """A comparison of the program's."""
        made_of = getattr(one, "made_of", None)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        self.decided.append((place, holds is True))
        self.last.append((name, one, other, (frame.f_code, frame.f_lineno)))
        if made_of is None:
            self.asked[_asked(name, one, other)] = bool(holds)
            self._compare_size(one, other, place)
            if isinstance(other, _Watched) and other.made_of is None:
                self.related = True
                self._compare_size(other, one, place)
            return
        origin, scale, offset = made_of
        number = (float(other) - offset) / scale if scale else float(other)
        if math.isfinite(number):
            self.compared.setdefault((origin, number if isinstance(origin, float) else math.floor(number)), place)
        self.pending.append((name, one, other, frame.f_code, frame.f_lineno))

    def _compare_size(self, one: Any, other: Any, place: str) -> None:
        origin, scale, offset = one.line or (int(one), 1, 0)
        for step in (-1, 0, 1) if abs(scale) < 1 else (0,):  # where the size is divided, and rounded
            number = (float(other) + step - offset) / scale if scale else float(other)
            if math.isfinite(number):
                self.compared.setdefault((origin, math.floor(number)), place)

    def take_back(self, name: str, one: Any, other: Any) -> None:
        """The last comparison decides nothing in Python: its answer is handed to an operator."""
        self.decided.pop()
        self.asked.pop(_asked(name, one, other), None)
        self.pending = [p for p in self.pending if p[1] is not one or p[2] is not other]


def _asked(name: str, one: Any, other: Any) -> tuple[str, Any, Any]:
    return name, one.tree, getattr(other, "tree", None) or _plain(other)


_LAST = 4
_WAYS = 16  # that one number is made in are kept
_watches: list[Watch] = []  # of the traces under way


@contextlib.contextmanager
def watching(watch: Watch) -> Iterator[None]:
    """Within it a trace that ``watch`` is of is under way."""
    _watches.append(watch)
    try:
        with telling(_extreme):
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


def predicate(pred: bool, frame: Any) -> Any:
    """What tells a branch, as a tensor that each run computes anew, where the program has made it by one comparison of
    sizes that vary or of values, in the call that the frame is at or last of all; else as it is."""
    watch = _watches[-1] if _watches else None
    if watch is None or not watch.last:
        return pred
    lines = _lines(frame)
    near = [of for *_, of in watch.last if of[0] is frame.f_code and of[1] in lines]
    name, one, other, (code, _) = watch.last[-1]
    if len(near) > 1 or code is not frame.f_code or not (watch.varies or getattr(one, "made_of", None)):
        return pred
    holds = bool(getattr(operator, name)(_plain(one), _plain(other)))
    watch.take_back(name, one, other)
    watch.last.clear()
    made = ts.scalar_tensor(one, dtype=ts.float64 if isinstance(one, float) else ts.int64)
    return getattr(made, name if holds == pred else _OTHERWISE[name])(other)


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
    line: tuple[Any, float, float] | None = None  # a size, times what, plus what
    tree: Any = None

    @classmethod
    def of(cls, value: int, watch: Watch) -> _Watched:
        made = cls(value)
        made.watch = watch
        return made

    def __mod__(self, other: Any) -> Any:
        origin, scale, _ = self.line or (int(self), 1, 0)
        period = math.ceil(other / abs(scale)) if type(other) is int and other > 1 and scale else 0
        if 1 < period <= _MANY:
            left = -int(self) % other if scale > 0 else int(self) % other
            self.watch.divided.add((origin, period, round(left / abs(scale))))
        return _treed(self, int.__mod__(self, other), "%", (self, other))

    def __rmod__(self, other: Any) -> Any:
        return _treed(self, int.__rmod__(self, other), "%", (other, self))

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __bool__(self) -> bool:
        holds = int.__bool__(self)
        self.watch.note("ne", self, 0, sys._getframe(1), holds)
        return holds

    def __reduce__(self) -> Any:
        return int, (int(self),)


class _WatchedFloat(float):
    """An element of a tensor in a trace."""

    watch: Watch
    made_of: tuple[Any, float, float] | None = None
    step: tuple[Any, ...] = ()
    line: tuple[Any, float, float] | None = None
    tree: Any = None

    @classmethod
    def of(cls, value: float, watch: Watch) -> _WatchedFloat:
        made = cls(value)
        made.watch = watch
        return made

    def __bool__(self) -> bool:
        holds = float.__bool__(self)
        self.watch.note("ne", self, 0, sys._getframe(1), holds)
        return holds

    def __reduce__(self) -> Any:
        return float, (float(self),)

    def __int__(self) -> int:  # Python makes a plain number of what this returns
        found = float.__int__(self)
        if self.tree is not None:
            tree = ("trunc", self.tree)
            self.watch.keep(found, tree)
            self.watch.trees.setdefault(LOST, []).append(tree)
        return found


def _is_own(frame: Any) -> bool:
    """Whether a comparison is this package's, which checks, and not that of a graph that it runs."""
    name: str = frame.f_code.co_filename
    return name.startswith(_PACKAGE) and name != _INTERPRETER


def _comparing(name: str, kind: Any) -> Callable[[Any, Any], Any]:
    plain = getattr(kind, f"__{name}__")

    def compare(self: Any, other: Any) -> Any:
        holds = plain(self, other)
        asks = isinstance(other, (int, float)) and not isinstance(other, bool)
        if asks and not _is_own(frame := caller(sys._getframe(1))):
            self.watch.note(name, self, other, frame, holds)
        return holds

    return compare


def _derived(value: Any, watch: Watch, made_of: Any, step: tuple[Any, ...], tree: Any) -> Any:
    made: Any = (_WatchedFloat if isinstance(value, float) else _Watched).of(value, watch)
    made.made_of, made.step, made.tree = made_of, step, tree
    return made


def _treed(of: Any, value: Any, sign: str, operands: tuple[Any, ...]) -> Any:
    """The number, with how it was made; as it is where that is not seen."""
    if of.tree is None or type(value) not in (int, float):
        return value
    trees = [getattr(x, "tree", None) if isinstance(x, (_Watched, _WatchedFloat)) else x for x in operands]
    if any(t is None or (not isinstance(t, tuple) and type(t) not in (int, float)) for t in trees):
        return value
    tree = (sign, *trees)
    of.watch.keep(value, tree)
    return _derived(value, of.watch, None, (), tree)


def _extreme(name: str, found: Any, values: tuple[Any, ...]) -> Any:
    """The least, or the greatest, of these numbers, with how it was made; as it is where it is of a tensor's."""
    seen = [v for v in values if isinstance(v, (_Watched, _WatchedFloat))]
    if not seen or any(v.made_of is not None for v in seen):
        return found
    made: Any = values[0]
    for value in values[1:]:
        made = _treed(seen[0], PLAIN[name](_plain(made), _plain(value)), name, (made, value))
    if getattr(made, "tree", None) is None:
        return found
    if made is not found:
        made.line = getattr(found, "line", None)
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
_DIVIDING = ("__rtruediv__", "__rfloordiv__")  # are on no line

_SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//"}


def _making(name: str, kind: Any) -> Callable[[Any, Any], Any]:
    plain = getattr(kind, name)
    reflected = name.startswith("__r")
    base = name.strip("_").removeprefix("r") if reflected else name.strip("_")
    function = getattr(operator, base)

    def make(self: Any, other: Any) -> Any:
        found = plain(self, other)
        if found is NotImplemented and type(other) is float:  # which would take over, and not tell
            one, two = (other, _plain(self)) if reflected else (_plain(self), other)
            found = function(one, two)
        if found is NotImplemented:
            return found
        made = _treed(self, found, _SIGNS[base], (other, self) if reflected else (self, other))
        if type(other) not in (int, float) or name not in _MADE:
            return made
        if self.made_of is not None:
            origin, scale, offset = self.made_of
            step = (function, other, self) if reflected else (function, self, other)
            tree = getattr(made, "tree", None)
            return _derived(found, self.watch, (origin, *_MADE[name](scale, offset, other)), step, tree)
        if self.line is not None and made is not found:
            origin, scale, offset = self.line
            made.line = origin, *_MADE[name](scale, offset, other)
        return made

    return make


def _negative(kind: Any) -> Callable[[Any], Any]:
    def negative(self: Any) -> Any:
        made = _treed(self, kind.__neg__(self), "neg", (self,))
        if self.made_of is not None:
            origin, scale, offset = self.made_of
            step = (operator.neg, self)
            return _derived(_plain(made), self.watch, (origin, -scale, -offset), step, getattr(made, "tree", None))
        if self.line is not None and made is not None and hasattr(made, "line"):
            made.line = self.line[0], -self.line[1], -self.line[2]
        return made

    return negative


def _whole(name: str, kind: Any) -> Callable[..., Any]:
    plain = getattr(kind, f"__{name}__")

    def make(self: Any, *digits: Any) -> Any:
        found = plain(self, *digits)
        made = found if any(d is not None for d in digits) else _treed(self, found, name, (self,))
        if made is not found:
            made.line = self.line
        return made

    return make


def _methods(kind: Any) -> dict[str, Any]:
    compared = {f"__{name}__": _comparing(name, kind) for name in _COMPARED}
    # Equality takes the hash away.
    whole = {f"__{name}__": _whole(name, kind) for name in ("trunc", "round", "floor", "ceil", "abs")}
    return {**compared, **whole, **{name: _making(name, kind) for name in (*_MADE, *_DIVIDING)},
            "__neg__": _negative(kind), "__hash__": kind.__hash__}  # fmt: skip


for _kind in (_Watched, _WatchedFloat):
    for _name, _method in _methods(_kind.__base__).items():
        setattr(_kind, _name, _method)
