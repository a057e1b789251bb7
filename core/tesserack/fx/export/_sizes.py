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

__all__ = ["Expression", "SymInt", "bounded", "find", "size", "symbol_text"]


class SymInt(int):
    """A size that varies: the number that it was in the example, shown as the expression that it is."""

    expression: str

    def __new__(cls, value: int, expression: str) -> SymInt:
        made = super().__new__(cls, value)
        made.expression = expression
        return made

    def __repr__(self) -> str:
        return self.expression

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(self.expression, spec) if not spec.endswith("d") else format(int(self), spec)

    def __reduce__(self) -> Any:
        return SymInt, (int(self), self.expression)


class Expression:
    """A number in every trace, and how it is made: ``("size", node, dim)``, ``("*", a, b)``, or a plain number."""

    def __init__(self, how: tuple[Any, ...], values: Sequence[Any], text: str, atom: bool = False) -> None:
        self.how, self.values, self.text = how, tuple(values), text
        self.shown = text if atom else f"({text})"

    def __repr__(self) -> str:
        return self.text


def size(node: Any, dim: int, values: Sequence[int], text: str) -> Expression:
    """A size of the value of a node."""
    return Expression(("size", node, dim), values, text, atom=True)


def symbol_text(expression: Expression) -> str:
    """The expression for people."""
    return expression.text


def _number(value: Any, count: int) -> Expression:
    return Expression(("number", value), [value] * count, str(value), atom=True)


_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "*": lambda a, b: a * b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "//": lambda a, b: a // b,
}


def _made(sign: str, a: Expression, b: Expression | int) -> Expression:
    other = b if isinstance(b, Expression) else _number(b, len(a.values))
    values = [_APPLY[sign](x, y) for x, y in zip(a.values, other.values, strict=True)]
    return Expression((sign, a, other), values, f"{a.shown}{sign}{other.shown}")


def _shifted(a: Expression, offset: int) -> Expression:
    return a if not offset else _made("+" if offset > 0 else "-", a, abs(offset))


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
    rounded = _rounded(values, symbols)
    if rounded is not None:
        return rounded
    for base in symbols:
        if any(v < 0 for v in base.values) and tuple(map(abs, base.values)) == values:
            return Expression(("abs", base), values, f"abs({base.text})", atom=True)
    symbols, near = ([e for e in given if isinstance(e.values[0], int)] for given in (symbols, near))
    for found in (*_affine(values, symbols), *_products(values, symbols), *_affine(values, near)):
        return found
    for found in (*_products(values, near), *_planes(values, symbols), *_divided(values, symbols)):
        return found
    for found in (*_planes(values, near), *_divided(values, near), *_shifted_products(values, near)):
        return found
    return None


def bounded(values: tuple[int, ...], bases: Sequence[Expression]) -> Expression | None:
    """The less, or the greater, of a size and a number or another size: where nothing else is these numbers."""
    bases = [base for base in bases if isinstance(base.values[0], int)]
    for name, function, farthest in (("min", min, max), ("max", max, min)):
        limits = [_number(farthest(values), len(values)), *bases]
        for base, limit in itertools.product(bases[:12], limits[:12]):
            if all(function(x, y) == v for x, y, v in zip(base.values, limit.values, values, strict=True)):
                return Expression((name, base, limit), values, f"{name}({base.text}, {limit.text})", atom=True)
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
            yield _shifted(_made("*", s, a) if a != 1 else s, b)
        else:
            yield _made("-", _number(b, len(values)), _made("*", s, -a) if a != -1 else s)


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
                made = _made("*", made, part)
            if factor.numerator != 1:
                made = _made("*", made, factor.numerator)
            yield made if factor.denominator == 1 else _made("//", made, factor.denominator)


