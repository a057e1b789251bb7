"""Numbers that may be one thing or another, as far as tries tell: at which sizes the two are not the same."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from tesserack.fx.export._expression import APPLY, UNARY, Expression
from tesserack.fx.export._ranges import Symbol
from tesserack.fx.export._recorded import readings, taken

__all__ = ["Doubt", "branches", "doubts_of", "telling_rows"]

Doubt: TypeAlias = "Callable[[Sequence[int]], bool]"  # whether the two are different numbers at these sizes
_DRAWS = 600  # rows at which they are looked at, which takes no trace


def doubts_of(
    pairs: Sequence[tuple[Expression, Expression]], symbols: Sequence[Symbol], rows: Sequence[Sequence[int]]
) -> list[Doubt]:
    """Two readings of a number each, as functions of the symbols, which had these values in the traces."""
    places = {
        tuple(factor * row[place] + offset for row in rows): (place, factor, offset)
        for place, symbol in reversed([*enumerate(symbols)])
        for _, _, factor, offset in symbol.places
    }
    found = {(one.text, other.text): (_function(one, places), _function(other, places)) for one, other in pairs}
    return [_apart(one, other) for one, other in found.values() if one is not None and other is not None]


def _apart(one: Callable[..., Any], other: Callable[..., Any]) -> Doubt:
    def differs(row: Sequence[int]) -> bool:
        try:
            return bool(one(row) != other(row))
        except (ZeroDivisionError, OverflowError, ValueError):
            return False

    return differs


def branches(asked: Mapping[tuple[str, Any, Any], bool], symbols: Sequence[Symbol], row: Sequence[int]) -> list[Doubt]:
    """Comparisons of a trace at this row that take several sizes together: whether they come out otherwise."""
    places: dict[int, set[int]] = {}
    for place, symbol in enumerate(symbols):
        for _, _, factor, offset in symbol.places:
            if factor == 1 and not offset:
                places.setdefault(row[place], set()).add(place)
    bases = [(Expression(("size", None, k), (row[k],), s.name, atom=True)) for k, s in enumerate(symbols)]
    found = []
    for (name, one, other), held in asked.items():
        sizes = {*taken(one), *taken(other)}
        if len(sizes) > 1 and all(len(places.get(n, ())) == 1 for n in sizes):
            columns = {(n,): (next(iter(places[n])), 1, 0) for n in sizes}
            parts = [_function(next(readings(tree, bases, 1)), columns) for tree in (one, other)]
            if parts[0] is not None and parts[1] is not None:
                found.append(_otherwise(getattr(operator, name), parts[0], parts[1], held))
    return found


def _otherwise(compare: Any, one: Callable[..., Any], other: Callable[..., Any], held: bool) -> Doubt:
    def turns(row: Sequence[int]) -> bool:
        try:
            return bool(compare(one(row), other(row)) != held)
        except (ZeroDivisionError, OverflowError, ValueError):
            return False

    return turns


def _function(e: Expression, places: Mapping[tuple[Any, ...], tuple[int, int, int]]) -> Callable[..., Any] | None:
    sign = e.how[0]
    if sign == "number":
        return lambda row: e.how[1]
    if sign in ("size", "node"):
        if e.values not in places:
            return None
        place, factor, offset = places[e.values]
        return lambda row: factor * row[place] + offset
    parts = [_function(part, places) for part in e.how[1:]]
    function = APPLY.get(sign) if len(parts) == 2 else UNARY.get(sign)
    if function is None or any(part is None for part in parts):
        return None
    return lambda row: function(*(part(row) for part in parts if part is not None))


def telling_rows(symbols: Sequence[Symbol], doubts: Sequence[Doubt], least: Sequence[int]) -> list[list[int]]:
    """For each doubt the first rows, of small and of large sizes, at which it is settled."""
    left, found = [*doubts], []
    for row in _drawn(symbols, least) if left else ():
        settled = [doubt for doubt in left if doubt(row)]
        if settled:
            found.append(row)
            left = [doubt for doubt in left if doubt not in settled]
    return found


def _drawn(symbols: Sequence[Symbol], least: Sequence[int]) -> Iterator[list[int]]:
    rng, example = random.Random(8), [s.example for s in symbols]
    for turn in range(_DRAWS):
        most = (4, 12, 40, 300)[turn % 4]
        row = [rng.randint(low, low + most) for low in least]
        row = [n if n in s.range else s.example for n, s in zip(row, symbols, strict=True)]
        if turn % 3 == 0:  # one at a time
            place = turn // 3 % len(row)
            row = [*example[:place], row[place], *example[place + 1 :]]
        yield row
