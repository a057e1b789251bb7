"""Numbers seen for several sizes of named axes, told in the names."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

__all__ = ["Formula", "fit", "sizes_of"]

Sizes = Mapping[str, int]
_REMAINDERS = ((1, 1), (3, 1), (5, 1), (5, 2))  # of a run's sizes by 8, and what they are multiplied by
_WIDEST = 64  # of divisors and offsets


class Formula:
    """A sum of products of names with whole factors, or ``(name + offset) // divisor``."""

    def __init__(self, terms: Sequence[tuple[int, tuple[str, ...]]], divisor: int = 1) -> None:
        self.terms, self.divisor = terms, divisor

    def text(self, number: Callable[[int], str] = str) -> str:
        """As a reader writes it; ``number`` shows factors."""
        parts = [self._term(factor, names, number) for factor, names in self.terms if factor or not names]
        if len(parts) > 1 and parts[-1] == number(0):
            parts.pop()
        text = " + ".join(parts).replace("+ -", "- ") if self.divisor == 1 else "+".join(parts).replace("+-", "-")
        if self.divisor == 1:
            return text
        return f"({text})//{self.divisor}" if len(parts) > 1 else f"{text}//{self.divisor}"

    def _term(self, factor: int, names: tuple[str, ...], number: Callable[[int], str]) -> str:
        product = "*".join(names)
        if not names:
            return number(factor)
        return product if factor == 1 and number is str else f"{number(factor)}*{product}"


class Capped(Formula):
    """The size of a name where that is less than a number, and the number: what is left of a table that is cut."""

    def __init__(self, name: str, most: int) -> None:
        super().__init__([(1, (name,))])
        self.name, self.most = name, most

    def text(self, number: Callable[[int], str] = str) -> str:
        return f"min({self.name}, {self.most})"


def sizes_of(names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes for each run, all different: three primes from 101 on, which leave different remainders, and twice a
    prime. Each name grows by steps of its own, so that one is not taken for another.

    >>> sizes_of(["batch"])
    [{'batch': 113}, {'batch': 131}, {'batch': 149}, {'batch': 202}]
    """
    used: set[int] = set()
    runs: list[dict[str, int]] = [{} for _ in _REMAINDERS]
    for place, name in enumerate(names):
        for run, (remainder, factor) in enumerate(_REMAINDERS):
            start = (101 + 53 * place + run * (19 + 24 * place)) // factor
            fitting = (n for n in itertools.count(start) if n % 8 == remainder and _prime(n))
            size = next(n for n in fitting if n * factor not in used)
            used.add(size * factor)
            runs[run][name] = size * factor
    return runs


def _prime(n: int) -> bool:
    return all(n % k for k in range(2, math.isqrt(n) + 1))


def fit(values: Sequence[int], runs: Sequence[Sizes]) -> Formula | None:
    """The simplest formula that gives each run's value, or None.

    >>> fit([226, 262, 298, 404], sizes_of(["batch"])).text()
    '2*batch'
    """
    if len(set(values)) == 1:
        return Formula([(values[0], ())])
    names = [*runs[0]]
    monomials = [m for n in (1, 2, 3) for m in itertools.combinations_with_replacement(names, n)]
    points = {m: [math.prod(run[name] for name in m) for run in runs] for m in monomials}
    for monomial in monomials:
        found = _multiple(values, points[monomial], monomial)
        if found is not None:
            return found
    for name in names:
        each = points[(name,)]
        found = _line(values, each, name) or _floor(values, each, name) or _capped(values, each, name)
        if found is not None:
            return found
    for one, two in itertools.combinations([*monomials, ()], 2):
        found = _sum(values, points[one], points.get(two, [1] * len(runs)), one, two)
        if found is not None:
            return found
    return None


def _multiple(values: Sequence[int], points: Sequence[int], names: tuple[str, ...]) -> Formula | None:
    ratios = {Fraction(v, p) for v, p in zip(values, points, strict=True)}
    ratio = ratios.pop()
    if ratios or ratio.denominator > _WIDEST:
        return None
    return Formula([(ratio.numerator, names)], ratio.denominator)


def _line(values: Sequence[int], points: Sequence[int], name: str) -> Formula | None:
    slope = Fraction(values[1] - values[0], points[1] - points[0])
    start = values[0] - slope * points[0]
    if (
        slope.denominator != 1
        or start.denominator != 1
        or any(slope * p + start != v for v, p in zip(values, points, strict=True))
    ):
        return None
    return Formula([(slope.numerator, (name,)), (start.numerator, ())])


def _floor(values: Sequence[int], points: Sequence[int], name: str) -> Formula | None:
    for divisor in range(2, _WIDEST + 1):
        for offset in sorted(range(-_WIDEST, _WIDEST + 1), key=abs):
            if all((p + offset) // divisor == v for v, p in zip(values, points, strict=True)):
                return Formula([(1, (name,)), (offset, ())] if offset else [(1, (name,))], divisor)
    return None


def _capped(values: Sequence[int], points: Sequence[int], name: str) -> Formula | None:
    most = max(values)
    return Capped(name, most) if all(v == min(p, most) for v, p in zip(values, points, strict=True)) else None


def _sum(
    values: Sequence[int], a: Sequence[int], b: Sequence[int], one: tuple[str, ...], two: tuple[str, ...]
) -> Formula | None:
    determinant = a[0] * b[1] - a[1] * b[0]
    if not determinant:
        return None
    first = Fraction(values[0] * b[1] - values[1] * b[0], determinant)
    second = Fraction(a[0] * values[1] - a[1] * values[0], determinant)
    fits = all(first * x + second * y == v for v, x, y in zip(values, a, b, strict=True))
    if not fits or first.denominator != 1 or second.denominator != 1:
        return None
    return Formula([(first.numerator, one), (second.numerator, two)])
