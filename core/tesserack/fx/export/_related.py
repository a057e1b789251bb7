"""Sizes without a name that a program takes together only: found by tries, and tied."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from tesserack.fx.export._ranges import Symbol, ValueRanges

__all__ = ["one_size", "tied"]

_MANY = 8  # sizes that are the same in the example vary together, as those of a cache's keys: each try takes a trace
_MOST = 64  # sets of sizes are tried, for one that does not vary by itself
_STEPS = (3, 5, 2, 1, -1)  # from the example's size to the one that is tried

Takes = Callable[[Sequence[int]], bool]


def tied(symbols: list[Symbol], takes: Takes) -> list[Symbol]:
    """The symbols, those without a name that cannot vary by themselves tied to what they vary with.

    ``takes(row)``: whether the program runs with these values of all symbols. Sizes are tied that are the same in the
    example or a fixed number apart, or multiples of another.
    """
    search = _Search(symbols, takes)
    for size in {s.example: None for s in symbols if s.hint}:
        alike = [s for s in symbols if s.hint and s.example == size]
        if len(alike) > _MANY:
            search.tie(alike)
    stuck = [s for s in symbols if s.hint and id(s) not in search.gone and not search.works([s])]
    left = [*stuck]
    for s in stuck:
        if not any(s is t for t in left):
            continue
        named = [t for t in symbols if not t.hint]
        others = [t for t in [*left, *named] if t is not s]
        group = search.group(s, [t for t in others if t.example == s.example]) or search.group(s, others)
        if group is not None:
            search.tie(group)
            left = [t for t in left if not any(t is u for u in group)]
        elif (root := search.divisor(s, [t for t in symbols if t is not s])) is not None:
            search.tie([root, s], s.example // root.example)
    return [s for s in symbols if id(s) not in search.gone]


def one_size(symbols: list[Symbol], group: list[Symbol]) -> list[Symbol]:
    """The symbols, those of a group tied to each other."""
    search = _Search(symbols, lambda row: True)
    search.tie(group)
    return [s for s in symbols if id(s) not in search.gone]


class _Search:
    def __init__(self, symbols: list[Symbol], takes: Takes) -> None:
        self.symbols, self.takes = symbols, takes
        self.gone: dict[int, tuple[Symbol, int, int]] = {}  # by identity: what it is tied to, factor and offset

    def works(self, group: Sequence[Symbol], factors: Sequence[int] = ()) -> bool:
        """Whether sizes of the group, and no others, may be other ones by the same number, or by multiples of it."""
        factors = factors or [1] * len(group)
        for step in _STEPS:
            moved = {id(s): s.example + step * factor for s, factor in zip(group, factors, strict=True)}
            if all(moved[id(s)] in s.range and moved[id(s)] > 1 for s in group):
                moved |= {k: f * moved[id(root)] + o for k, (root, f, o) in self.gone.items() if id(root) in moved}
                return self.takes([moved.get(id(s), s.example) for s in self.symbols])
        return False

    def group(self, one: Symbol, among: list[Symbol]) -> list[Symbol] | None:
        """``one`` and the fewest of these that it varies with; None if there are none. Two names are two sizes."""
        tries = 0
        for count in range(1, len(among) + 1):
            for rest in itertools.combinations(among, count):
                if sum(not t.hint for t in rest) > 1:
                    continue
                if tries == _MOST:
                    return None
                tries += 1
                if self.works([one, *rest]):
                    return [one, *rest]
        return None

    def divisor(self, one: Symbol, among: list[Symbol]) -> Symbol | None:
        """The size of which ``one`` is a multiple; None if there is none."""
        for other in among:
            factor, rest = divmod(one.example, other.example) if other.example > 1 else (0, 1)
            if factor > 1 and not rest and id(other) not in self.gone and self.works([one, other], [factor, 1]):
                return other
        return None

    def tie(self, group: list[Symbol], factor: int = 1) -> None:
        """Let one of them stand for all: the named one, or the least."""
        root = next((s for s in group if not s.hint), min(group, key=lambda s: s.example))
        for s in group:
            if s is root:
                continue
            offset = s.example - factor * root.example
            root.places += [(leaf, dim, f * factor, f * offset + o) for leaf, dim, f, o in s.places]
            root.range = _common(root.range, s.range, factor, offset)
            if root.hint:
                root.auto &= s.auto
                root.declared |= s.declared
            held = {k: (f, o) for k, (to, f, o) in self.gone.items() if to is s}
            self.gone |= {k: (root, f * factor, f * offset + o) for k, (f, o) in held.items()}
            self.gone[id(s)] = root, factor, offset


def _common(one: ValueRanges, other: ValueRanges, factor: int, offset: int) -> ValueRanges:
    lower = max(one.lower, -((offset - other.lower) // factor))
    uppers = [] if one.upper is None else [one.upper]
    uppers += [] if other.upper is None else [(other.upper - offset) // factor]
    return ValueRanges(lower, min(uppers, default=None))
