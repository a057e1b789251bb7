"""The range around the example's size in which a program does what it did: for sizes that may vary as far as they can.

What the program compares a size with tells where its branches may go another way; between a size at which it does the
same and one at which it does not, the end is found by halves.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from tesserack.fx.export._ranges import Symbol, ValueRanges
from tesserack.fx.export._symbols import LARGEST, greatest
from tesserack.fx.export._watch import Watch

__all__ = ["corners", "line_in", "lowered", "narrow"]

_MOST = 48  # sizes tried, each of which takes a trace or two

Differs = Callable[[int], str | None]  # with a size: the line where the program does something else; None: nowhere


class _TooMany(Exception):
    """More sizes would have to be tried."""


def narrow(symbol: Symbol, differs: Differs, notes: dict[int, Watch]) -> str:
    """Give a symbol the range of sizes around the example's in which the program does the same, and why it ends there.
    Where that is one size alone, the symbol stays, and what fixes it is returned. ``notes``: of the traces so far, by
    size, to which ``differs`` adds."""
    search = _Search(symbol, differs, notes)
    try:
        upper, lower = search.end(1), search.end(-1)
    except _TooMany:
        return search.why or "the program"
    if upper is None and lower is None:
        return ""
    if upper == symbol.example and lower in (symbol.example, None) and symbol.example <= max(search.least, 2):
        lower = symbol.example
    if upper == lower:
        return search.reasons.get(1) or search.why
    bounds = symbol.range
    symbol.range = ValueRanges(bounds.lower if lower is None else lower, bounds.upper if upper is None else upper)
    symbol.declared |= lower is not None
    symbol.reasons = search.reasons.get(-1, ""), search.reasons.get(1, "")
    return ""


class _Search:
    def __init__(self, symbol: Symbol, differs: Differs, notes: dict[int, Watch]) -> None:
        self.symbol, self.differs, self.notes = symbol, differs, notes
        self.least = symbol.range.lower if symbol.declared else min(2, symbol.example)
        self.lines: dict[int, str | None] = {}
        self.reasons: dict[int, str] = {}  # by direction
        self.why = ""

    def end(self, step: int) -> int | None:
        """The last size, up or down, at which the program does the same; None if there is no end."""
        good = self.symbol.example
        while (n := self._next(good, step)) is not None:
            if not self._same(n):
                good, bad = self._between(good, n)
                self.why = self.reasons[step] = self._reason(good, bad)
                return good
            good = n
        return None

    def _next(self, good: int, step: int) -> int | None:
        """The nearest size ahead that is to be tried."""
        found = {self.symbol.example + step, greatest(self.symbol, 0) if step > 0 else self.least}
        for n, watch in self.notes.items():
            for _, _, factor, offset in self.symbol.places:
                found |= watch.further(factor, offset, n)
        ahead = [n for n in found if (n - good) * step > 0 and self.least <= n <= LARGEST and n in self.symbol.range]
        return min(ahead, key=lambda n: abs(n - good), default=None)

    def _same(self, n: int) -> bool:
        if n not in self.lines:
            if len(self.lines) >= _MOST:
                raise _TooMany
            self.lines[n] = self.differs(n)
        return self.lines[n] is None

    def _between(self, good: int, bad: int) -> tuple[int, int]:
        """The last size that is good, and the one after it."""
        while abs(bad - good) > 1:
            middle = (good + bad) // 2
            if self._same(middle):
                good = middle
            else:
                bad = middle
        return good, bad

    def _reason(self, good: int, bad: int) -> str:
        """The comparison that comes out differently, one with what lies between these sizes where the program fails, or
        the first line that differs."""
        if good in self.notes and bad in self.notes:
            pairs = zip(self.notes[good].decided, self.notes[bad].decided, strict=False)
            first = next(((one, other) for one, other in pairs if one != other), None)
            if first is not None and first[0][0] == first[1][0]:
                return f"the branch at {first[0][0]}"
        ends = sorted((good, bad))
        for n, watch in self.notes.items():
            for (size, number), place in watch.compared.items():
                for _, _, factor, offset in self.symbol.places:
                    if size == factor * n + offset and ends[0] <= (number - offset) / factor <= ends[1] and place:
                        return f"the branch at {place}"
        return line_in(self.lines.get(bad) or "")


def corners(symbols: Sequence[Symbol]) -> list[list[int]]:
    """Rows at the ends of ranges that were narrowed, each found where other sizes are the example's: what the program
    decides by several sizes shows where all are at an end."""
    narrowed = [s for s in symbols if any(s.reasons)]
    found = []
    for turn in itertools.product((False, True), repeat=min(len(narrowed), _CORNERS) + 1):
        at = {id(s): up for s, up in zip(narrowed, turn[1:], strict=False)}
        found.append([_end(s, place, at.get(id(s), turn[0])) for place, s in enumerate(symbols)])
    return found if narrowed and len(symbols) > 1 else []


def lowered(symbols: Sequence[Symbol], low: Sequence[int]) -> list[list[int]]:
    """Rows of which one size has the value of ``low``, and all others are at the upper end, or the example's."""
    ends = [[greatest(s, place) for place, s in enumerate(symbols)], [s.example for s in symbols]]
    return [[*row[:k], low[k], *row[k + 1 :]] for k, s in enumerate(symbols) if not s.declared for row in ends]


_CORNERS = 3  # sizes of which each is at both ends by itself


def _end(symbol: Symbol, place: int, up: bool) -> int:
    if up:
        return greatest(symbol, place)
    least = min(max(symbol.range.lower, 2), symbol.example)
    return least if least in symbol.range else symbol.example


def line_in(text: str) -> str:
    """The place that a program's line is shown with."""
    found = re.search(r'File "(.*)", line (\d+)', text)
    return f"the program at {found[1]}:{found[2]}" if found else "the program"
