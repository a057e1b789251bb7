"""Sizes as expressions: what a number is of the sizes that vary, found from the numbers that several traces had.

A number that differs from trace to trace is looked for among sizes, sums, products and quotients of them that give it
in every trace. A trace more than an expression could be fitted to is always there, so that chance agreement shows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

from tesserack.fx.export._expression import Expression, number, operation, shifted
from tesserack.fx.export._steps import in_steps, rounded

__all__ = ["bounded", "find"]


def find(values: Sequence[Any], symbols: Sequence[Expression], near: Sequence[Expression]) -> Expression | None:
    """The expression that is ``values`` in every trace; None if none is found.

    ``symbols`` are the sizes that vary by themselves, ``near`` sizes of the step's operands and others at hand.
    """
    values = tuple(values)
    if any(isinstance(v, float) for v in values):
        return _float(values, symbols, near)
    for expression in (*symbols, *near):
        if expression.values == values:
            return expression
    whole = rounded(values, symbols)
    if whole is not None:
        return whole
    for base in symbols:
        if any(v < 0 for v in base.values) and tuple(map(abs, base.values)) == values:
            return Expression(("abs", base), values, f"abs({base.text})", atom=True)
    symbols, near = ([e for e in given if isinstance(e.values[0], int)] for given in (symbols, near))
    ways = (
        *(_affine(values, symbols), _products(values, symbols), _affine(values, near), _products(values, near)),
        *(_planes(values, symbols), in_steps(values, symbols), _planes(values, near), in_steps(values, near)),
        *(_shifted_products(values, near), in_steps(values, _pairs(symbols))),
    )
    return next(itertools.chain.from_iterable(ways), None)


def _pairs(bases: Sequence[Expression]) -> list[Expression]:
    return [operation("*", s, t) for s, t in itertools.combinations_with_replacement(bases[:4], 2)]


def bounded(values: tuple[int, ...], bases: Sequence[Expression]) -> Expression | None:
    """The less, or the greater, of a size and a number or another size: where nothing else is these numbers."""
    bases = [base for base in bases if isinstance(base.values[0], int)]
    for name, function, extreme, farthest in (("min", min, min, max), ("max", max, max, min)):
        limit, row = number(farthest(values), len(values)), values.index(extreme(values))
        for base in bases:  # a number more or less than a size, or that number
            moved = shifted(base, values[row] - base.values[row])
            if all(function(x, y) == v for x, y, v in zip(moved.values, limit.values, values, strict=True)):
                return Expression((name, moved, limit), values, f"{name}({moved.text}, {limit.text})", atom=True)
        for base, other in itertools.product(bases[:12], bases[:12]):
            if all(function(x, y) == v for x, y, v in zip(base.values, other.values, values, strict=True)):
                return Expression((name, base, other), values, f"{name}({base.text}, {other.text})", atom=True)
    return None


def _affine(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``a * s + b``."""
    for s in bases:
        pair = next(((i, j) for i, j in itertools.combinations(range(len(values)), 2)
                     if s.values[i] != s.values[j]), None)  # fmt: skip
        if pair is None:
            continue
        slope = Fraction(values[pair[0]] - values[pair[1]], s.values[pair[0]] - s.values[pair[1]])
        offset = values[pair[0]] - slope * s.values[pair[0]]
        if slope.denominator != 1 or not slope or offset.denominator != 1:
            continue
        a, b = int(slope), int(offset)
        if any(a * x + b != v for x, v in zip(s.values, values, strict=True)):
            continue
        if a > 0:
            yield shifted(operation("*", s, a) if a != 1 else s, b)
        else:
            yield operation("-", number(b, len(values)), operation("*", s, -a) if a != -1 else s)


