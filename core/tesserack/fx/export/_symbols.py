"""Which sizes vary together, and at which sizes a program is tried."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tesserack import Tensor
from tesserack.fx.export._errors import ExportError
from tesserack.fx.export._ranges import Symbol, ValueRanges
from tesserack.fx.export.dynamic_shapes import Axis, Dim, _HintKind

__all__ = ["LARGEST", "greatest", "named_columns", "remainders", "sizes_at", "symbols_of", "trials"]

_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97)
_LARGE = 1031  # the size tried where there is no greatest one
_REMAINDERS = 32  # are tried at most
LARGEST = 65536  # no larger size is tried


def symbols_of(axes: Sequence[Axis], leaves: Sequence[Any]) -> list[Symbol]:
    """The sizes that vary by themselves. ``ExportError`` where the example does not fit what is declared."""
    found: dict[Any, Symbol] = {}
    dims: dict[str, Dim] = {}
    for axis in axes:
        size = int(Tensor.size(leaves[axis.leaf])[axis.dim])
        if isinstance(axis.spec, Dim):
            _named(axis, size, found, dims)
        else:
            _hinted(axis, size, found)
    return [*found.values()]


def _named(axis: Axis, size: int, found: dict[Any, Symbol], dims: dict[str, Dim]) -> None:
    dim, root = axis.spec, axis.spec.root
    known = dims.setdefault(root.__name__, root)
    if (known.min, known.max) != (root.min, root.max):
        raise ExportError(
            f"export: expected one range for every Dim of one name, got {known!r} and {root!r} for {axis.name}"
        )
    value, rest = divmod(size - dim.offset, dim.factor)
    if rest:
        raise ExportError(f"export: {axis.name} has size {size} in dim {axis.dim}, which is not {dim.__name__}")
    bounds = ValueRanges(root.min or 0, root.max)
    if value not in bounds:
        raise ExportError(
            f"export: {root.__name__}: expected {bounds.lower}..{bounds.upper}, got {value}, by {axis.name} of the "
            f"example in dim {axis.dim}"
        )
    symbol = found.setdefault(root.__name__, Symbol(root.__name__, bounds, [], value, declared=root.min is not None))
    if symbol.example != value:
        raise ExportError(
            f"export: Constraints violated: {root.__name__} is {symbol.example} and {value} in the example, by "
            f"{axis.name} in dim {axis.dim}; sizes of one Dim are the same"
        )
    symbol.places.append((axis.leaf, axis.dim, dim.factor, dim.offset))


def _hinted(axis: Axis, size: int, found: dict[Any, Symbol]) -> None:
    """Sizes without a name vary each by itself, as long as the program takes that."""
    hint = axis.spec
    bounds = ValueRanges(hint.min or 0, hint.max)
    if size not in bounds:
        raise ExportError(f"export: {axis.name}: expected {bounds} in dim {axis.dim}, got {size} in the example")
    number = sum(isinstance(key, tuple) for key in found)
    auto, declared = hint.type is _HintKind.AUTO, hint.min is not None
    symbol = Symbol(f"s{number}", bounds, [], size, declared=declared, hint=True, auto=auto)
    symbol.places.append((axis.leaf, axis.dim, 1, 0))
    found["hint", axis.leaf, axis.dim] = symbol


def sizes_at(symbols: Sequence[Symbol], values: Sequence[int]) -> dict[tuple[int, int], int]:
    """The sizes of inputs where the symbols have these values."""
    return {
        (leaf, dim): factor * value + offset
        for symbol, value in zip(symbols, values, strict=True)
        for leaf, dim, factor, offset in symbol.places
    }


def trials(symbols: Sequence[Symbol]) -> list[list[int]]:
    """Values of all symbols to try: several in between, which have nothing in common, then the greatest."""
    found = [[_between(symbol, place, turn) for place, symbol in enumerate(symbols)] for turn in range(4)]
    found.append([greatest(symbol, place) for place, symbol in enumerate(symbols)])
    return [row for k, row in enumerate(found) if row not in found[:k]]


def _between(symbol: Symbol, place: int, turn: int) -> int:
    lower = max(symbol.range.lower, 2)
    upper = min(symbol.range.upper if symbol.range.upper is not None else LARGEST, LARGEST)
    if upper <= lower:
        return min(lower, upper)
    choices = [n for n in _PRIMES if lower <= n <= upper and n != symbol.example]
    if len(choices) < 8:
        choices += [n for n in range(lower, min(upper, lower + 12) + 1) if n not in choices and n != symbol.example]
    if not choices:
        return upper
    step = 2 * turn + 1 + (turn * turn if place % 2 else 0)
    return choices[(place * 5 + turn * 3 + (place + 1) * step) % len(choices)]


def greatest(symbol: Symbol, place: int) -> int:
    """The size that stands for all large ones."""
    upper = symbol.range.upper
    return upper if upper is not None and upper <= LARGEST else max(symbol.range.lower, _LARGE + 2 * place)


def remainders(symbols: Sequence[Symbol], divisors: Iterable[int]) -> list[list[int]]:
    """Values of all symbols to try where sizes are divided by these: those of each remainder by twice the number, or of
    some where there are many; small ones, ever larger ones and some at random. The symbols have others at a time."""
    divisors = {*divisors}
    found = dict.fromkeys((*_spread(symbols), *_random(symbols)) if divisors else ())
    for divisor in divisors - {0}:
        cycle = 2 * divisor
        for turn in range(0, cycle, -(-cycle // _REMAINDERS)):
            found[tuple(_with_remainder(s, (turn + 3 * place) % cycle, cycle) for place, s in enumerate(symbols))] = (
                None
            )
    return [[*row] for row in found]


def _spread(symbols: Sequence[Symbol]) -> Iterator[tuple[int, ...]]:
    for turn in range(16):
        row = []
        for place, s in enumerate(symbols):
            step = (turn + 5 * place) % 16
            value = _least(s) + (step if step < 8 else int(8 * 1.6 ** (step - 7)))
            row.append(value if value in s.range else s.example)
        yield tuple(row)


def _random(symbols: Sequence[Symbol]) -> Iterator[tuple[int, ...]]:
    rng = random.Random(8)
    for _ in range(12):
        yield tuple(rng.randint(min(_least(s), s.example), greatest(s, 0)) for s in symbols)


def _least(symbol: Symbol) -> int:
    """Whether a program takes less is asked later, where it does not say so."""
    return max(symbol.range.lower, 2) if symbol.declared else min(symbol.example, 5)


def _with_remainder(symbol: Symbol, rest: int, cycle: int) -> int:
    """The first value from the example's on that leaves this remainder, or the last one before."""
    after = symbol.example + (rest - symbol.example) % cycle
    if after in symbol.range:
        return after
    before = after - cycle
    return before if before in symbol.range and before > 1 else symbol.example


def named_columns(symbols: Sequence[Symbol], rows: Sequence[Sequence[int]]) -> dict[tuple[int, ...], str]:
    """What sizes of inputs are called, by what they were in each trace."""
    found: dict[tuple[int, ...], str] = {}
    for place, symbol in enumerate(symbols):
        column = tuple(row[place] for row in rows)
        for _, _, factor, offset in sorted(symbol.places, key=lambda p: (p[2], p[3])):
            text = symbol.name if factor == 1 else f"{factor}*{symbol.name}"
            text += f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else ""
            found.setdefault(tuple(factor * value + offset for value in column), text)
    return found
