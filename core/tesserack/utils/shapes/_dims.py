"""The text of a shape, ``"batch heads*dim 3 ..."``, as axes."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

__all__ = ["Axis", "Expression", "parse_shape"]

# What an expression of axes may be made of.
_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant, ast.Call),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow, ast.USub),
)
_FUNCTIONS = {"min": min, "max": max}
_HOLE = re.compile(r"\{([^{}]+)\}")
_WORD = re.compile(r"(?:\{[^{}]*\}|\S)+")


@dataclass(frozen=True)
class Expression:
    """Whole-number arithmetic over names of axes; ``{self.width}`` or ``{size[0]}`` is a value of arguments."""

    text: str
    source: str  # holes are _0, _1, ...
    code: CodeType
    names: tuple[str, ...]  # axes it needs
    holes: tuple[str, ...]  # expressions of arguments
    values: tuple[CodeType, ...]  # the same, to be evaluated

    def value(self, sizes: Mapping[str, int], arguments: Mapping[str, Any]) -> int | None:
        """Its size, or None where a name has none yet."""
        known: dict[str, Any] = {}
        for name in self.names:
            if name not in sizes:
                return None
            known[name] = sizes[name]
        for number, code in enumerate(self.values):
            known[f"_{number}"] = eval(code, {**arguments})
        return int(eval(self.code, {"__builtins__": {}, **_FUNCTIONS}, known))


@dataclass(frozen=True)
class Axis:
    """One word of a shape. ``kind``: ``name``, ``fixed``, ``expression``, or ``any`` for what may have every size."""

    text: str
    kind: str
    name: str = ""
    size: int = 0
    many: bool = False  # stands for any number of axes
    broadcast: bool = False  # may also be 1
    expression: Expression | None = None


@functools.lru_cache(maxsize=4096)
def parse_shape(text: str) -> tuple[Axis, ...]:
    """The axes that a text names.

    Raises:
        ValueError: a word is no axis, or more than one stands for any number of axes.

    >>> [axis.kind for axis in parse_shape("*batch heads dim+1 3 _")]
    ['name', 'name', 'expression', 'fixed', 'any']
    """
    axes = tuple(_axis(word, text) for word in _WORD.findall(text))
    if sum(axis.many for axis in axes) > 1:
        raise ValueError(f"shape {text!r}: expected one of `...` and `*name` at most")
    return axes


def _axis(word: str, text: str) -> Axis:
    if word == "...":
        return Axis(word, "any", many=True)
    rest, marks = word, set()
    while rest and rest[0] in "*#?_":
        marks.add(rest[0])
        rest = rest[1:]
    if "=" in rest.partition("{")[0]:  # a name before it is for the reader
        rest = rest.partition("=")[2]
    many, broadcast = "*" in marks, "#" in marks
    if marks & {"_", "?"}:
        return Axis(word, "any", many=many)
    if rest.isdigit() and not many:
        return Axis(word, "fixed", size=int(rest), broadcast=broadcast)
    if rest.isidentifier():
        return Axis(word, "name", name=rest, many=many, broadcast=broadcast)
    if many or not rest:
        raise ValueError(f"shape {text!r}: {word!r} is no axis; write a name, a number, `_`, `...`, `*name` or a sum")
    return Axis(word, "expression", broadcast=broadcast, expression=_expression(rest, text))


def _expression(word: str, text: str) -> Expression:
    holes: list[str] = []

    def numbered(match: re.Match[str]) -> str:
        holes.append(match[1])
        return f"_{len(holes) - 1}"

    source = _HOLE.sub(numbered, word)
    try:
        tree = ast.parse(source, mode="eval")
        values = tuple(compile(hole.strip(), "<shape>", "eval") for hole in holes)
    except SyntaxError:
        raise ValueError(f"shape {text!r}: {word!r} is no axis") from None
    nodes = [*ast.walk(tree)]
    for node in nodes:
        bad = not isinstance(node, _ALLOWED) or (isinstance(node, ast.Constant) and type(node.value) is not int)
        if bad or (isinstance(node, ast.Call) and getattr(node.func, "id", "") not in _FUNCTIONS):
            raise ValueError(f"shape {text!r}: {word!r} may hold names, whole numbers, + - * // % ** min max")
    known = {*_FUNCTIONS, *(f"_{number}" for number in range(len(holes)))}
    names = dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and node.id not in known)
    shown = re.sub(r"\{(?:self\.)?([^{}]+)\}", r"\1", word)
    return Expression(shown, source, compile(tree, "<shape>", "eval"), tuple(names), tuple(holes), values)
