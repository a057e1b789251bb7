"""Tries of a program at other numbers for what follows from values.

A row of a try has the sizes that vary, then, where there are any, a turn by which these numbers are drawn, and pairs of
a place and the number there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from tesserack.fx.export._errors import ExportError
from tesserack.fx.export._ranges import Symbol
from tesserack.fx.export._symbols import sizes_at
from tesserack.fx.export._trace import Program, Trace, trace
from tesserack.fx.export._unknown import GREATEST, NEGATIVE, NONE, ONE, Unknown
from tesserack.fx.export._watch import Watch

__all__ = ["other_values", "traced"]

_TURNS = (1, 2, 3, 4, 8)
_TRIES = 40  # until numbers are found that the program takes
_NEAR = (2, 3, 4, 5, -1, -2)
_FEW = 8  # places that are looked at so
_MOST = 24  # numbers tried besides that the program compares with


def traced(program: Program, symbols: Sequence[Symbol], row: Sequence[Any]) -> Trace:
    """The trace of a row. Numbers that the program refuses, as by ``torch._check``, are drawn again."""
    sizes, more = row[: len(symbols)], row[len(symbols) :]
    turn = more[0] if more else 0
    given = dict(zip(more[1::2], more[2::2], strict=True))
    for attempt in range(_TRIES):
        unknown = Unknown(sizes, turn, given, Watch())
        unknown.watch.varies = bool(symbols)
        try:
            return trace(program, sizes_at(symbols, sizes), unknown)
        except ExportError:
            raise
        except Exception:
            if not unknown.values or turn < 0 or len(more) > 1 or attempt == _TRIES - 1:
                raise
        turn, given = _drawn_again(unknown, attempt)
    raise AssertionError


def _drawn_again(unknown: Unknown, attempt: int) -> tuple[int, dict[int, Any]]:
    """Numbers around those with which the last ones were compared, or altogether new ones."""
    rng = random.Random(f"{unknown.row} {unknown.turn} {attempt}")
    pairs = [(unknown.values.index(v), c) for v, c in unknown.watch.compared if v in unknown.values]
    if attempt % 8 == 7:
        return unknown.turn + 16 + attempt // 8, {}
    if not pairs:  # an index, or a part of a size
        small = (1, 3, 8, 32)[attempt % 4]
        numbers = {k: rng.randint(0, small) for k, v in enumerate(unknown.values) if isinstance(v, int)}
        return unknown.turn + (0 if numbers else 16), numbers
    place, number = pairs[-1] if attempt % 2 else rng.choice(pairs)
    if isinstance(number, float):
        found = rng.choice((number - 1.5, number + 1.5, number))
    else:
        found = rng.choice((number, number - 1, number + 1, number // 2, rng.randint(0, max(number, 1))))
    return unknown.turn, {**unknown.given, place: found}


def other_values(program: Program, symbols: Sequence[Symbol]) -> list[list[Any]]:
    """Rows at other numbers: some in between, the greatest and the least that the program takes, and those around what
    it compares them with.
    """
    example = [s.example for s in symbols]
    found = [row for row in ([*example, turn] for turn in _TURNS) if _runs(program, symbols, row)]
    if len(found) < 2:
        raise ExportError(
            "export: no numbers were found that the program takes for what follows from values; tell what they may be "
            "by torch._check"
        )
    more = [[*example, turn] for turn in (GREATEST, ONE, NONE, NEGATIVE)]
    wanted: dict[tuple[int, Any], None] = {}
    for trace_ in [*program.traces.values()]:
        values = trace_.unknown.values
        for value, number in trace_.unknown.watch.compared:
            if value in values:
                wanted |= {(values.index(value), number + step): None for step in (-1, 0, 1)}
    more += [[*example, 0, place, number] for place, number in wanted][:_MOST]
    more += [[*example, 0, place, n] for place in _little_known(program, found) for n in _NEAR]
    return found + [row for row in more if _runs(program, symbols, row)]


def _little_known(program: Program, rows: list[list[Any]]) -> list[int]:
    """Places where so few whole numbers were tried, as for an index, that wrong formulas fit them too."""
    seen: dict[int, set[int]] = {}
    for row in rows:
        for place, value in enumerate(program.traces[(*row,)].unknown.values):
            if isinstance(value, int):
                seen.setdefault(place, set()).add(value)
    return [place for place, numbers in seen.items() if len(numbers) < 4][:_FEW]


def _runs(program: Program, symbols: Sequence[Symbol], row: list[Any]) -> bool:
    """Whether the program takes these numbers; its trace is kept."""
    if (*row,) not in program.traces:
        try:
            program.traces[(*row,)] = traced(program, symbols, row)
        except ExportError:
            raise
        except Exception:  # as it may be in eager too
            return False
    return True
