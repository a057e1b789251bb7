"""Statements of a program, one per node, and the values that their names stand for."""

from __future__ import annotations

import builtins
import enum
import importlib
import keyword
import math
import os
import re
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

import tesserack as ts
from tesserack.fx._naming import (
    RESERVED,
    Namespace,
    path_from_package,
    qualified_name,
    shown_package,
    type_name,
)
from tesserack.fx._wrapped import wrap
from tesserack.fx.node import Node, described, dtype_short
from tesserack.fx.tensor_type import TensorType

__all__ = ["INPLACE", "MAGIC", "REFLECTED", "Writer", "import_lines", "register_custom_builtin"]

REFLECTED = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}",
    "div": "{} / {}", "mod": "{} % {}", "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}",
    "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}", "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
MAGIC = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}",
    "pos": "+{}", "neg": "-{}", "invert": "~{}", **REFLECTED,
}  # fmt: skip
INPLACE = {
    f"i{name.rstrip('_')}": form.replace(" {}", "= {}", 1)
    for name, form in REFLECTED.items() if name not in ("div", "getitem")
}  # fmt: skip


class CustomBuiltin(NamedTuple):
    """A name that every program knows, and how it is imported."""

    import_str: str
    obj: Any


custom_builtins: dict[str, CustomBuiltin] = {}


def register_custom_builtin(name: str, import_str: str, obj: Any) -> None:
    """Let every program know a name."""
    custom_builtins[name] = CustomBuiltin(import_str, obj)
    RESERVED[name] = obj


register_custom_builtin("inf", "from math import inf", math.inf)
register_custom_builtin("nan", "from math import nan", math.nan)
register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
register_custom_builtin("device", "from tesserack import device", ts.device)
for _name in ("torch", "tesserack"):
    RESERVED[_name] = ts


def _common() -> dict[str, Any]:
    """The names that every program knows."""
    package = shown_package()
    return {
        **{name: builtin.obj for name, builtin in custom_builtins.items()},
        package: sys.modules.get(package, ts),
        "fx_pytree": importlib.import_module("tesserack.fx._pytree"),
        "pytree": importlib.import_module("tesserack.utils._pytree"),
    }


def import_lines(package: str) -> dict[str, str]:
    """How a text of its own imports the names that every program knows."""
    own = {name: re.sub(r"^from tesserack\b", f"from {package}", b.import_str) for name, b in custom_builtins.items()}
    trees = {"fx_pytree": "fx._pytree", "pytree": "utils._pytree"}
    return {
        **own,
        package: f"import {package}",
        **{name: f"import {package}.{place} as {name}" for name, place in trees.items()},
    }


