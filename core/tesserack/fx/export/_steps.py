"""Expressions with a remainder: floor division, and what it leaves.

Few tries do not tell them apart, ``s // 3`` is ``(s - 1) // 3`` unless 3 divides s: an export tries further sizes, of
every remainder, once it has found one (``divisors``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tesserack.fx.export._expression import WHOLE, Expression, number, operation, shifted

__all__ = ["divisors", "in_steps", "rounded"]

_GREATEST = 64  # number that sizes are divided by


def divisors(expression: Expression) -> set[int]:
    """What an expression divides by to whole numbers; 5 where it rounds, 0 where it has a limit. None of one that is
    known."""
    if expression.sure:
        return set()
    found = (
        {expression.how[2].how[1]}
        if expression.how[0] in ("//", "%") and expression.how[2].how[0] == "number"
        else set()
    )
    if expression.how[0] in WHOLE:
        found.add(5)
    if expression.how[0] in ("min", "max"):
        found.add(0)
    return found.union(*(divisors(part) for part in expression.how[1:] if isinstance(part, Expression)))


def in_steps(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``(s + b) // c * k + d``, ``(s + b) % c``, ``s - (s + b) // c - d``: sizes after strides and pooling, padding,
    parts of a size."""
    for s in bases:
        yield from _divided(values, s)
    for s in bases:
        yield from _multiples(values, s)
    for s in bases:
        yield from _remainders(values, s)
    for s in bases:
        for part in _divided(tuple(x - v for v, x in zip(values, s.values, strict=True)), s):
            yield operation("-", s, part)


def _divided(values: tuple[int, ...], s: Expression) -> Iterator[Expression]:
    """``(s + b) // c + d``; for each c the plainest: as it is, rounded up, the least offset."""
    for divisor in range(2, _GREATEST + 1):
        start = divisor * values[0] - s.values[0]
        fits = [
            offset for offset in range(start, start + divisor)
            if all((x + offset) // divisor == v for x, v in zip(s.values, values, strict=True))
        ]  # fmt: skip
        if fits:
            offset = min(fits, key=lambda b, c=divisor: (b % c != 0, b % c != c - 1, abs(b)))  # type: ignore[misc]
            shift = math.floor(offset / divisor) if offset < 0 else 0
            yield shifted(operation("//", shifted(s, offset - shift * divisor), divisor), shift)


def _multiples(values: tuple[int, ...], s: Expression) -> Iterator[Expression]:
    """``(s + b) // c * k + d``, which has one remainder by k."""
    apart = math.gcd(*(v - values[0] for v in values))
    for k in range(2, min(apart, _GREATEST) + 1):
        if apart % k:
            continue
        rest = values[0] % k
        rest = rest - k if k - rest == 1 else rest
        for found in _divided(tuple((v - rest) // k for v in values), s):
            yield shifted(operation("*", found, k), rest)


def _remainders(values: tuple[int, ...], s: Expression) -> Iterator[Expression]:
    """``(s + b) % c``, ``(b - s) % c``."""
    if min(values) < 0 or len({*values}) < 2:
        return
    for c in range(max(values) + 1, _GREATEST + 1):
        for sign in (1, -1):
            b = (values[0] - sign * s.values[0]) % c
            if all((sign * x + b) % c == v for x, v in zip(s.values, values, strict=True)):
                base = shifted(s, b) if sign > 0 else operation("-", number(b, len(values)), s)
                yield operation("%", base, c)


def rounded(values: tuple[int, ...], bases: Sequence[Expression]) -> Expression | None:
    """An element of a tensor of floats as a whole number, which it may be a step from."""
    for base in bases:
        if not isinstance(base.values[0], float):
            continue
        for name, function in WHOLE.items():
            try:
                made = [function(x) for x in base.values]
            except (OverflowError, ValueError):
                continue
            step = values[0] - made[0]
            if all(m + step == v for m, v in zip(made, values, strict=True)):
                return shifted(Expression((name, base), made, f"{name}({base.text})", atom=True), step)
    return None
