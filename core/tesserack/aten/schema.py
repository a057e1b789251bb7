"""Schemas of operators as objects: ``torch.ops.aten.add.Tensor._schema.arguments``."""

from __future__ import annotations

import ast
import functools
import re
from typing import Any, NamedTuple

__all__ = ["Argument", "FunctionSchema", "parse"]


class AliasInfo(NamedTuple):
    """That an argument or result shares memory: ``before_set`` names the memory, as in ``Tensor(a!)``."""

    before_set: set[str]
    is_write: bool


class Argument(NamedTuple):
    """One argument, or one result, of an operator."""

    name: str
    type: str
    default_value: Any
    kwarg_only: bool
    alias_info: AliasInfo | None
    has_default: bool

    def has_default_value(self) -> bool:
        """Whether the argument can be left out."""
        return self.has_default

    @property
    def is_write(self) -> bool:
        """Whether the operator writes to it."""
        return self.alias_info is not None and self.alias_info.is_write


class FunctionSchema:
    """The name, arguments and results of one overload; its text is that of the registry."""

    def __init__(self, name: str, overload_name: str, text: str) -> None:
        self.name, self.overload_name, self._text = name, overload_name, text
        head, _, results = text.partition("(")[2].rpartition(" -> ")
        self.arguments = [*_arguments(head[:-1])]
        single = not results.startswith("(")
        self.returns = [_argument(part, False) for part in _split(results if single else results[1:-1])]

    @property
    def is_mutable(self) -> bool:
        """Whether the operator writes to one of its arguments."""
        return any(argument.is_write for argument in self.arguments)

    def __str__(self) -> str:
        return f"{self.name}{'.' * bool(self.overload_name)}{self.overload_name}({self._text.partition('(')[2]}"

    __repr__ = __str__


def _split(text: str) -> list[str]:
    """The parts between commas that lie in no brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text + ","):
        depth += (character in "([") - (character in ")]")
        if character == "," and not depth:
            parts.append(text[start:index].strip())
            start = index + 1
    return [part for part in parts if part]


def _arguments(text: str) -> Any:
    keyword_only = False
    for part in _split(text):
        if part == "*":
            keyword_only = True
        else:
            yield _argument(part, keyword_only)


def _argument(text: str, keyword_only: bool) -> Argument:
    kind, _, rest = text.partition(" ")
    name, equals, default = rest.partition("=")
    alias = None
    if "(" in kind:
        mark = kind[kind.index("(") + 1 : kind.index(")")]
        alias = AliasInfo({mark.rstrip("!")}, mark.endswith("!"))
    value = _value(default) if equals else None
    if type(value) in (int, float) and (count := _COUNTED.search(kind)):
        value = [value] * int(count[1])  # one number stands for as many as there are dims
    return Argument(name, kind, value, keyword_only, alias, bool(equals))


_COUNTED = re.compile(r"\[(\d+)\]\??$")


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


@functools.cache
def parse(name: str, overload_name: str, text: str) -> FunctionSchema:
    """The schema object of a text such as ``"add(Operand self, Operand other, *, Scalar alpha=1) -> Tensor"``."""
    return FunctionSchema(name, overload_name, text)
