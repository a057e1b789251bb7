"""Lines of arithmetic as C, numbers that are known computed beforehand, in double."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterable
from typing import Any

from tesserack_kernelgen.emit import real
from tesserack_kernelgen.kernel import Kernel

__all__ = ["Formula"]

_OPERATORS: dict[type[ast.AST], tuple[str, Any]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
    ast.Div: ("div", operator.truediv),
    ast.USub: ("neg", operator.neg),
}
_KNOWN: dict[str, Any] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "expm1")},
    "log": lambda a: math.log(a) if a else -math.inf,
    "pow": operator.pow,
}


class Formula:
    """Expressions over ``names``, each a number or C of type ``c``."""

    def __init__(self, kernel: Kernel, c: str, names: dict[str, Any]) -> None:
        self.kernel, self.c, self.names = kernel, c, names
        self._numbers: dict[float, str] = {}

    @staticmethod
    def mentions(expression: str, names: Iterable[str]) -> bool:
        """Whether any of the names occurs."""
        return not {*names}.isdisjoint(re.findall(r"[a-z_]\w*", expression))

    def of(self, expression: str) -> float | str:
        """A number where all is known, else C."""
        return self._of(ast.parse(expression.strip(), mode="eval").body)

    def text(self, expression: str) -> str:
        """As C in any case."""
        return self._text(self.of(expression))

    def _text(self, value: float | str) -> str:
        if isinstance(value, str):
            return value
        if value not in self._numbers:
            self._numbers[value] = self.kernel.number(value, self.c)
        return self._numbers[value]

    def _of(self, node: ast.AST) -> float | str:
        if isinstance(node, ast.Constant):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            known: float | str = self.names[node.id]
            return known
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._made(node.func.id, _KNOWN.get(node.func.id), [self._of(a) for a in node.args])
        if isinstance(node, ast.BinOp):
            return self._made(*_OPERATORS[type(node.op)], [self._of(node.left), self._of(node.right)])
        if isinstance(node, ast.UnaryOp):
            return self._made(*_OPERATORS[type(node.op)], [self._of(node.operand)])
        raise ValueError(f"a step's rule: expected arithmetic, got {ast.unparse(node)}")

    def _made(self, instruction: str, known: Any, operands: list[float | str]) -> float | str:
        if known and not any(isinstance(x, str) for x in operands):
            return float(known(*operands))
        return f"({real(instruction, self.c, [self._text(x) for x in operands])})"
