"""The program that a graph's nodes stand for, as text."""

from __future__ import annotations

import builtins
import keyword
import math
import re
import sys
from collections.abc import Sequence
from typing import Any

from tesserack.fx.node import Node, map_arg, target_name

__all__ = ["Writer"]

# How functions of the module `operator` are spelled.
_SPELLED = {
    **{name: f"{{}} {sign} {{}}" for name, sign in {
        "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@",
        "and_": "&", "or_": "|", "xor": "^", "lshift": "<<", "rshift": ">>",
        "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    }.items()},
    "neg": "-{}", "pos": "+{}", "invert": "~{}", "getitem": "{}[{}]",
}  # fmt: skip


class Writer:
    """Source text of nodes, and the values its names stand for."""

    def __init__(self, root: str, taken: set[str], nodes: Sequence[Node]) -> None:
        self.root, self._taken = root, taken
        self.globals: dict[str, Any] = {}
        self._known: dict[int, str] = {}
        self._parameters: list[str] = []
        self._lines: list[str] = []
        self._returned = ""
        self._done = _last_readers(nodes)
        for node in nodes:
            self._add(node)

    def text(self) -> str:
        """The function ``forward``, of the form that PyTorch's graphs print."""
        head = f"def forward({', '.join([self.root, *self._parameters])}){self._returned}:"
        return "\n\n\n" + "\n".join([head, *(f"    {line}" for line in self._lines or ["pass"])]) + "\n    "

    def _add(self, node: Node) -> None:
        if node.op == "placeholder":
            self._placeholder(node)
        elif node.op == "output":
            self._lines.append(f"return {self._value(node.args[0])}")
            self._returned = f" -> {self._value(node.type)}" if node.type is not None else ""
        else:
            over = "".join(f"{name} = " for name in self._done.get(node, ()))
            self._lines.append(f"{node.name} = {self._call(node)}" + (f";  {over}None" if over else ""))

    def _placeholder(self, node: Node) -> None:
        stars = node.target[: len(node.target) - len(node.target.lstrip("*"))]
        kind = f" : {self._value(node.type)}" if node.type is not None else ""
        default = f" = {self._value(node.args[0])}" if node.args else ""
        self._parameters.append(f"{stars}{node.name}{kind}{default}")

    def _call(self, node: Node) -> str:
        if node.op == "get_attr":
            return self._path(node.target)
        args = [self._value(a) for a in node.args]
        named = [f"{k} = {self._value(v)}" for k, v in node.kwargs.items()]
        if node.op == "call_method":
            return f"{args[0]}.{node.target}({', '.join([*args[1:], *named])})"
        if node.op == "call_module":
            return f"{self._path(node.target)}({', '.join([*args, *named])})"
        return self._spelled(node, args, named) or f"{self._global(node.target)}({', '.join([*args, *named])})"

    def _spelled(self, node: Node, args: list[str], named: list[str]) -> str | None:
        """An operator or an attribute in Python's own form; None where it has none."""
        if named:
            return None
        if node.target is getattr:
            name = node.args[1] if len(args) == 2 else None
            plain = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
            return f"{args[0]}.{name}" if plain and isinstance(node.args[0], Node) else None
        form = _SPELLED.get(node.target.__name__) if target_name(node.target).startswith("operator.") else None
        return form.format(*args) if form and form.count("{}") == len(args) else None

    def _path(self, path: str) -> str:
        text = self.root
        for part in path.split("."):
            plain = part.isidentifier() and not keyword.iskeyword(part)
            text = f"{text}.{part}" if plain else f'getattr({text}, "{part}")'
        return text

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            return value.name
        if type(value) is tuple:
            inner = ", ".join(self._value(v) for v in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if type(value) is list:
            return f"[{', '.join(self._value(v) for v in value)}]"
        if type(value) is dict:
            return "{" + ", ".join(f"{self._value(k)}: {self._value(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({', '.join(self._value(v) for v in (value.start, value.stop, value.step))})"
        plain = value is None or value is ... or type(value) in (bool, int, str)
        if type(value) is float and not math.isfinite(value):
            self.globals.update(inf=math.inf, nan=math.nan)
            plain = True
        if plain or type(value) is float:
            return "..." if value is ... else repr(value)
        return self._global(value)

    def _global(self, value: Any) -> str:
        """A name for a function, a type or another value that the text cannot spell."""
        if id(value) not in self._known:
            self._known[id(value)] = self._dotted(value) or self._fresh(value)
        return self._known[id(value)]

    def _dotted(self, value: Any) -> str | None:
        """The path to a value from a package that is loaded, where there is one: ``torch.nn.functional.relu``."""
        named = callable(value) and hasattr(value, "__name__")
        text = target_name(value) if named else repr(value) if type(value).__module__ != "builtins" else ""
        first, *rest = text.split(".")
        if named and not rest:
            return first if getattr(builtins, first, None) is value and first not in self._taken else None
        if not re.fullmatch(r"\w+(\.\w+)+", text) or first in self._taken or first not in sys.modules:
            return None
        found: Any = sys.modules[first]
        for name in rest:
            found = getattr(found, name, None)
        if found is not value or self.globals.get(first, sys.modules[first]) is not sys.modules[first]:
            return None
        self.globals[first] = sys.modules[first]
        return text

    def _fresh(self, value: Any) -> str:
        base = re.sub(r"\W", "_", target_name(value)) if callable(value) else f"_{type(value).__name__}"
        name, number = base, 0
        while name in self.globals or name in self._taken or keyword.iskeyword(name) or hasattr(builtins, name):
            number += 1
            name = f"{base}_{number}"
        self.globals[name] = value
        return name


def _last_readers(nodes: Sequence[Node]) -> dict[Node, list[str]]:
    """The names that each node is the last to read, and its own if nothing reads it: they are let go there."""
    done: dict[Node, list[str]] = {}
    seen: set[Node] = set()
    for reader in reversed(nodes):

        def note(node: Node, reader: Node = reader) -> Node:
            if node not in seen:
                seen.add(node)
                done.setdefault(reader, []).append(node.name)
            return node

        map_arg(reader.args, note)
        map_arg(reader.kwargs, note)
        if not reader.users:
            done.setdefault(reader, []).append(reader.name)
    return done
