"""Numbers of an exported program as expressions of its sizes that vary."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["APPLY", "UNARY", "WHOLE", "Expression", "SymInt", "number", "operation", "shifted", "size", "symbol_text"]


# What makes whole numbers of others.
WHOLE: dict[str, Callable[[Any], int]] = {
    "trunc": math.trunc, "round": round, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
UNARY: dict[str, Callable[[Any], Any]] = {**WHOLE, "abs": abs}


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
        self.sure = False  # it is known, not found to fit

    def __repr__(self) -> str:
        return self.text


def size(node: Any, dim: int, values: Sequence[int], text: str) -> Expression:
    """A size of the value of a node."""
    return Expression(("size", node, dim), values, text, atom=True)


def symbol_text(expression: Expression) -> str:
    """The expression for people."""
    return expression.text


def number(value: Any, count: int) -> Expression:
    """The same number in that many traces."""
    return Expression(("number", value), [value] * count, str(value), atom=True)


APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "*": lambda a, b: a * b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "/": lambda a, b: a / b,
    "min": min,
    "max": max,
}


def operation(sign: str, a: Expression, b: Expression | int) -> Expression:
    """``a sign b``. ``ZeroDivisionError`` where it divides by 0 in a trace."""
    other = b if isinstance(b, Expression) else number(b, len(a.values))
    values = [APPLY[sign](x, y) for x, y in zip(a.values, other.values, strict=True)]
    if sign in ("min", "max"):
        return Expression((sign, a, other), values, f"{sign}({a.text}, {other.text})", atom=True)
    return Expression((sign, a, other), values, f"{a.shown}{sign}{other.shown}")


def shifted(a: Expression, offset: int) -> Expression:
    """``a`` and a number more, or less."""
    return a if not offset else operation("+" if offset > 0 else "-", a, abs(offset))