class Writer:
    """Source text of nodes, and the values its names stand for."""

    def __init__(
        self, namespace: Namespace, root: str, verbose: bool, strides: bool, devices: bool, more_meta: list[str]
    ) -> None:
        self.namespace, self.root, self.verbose, self.more_meta = namespace, root, verbose, more_meta
        self.strides = strides or os.environ.get("FX_GRAPH_SHOW_STRIDE") == "1"
        self.devices = devices or os.environ.get("FX_GRAPH_SHOW_DEVICE") == "1"
        self.globals: dict[str, Any] = _common()
        for name, obj in self.globals.items():
            namespace.create_name(name, obj)
        self.parameters: list[str] = []
        self.returned = ""
        self.wrapped: dict[str, None] = {}
        self._summary = ""
        self._lines: list[str] = []

    def body(self, nodes: list[Node], output: Callable[[Any], str]) -> list[str]:
        """The statements, each with what is let go after it."""
        done = _last_readers(nodes)
        for number, node in enumerate(nodes):
            if self.verbose and node.op not in ("placeholder", "output"):
                self._comment(node)
            self._lines.append(f"# COUNTER: {number}\n")
            self._statement(node, output)
            if node.op != "placeholder":
                over = done.get(node, []) if node.op != "output" else []
                over = over if node.users or node.op == "output" else [*over, node]
                self._lines.append(f";  {' = '.join(map(repr, over))} = None\n" if over else "\n")
        return self._lines or ["pass\n"]

    def _statement(self, node: Node, output: Callable[[Any], str]) -> None:
        if node.op == "placeholder":
            default = f" = {self.value(node.args[0])}" if node.args else ""
            self.parameters.append(f"{node.target}{self._annotation(node)}{default}")
            name = node.target.replace("*", "")
            if name != repr(node):
                self._lines.append(f"{node!r} = {name}\n")
        elif node.op == "output":
            self.returned = f" -> {self.type(node.type)}" if node.type is not None else ""
            self._lines.append(output(node.args[0]))
        elif _is_operator(node, INPLACE):
            change = INPLACE[node.target.__name__].format(*map(self.value, node.args))
            self._lines.append(f"{change};  {node!r}{self._annotation(node)} = {self.value(node.args[0])}")
        else:
            self._lines.append(f"{node!r}{self._annotation(node)} = {self._call(node)}")

    def _call(self, node: Node) -> str:
        if node.op == "get_attr":
            return format_target(self.root, node.target)
        if node.op == "call_method":
            return f"{format_target(self.value(node.args[0]), node.target)}({self._args(node.args[1:], node.kwargs)})"
        if node.op == "call_module":
            return f"{format_target(self.root, node.target)}({self._args(node.args, node.kwargs)})"
        if _is_operator(node, MAGIC) and not node.kwargs:
            return MAGIC[node.target.__name__].format(*map(self.value, node.args))
        if node.target is getattr and len(node.args) == 2 and str(node.args[1]).isidentifier():
            return format_target(self.value(node.args[0]), node.args[1])
        name = self.global_name(qualified_name(node.target), node.target)
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(name)
        return f"{name}({self._args(node.args, node.kwargs)})"

    def _args(self, args: Any, kwargs: Any) -> str:
        return ", ".join([*map(self.value, args), *(f"{name} = {self.value(v)}" for name, v in kwargs.items())])

    # --- values ------------------------------------------------------------------------------------------------------

    def value(self, arg: Any) -> str:
        """A value as an expression."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            return f"{self.global_name(qualified_name(type(arg)), type(arg))}{self.value(tuple(arg))}"
        if isinstance(arg, tuple) and type(arg) is not ts.Size:
            return f"({', '.join(map(self.value, arg))}{',' * (len(arg) == 1)})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.value, arg))}]"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{self.value(k)}: {self.value(v)}" for k, v in arg.items()) + "}"
        if isinstance(arg, slice):
            return f"slice({', '.join(map(self.value, (arg.start, arg.stop, arg.step)))})"
        if isinstance(arg, enum.Enum):
            return f"{self.global_name(type(arg).__name__, type(arg))}.{arg.name}"
        return self._plain(arg)

    def _plain(self, arg: Any) -> str:
        if arg is ...:
            return "Ellipsis"
        if arg is None or isinstance(arg, (bool, int, float, complex, str, bytes, range, ts.Size, ts.device)):
            return repr(arg)
        if isinstance(arg, type):
            return self.type(arg)
        text = repr(arg)
        if callable(arg) and hasattr(arg, "__name__"):
            return self.global_name(_hint(arg), arg)
        if path_from_package(arg, text) is not None:  # a dtype, a layout
            return text
        return self.global_name(f"_{type(arg).__name__}", arg)

    def type(self, kind: Any) -> str:
        """A type, as an annotation has it."""
        if kind == ():
            return "()"
        text = type_name(kind)
        if isinstance(kind, types.UnionType) and "|" in text:
            return "|".join(map(self.type, typing.get_args(kind)))
        origin = getattr(kind, "__origin__", None)
        if origin is None:
            return self.global_name(text, kind)
        if isinstance(kind, typing._GenericAlias):  # type: ignore[attr-defined]  # typing.List, not list
            origin = _TYPING.get(origin, origin)
        name = self.global_name(type_name(origin), origin)
        inner = kind.__args__ if isinstance(kind, TensorType) else typing.get_args(kind)
        empty_tuple = not inner and origin in (tuple, tuple, typing.Tuple) and getattr(kind, "__args__", None) == ()  # noqa: UP006
        if empty_tuple and kind not in (tuple, typing.Tuple):  # noqa: UP006
            return f"{name}[()]"
        return f"{name}[{','.join(self._inner(item) for item in inner)}]" if inner else name

    def _inner(self, item: Any) -> str:
        return f"[{','.join(map(self.type, item))}]" if isinstance(item, list) else self.type(item)

    def global_name(self, hint: str, value: Any) -> str:
        """A name for a function, a type or another value that the text cannot spell."""
        if value is not ts.device:
            path = path_from_package(value, hint)
            if path is not None:
                return path
            if getattr(builtins, hint, None) is value:
                self.globals[hint] = value
                return hint
        name = self.namespace.create_name(hint, value)
        self.globals.setdefault(name, value)
        return name

    def wrap_name(self) -> str:
        """The name of :func:`tesserack.fx.wrap`."""
        return self.global_name(qualified_name(wrap), wrap)

    # --- annotations and comments ------------------------------------------------------------------------------------

    def _annotation(self, node: Node) -> str:
        if self.verbose:
            value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
            shape = getattr(value, "shape", None)
            if shape is not None and hasattr(value, "dtype"):
                return f': "{self._described(value)}"'
        return "" if node.type is None else f" : {self.type(node.type)}"

    def _described(self, value: Any) -> str:
        text = f"{dtype_short(value.dtype)}[{', '.join(map(str, value.shape))}]"
        if not isinstance(value, ts.Tensor) or value.layout is not ts.strided:
            return text
        whole = described(value).removeprefix(text)
        at = whole.index("]") + 1
        return text + (whole[:at] if self.strides else "") + (whole[at:] if self.devices else "")

    def _comment(self, node: Node) -> None:
        """Where the step comes from, once for steps of one line."""
        notes = ", ".join(f"{key}: {node.meta[key]}" for key in self.more_meta if key in node.meta)
        custom = {key: _short(value) for key, value in node.meta.get("custom", {}).items()}
        place = _innermost(node.stack_trace) or "No stacktrace found for following nodes"
        begin = f"# {notes} " if notes else ""
        text = f"\n{begin}#{f' Annotation: {custom}' if custom else ''} {place}\n"
        if text != self._summary:
            self._summary = text
            self._lines.append(text)


_TYPING = {list: typing.List, dict: typing.Dict, set: typing.Set, frozenset: typing.FrozenSet, tuple: typing.Tuple}  # noqa: UP006


def _is_operator(node: Node, known: dict[str, str]) -> bool:
    target = node.target
    return (
        node.op == "call_function"
        and getattr(target, "__module__", "") == "_operator"
        and target.__name__ in known
        and known[target.__name__].count("{}") == len(node.args)
    )


def _hint(value: Any) -> str:
    return "_lambda" if value.__name__ == "<lambda>" else qualified_name(value)


def _short(value: Any) -> Any:
    return f"{str(value)[:40]}..." if len(str(value)) > 40 else value


def _innermost(trace: str | None) -> str | None:
    """The last place that a stack trace names."""
    lines = (trace or "").strip().splitlines()
    for k in range(len(lines) - 1, -1, -1):
        words = lines[k].strip()
        if words.startswith("File "):
            file, number, *rest = words.removeprefix("File ").split(", ")
            code = lines[k + 1].strip() if k + 1 < len(lines) else ""
            name = rest[0].removeprefix("in ") if rest else "?"
            return f"File: {file.strip(chr(34))}:{number.removeprefix('line ')} in {name}, code: {code}"
    return None


def format_target(base: str, path: str) -> str:
    """An attribute by its dotted path, read by ``getattr`` where a part is no name.

    >>> format_target("self", "layers.0.weight")
    'getattr(self.layers, "0").weight'
    """
    for part in path.split("."):
        if part.isidentifier() and not keyword.iskeyword(part):
            base = f"{base}.{part}"
        else:
            shown = part.replace("\\", "\\\\").replace('"', '\\"')
            base = f'getattr({base}, "{shown}")'
    return base


def _last_readers(nodes: list[Node]) -> dict[Node, list[Node]]:
    """The nodes that each node is the last to read: they are let go there."""
    done: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for reader in reversed(nodes):
        for node in reader._input_nodes:
            if node not in seen:
                seen.add(node)
                done.setdefault(reader, []).append(node)
    return done