def _products(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``s * t * c // d``, where that leaves no remainder, of up to four sizes."""
    for count in range(1, 5):
        for parts in itertools.combinations_with_replacement(bases[:12], count):
            product = [math.prod(column) for column in zip(*(p.values for p in parts), strict=True)]
            factors = {Fraction(v, p) for v, p in zip(values, product, strict=True) if p}
            if len(factors) != 1:
                continue
            factor = factors.pop()
            if not factor or any(p * factor != v for p, v in zip(product, values, strict=True)):
                continue
            made = parts[0]
            for part in parts[1:]:
                made = operation("*", made, part)
            if factor.numerator != 1:
                made = operation("*", made, factor.numerator)
            yield made if factor.denominator == 1 else operation("//", made, factor.denominator)


def _planes(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``a * s + b * t + c``."""
    for s, t in itertools.combinations(bases[:12], 2):
        rows = _solved(values, s.values, t.values)
        if rows is None:
            continue
        a, b, c = rows
        if not a or not b or any(a * x + b * y + c != v for x, y, v in zip(s.values, t.values, values, strict=True)):
            continue
        first, second = (operation("*", e, abs(k)) if abs(k) != 1 else e for e, k in ((s, a), (t, b)))
        if a < 0 < b:
            yield shifted(operation("-", second, first), c)
        elif a > 0:
            yield shifted(operation("+" if b > 0 else "-", first, second), c)


def _solved(values: Sequence[int], xs: Sequence[int], ys: Sequence[int]) -> tuple[int, int, int] | None:
    """Whole numbers a, b, c with ``a x + b y + c = v`` in three of the traces."""
    for i, j, k in itertools.combinations(range(len(values)), 3):
        x1, x2, y1, y2 = xs[j] - xs[i], xs[k] - xs[i], ys[j] - ys[i], ys[k] - ys[i]
        v1, v2 = values[j] - values[i], values[k] - values[i]
        determinant = x1 * y2 - x2 * y1
        if not determinant:
            continue
        a, b = Fraction(v1 * y2 - v2 * y1, determinant), Fraction(x1 * v2 - x2 * v1, determinant)
        if a.denominator != 1 or b.denominator != 1:
            return None
        return int(a), int(b), int(values[i] - a * xs[i] - b * ys[i])
    return None


def _shifted_products(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``s * t * c + d``."""
    for s, t in itertools.combinations_with_replacement(bases[:12], 2):
        product = operation("*", s, t)
        yield from _affine(values, [product])


def _float(values: tuple[Any, ...], symbols: Sequence[Expression], near: Sequence[Expression]) -> Expression | None:
    """A number made of a size as programs do: as it is, its root, or what is divided by either."""
    pairs = [operation("*", s, t) for s, t in itertools.combinations_with_replacement((*symbols, *near)[:8], 2)]
    for base in (*symbols, *near):
        if base.values == values and isinstance(base.values[0], float):
            return base
    for base in (*symbols, *near, *pairs):
        sizes = base.values
        for name, function in _FLOATS.items():
            try:
                made = [function(x) for x in sizes]
            except (ZeroDivisionError, ValueError):
                continue
            if tuple(made) == tuple(map(float, values)):
                return Expression((name, base), made, f"{name}({base.text})")
        rows = [*zip(values, sizes, strict=True)]
        for factor in dict.fromkeys(v / x for v, x in rows if x):
            if all(v == factor * x for v, x in rows):
                return Expression(("*", base, number(factor, len(sizes))), values, f"{base.shown}*{factor}")
        for factor in dict.fromkeys(v * x for v, x in rows if x):
            if all(x and v == factor / x for v, x in rows):
                return Expression(("/", number(factor, len(sizes)), base), values, f"{factor}/{base.shown}")
        found = _float_affine(rows, base) or _float_beside(rows, base)
        if found is not None:
            return found
    return None


def _float_beside(rows: Sequence[tuple[Any, Any]], base: Expression) -> Expression | None:
    """``c / (x - 1)`` or ``c / (x + 1)``, as of deviations."""
    if not all(math.isfinite(v) for v, _ in rows):
        return None
    for by in (-1, 1):
        for factor in dict.fromkeys(round(v * (x + by)) for v, x in rows):
            if factor and all(x + by and v == factor / (x + by) for v, x in rows):
                divisor = shifted(base, by)
                shown = f"{factor}/({divisor.text})"
                return Expression(("/", number(factor, len(rows)), divisor), [v for v, _ in rows], shown)
    return None


def _float_affine(rows: Sequence[tuple[Any, Any]], base: Expression) -> Expression | None:
    """``x + c``, ``c - x`` or ``a * x + c``: ``c`` shows where x is 0, and ``a`` where it is 1."""
    values, count = [v for v, _ in rows], len(rows)
    for c in dict.fromkeys(v - x for v, x in rows):
        if all(v == x + c for v, x in rows):
            return Expression(("+", base, number(c, count)), values, f"{base.shown}+{c}")
    for c in dict.fromkeys(v + x for v, x in rows):
        if all(v == c - x for v, x in rows):
            return Expression(("-", number(c, count), base), values, f"{c}-{base.shown}")
    c = next((v for v, x in rows if x == 0), None)
    one = next((v for v, x in rows if x == 1), None)
    if c is None or one is None or not all(v == (one - c) * x + c for v, x in rows):
        return None
    scaled = Expression(
        ("*", base, number(one - c, count)), [(one - c) * x for _, x in rows], f"{base.shown}*{one - c}"
    )
    return Expression(("+", scaled, number(c, count)), values, f"{scaled.text}+{c}")


_FLOATS: dict[str, Callable[[Any], float]] = {
    "float": float,
    "abs": lambda x: float(abs(x)),
    "sqrt": math.sqrt,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "power": lambda x: x**-0.5,
    "log": math.log,
}