def _planes(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``a * s + b * t + c``."""
    for s, t in itertools.combinations(bases[:12], 2):
        rows = _solved(values, s.values, t.values)
        if rows is None:
            continue
        a, b, c = rows
        if not a or not b or any(a * x + b * y + c != v for x, y, v in zip(s.values, t.values, values, strict=True)):
            continue
        first, second = (_made("*", e, abs(k)) if abs(k) != 1 else e for e, k in ((s, a), (t, b)))
        if a < 0 < b:
            yield _shifted(_made("-", second, first), c)
        elif a > 0:
            yield _shifted(_made("+" if b > 0 else "-", first, second), c)


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


def _divided(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``(s + b) // c + d``: sizes after strides and pooling."""
    for s in bases:
        for divisor in range(2, 65):
            start = divisor * values[0] - s.values[0]
            for offset in range(start, start + divisor):
                if all((x + offset) // divisor == v for x, v in zip(s.values, values, strict=True)):
                    shift = math.floor(offset / divisor) if offset < 0 else 0
                    yield _shifted(_made("//", _shifted(s, offset - shift * divisor), divisor), shift)
                    break


def _shifted_products(values: tuple[int, ...], bases: Sequence[Expression]) -> Iterator[Expression]:
    """``s * t * c + d``."""
    for s, t in itertools.combinations_with_replacement(bases[:12], 2):
        product = _made("*", s, t)
        yield from _affine(values, [product])


def _float(values: tuple[Any, ...], symbols: Sequence[Expression], near: Sequence[Expression]) -> Expression | None:
    """A number made of a size as programs do: as it is, its root, or what is divided by either."""
    pairs = [_made("*", s, t) for s, t in itertools.combinations_with_replacement((*symbols, *near)[:8], 2)]
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
                return Expression(("*", base, _number(factor, len(sizes))), values, f"{base.shown}*{factor}")
        for factor in dict.fromkeys(v * x for v, x in rows if x):
            if all(x and v == factor / x for v, x in rows):
                return Expression(("/", _number(factor, len(sizes)), base), values, f"{factor}/{base.shown}")
        found = _float_affine(rows, base)
        if found is not None:
            return found
    return None


def _float_affine(rows: Sequence[tuple[Any, Any]], base: Expression) -> Expression | None:
    """``x + c``, ``c - x`` or ``a * x + c``: ``c`` shows where x is 0, and ``a`` where it is 1."""
    values, count = [v for v, _ in rows], len(rows)
    for c in dict.fromkeys(v - x for v, x in rows):
        if all(v == x + c for v, x in rows):
            return Expression(("+", base, _number(c, count)), values, f"{base.shown}+{c}")
    for c in dict.fromkeys(v + x for v, x in rows):
        if all(v == c - x for v, x in rows):
            return Expression(("-", _number(c, count), base), values, f"{c}-{base.shown}")
    c = next((v for v, x in rows if x == 0), None)
    one = next((v for v, x in rows if x == 1), None)
    if c is None or one is None or not all(v == (one - c) * x + c for v, x in rows):
        return None
    scaled = Expression(
        ("*", base, _number(one - c, count)), [(one - c) * x for _, x in rows], f"{base.shown}*{one - c}"
    )
    return Expression(("+", scaled, _number(c, count)), values, f"{scaled.text}+{c}")


def _rounded(values: tuple[int, ...], bases: Sequence[Expression]) -> Expression | None:
    """An element of a tensor of floats as a whole number, which it may be a step from."""
    for base in bases:
        if not isinstance(base.values[0], float):
            continue
        for name, function in _WHOLE.items():
            try:
                made = [function(x) for x in base.values]
            except (OverflowError, ValueError):
                continue
            step = values[0] - made[0]
            if all(m + step == v for m, v in zip(made, values, strict=True)):
                return _shifted(Expression((name, base), made, f"{name}({base.text})", atom=True), step)
    return None


_WHOLE: dict[str, Callable[[Any], int]] = {
    "trunc": math.trunc, "round": round, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
_FLOATS: dict[str, Callable[[Any], float]] = {
    "float": float,
    "abs": lambda x: float(abs(x)),
    "sqrt": math.sqrt,
    "reciprocal": lambda x: 1 / x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "power": lambda x: x**-0.5,
    "log": math.log,
}
