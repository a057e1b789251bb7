"""What a traced program looks like: its graph, for printing and for walking through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import tesserack as ts

if TYPE_CHECKING:
    from tesserack import _native

__all__ = ["Graph", "IntType", "Node", "TensorType", "Value", "code_of"]


_SCALARS = {
    "float16": "Half", "float32": "Float", "float64": "Double", "bfloat16": "BFloat16", "complex64": "ComplexFloat",
    "complex128": "ComplexDouble", "uint8": "Byte", "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "bool": "Bool",
}  # fmt: skip


class TensorType(dict[str, Any]):
    """What a tensor was when it was traced: by name, and by PyTorch's methods."""

    def kind(self) -> str:
        """``"TensorType"``."""
        return "TensorType"

    def sizes(self) -> list[int]:
        """Its shape."""
        return [*self["shape"]]

    def strides(self) -> list[int]:
        """How far apart elements are."""
        return [*self["stride"]]

    def dim(self) -> int:
        """How many dims it has."""
        return len(self["shape"])

    def scalarType(self) -> str:
        """Its dtype as PyTorch's graphs call it: ``"Float"``."""
        name = str(self["dtype"]).rpartition(".")[2]
        return _SCALARS.get(name, name)

    def device(self) -> ts.device:
        """Where it was."""
        return ts.device(self["device"])

    def requires_grad(self) -> bool:
        """Whether it had gradients."""
        return bool(self["requires_grad"])


class IntType(str):
    """That of a whole number."""

    __slots__ = ()

    def kind(self) -> str:
        """``"IntType"``."""
        return "IntType"


class Value:
    """A tensor or a whole number of a graph."""

    def __init__(self, graph: Graph, index: int) -> None:
        self._graph, self.index = graph, index

    @property
    def _info(self) -> dict[str, Any]:
        return self._graph._native.value(self.index)

    def debugName(self) -> str:
        """The name that the text has, without ``%``."""
        return self._info.get("name") or str(self.index)

    def type(self) -> TensorType | IntType:
        """What it was when it was traced: dtype, shape, stride and device by name, or ``"int"``."""
        info = self._info
        return TensorType(info) if info["kind"] == "tensor" else IntType("int")

    def isCompleteTensor(self) -> bool:
        """Whether it is a tensor: of each all is known."""
        return bool(self._info["kind"] == "tensor")

    def node(self) -> Node | None:
        """The node that makes it; None for inputs and parameters."""
        producer = self._info["producer"]
        return None if producer is None else Node(self._graph, producer)

    def uses(self) -> list[Node]:
        """The nodes that take it."""
        return [n for n in self._graph._all() if any(v.index == self.index for v in n.inputs())]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and (self._graph, self.index) == (other._graph, other.index)

    def __hash__(self) -> int:
        return hash(self.index)

    def __repr__(self) -> str:
        return f"%{self.debugName()}"


class Node:
    """A call of an operator, or arithmetic on sizes."""

    def __init__(self, graph: Graph, index: int) -> None:
        self._graph, self.index = graph, index
        self._info: dict[str, Any] = graph._native.node(index)

    def kind(self) -> str:
        """``"aten::linear"``; ``"size::add"`` for arithmetic, ``"function::forward"`` before a custom function."""
        name: str = self._info["op"]
        if name.startswith(("size.", "function.")):
            return name.replace(".", "::")
        return f"aten::{name.partition('.')[0]}"

    @property
    def op(self) -> str:
        """The operator with its overload: ``"sum.dim"``."""
        return str(self._info["op"])

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments by name; tensors and traced numbers as :class:`Value`."""
        names = self._info["names"] or [str(k) for k in range(len(self._info["args"]))]
        return {name: self._shown(arg) for name, arg in zip(names, self._info["args"], strict=True)}

    def _shown(self, arg: Any) -> Any:
        if isinstance(arg, tuple) and arg and arg[0] == "%":
            return Value(self._graph, arg[1])
        return [self._shown(part) for part in arg] if isinstance(arg, list) else arg

    def _values(self, items: Any) -> Iterator[Value]:
        for item in items:
            if isinstance(item, list):
                yield from self._values(item)
            elif isinstance(item, tuple) and item and item[0] == "%":
                yield Value(self._graph, item[1])

    def inputs(self) -> list[Value]:
        """The values among its arguments."""
        return list(self._values(self._info["args"]))

    def outputs(self) -> list[Value]:
        """What it makes."""
        return list(self._values(self._info["results"]))

    def inputsSize(self) -> int:
        """How many values it is given."""
        return len(self.inputs())

    def outputsSize(self) -> int:
        """How many values it makes."""
        return len(self.outputs())

    def output(self) -> Value:
        """The only result."""
        (value,) = self.outputs()
        return value

    def parts(self) -> list[Node]:
        """Of an operator that is made of others: their calls."""
        return [n for n in self._graph._all(self.index + 1, self._info["end"]) if n._info["parent"] == self.index]

    def scopeName(self) -> str:
        """The path of the module that called it."""
        return self._info["module"] or ""

    def sourceRange(self) -> str:
        """The line of the program: ``"model.py:12"``."""
        return self._info["line"] or ""

    def __repr__(self) -> str:
        made = ", ".join(map(repr, self.outputs()))
        return f"{made} = {self._info['op']}({', '.join(map(repr, self.arguments.values()))})"


class Graph:
    """The graph of a traced program. ``str`` of it is text that a program reads, and people."""

    def __init__(self, native: _native._Graph) -> None:
        self._native = native

    def _all(self, first: int = 0, end: int | None = None) -> Iterator[Node]:
        return (Node(self, k) for k in range(first, self._native.num_nodes if end is None else end))

    def nodes(self) -> Iterator[Node]:
        """The calls as the program made them, in order."""
        return (n for n in self._all() if n._info["parent"] is None)

    def inputs(self) -> list[Value]:
        """What the program is given, then the parameters, buffers and other tensors that it found."""
        return [Value(self, v) for v in (*self._native.inputs, *self._native.captures)]

    def outputs(self) -> list[Value]:
        """What it gives."""
        return [Value(self, v) for v in self._native.outputs]

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        """The nodes of a kind, ``"aten::linear"``; parts of operators among them unless ``recurse=False``."""
        return [n for n in (self._all() if recurse else self.nodes()) if n.kind() == kind]

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        """The first node of a kind."""
        return next(iter(self.findAllNodes(kind, recurse)), None)

    def lint(self) -> None:
        """``RuntimeError`` where the graph is not well formed."""
        self._native.verify()

    def __str__(self) -> str:
        return str(self._native)

    __repr__ = __str__


def _literal(item: Any, names: dict[int, str]) -> str:
    if isinstance(item, Value):
        return names[item.index]
    if isinstance(item, list):
        return f"[{', '.join(_literal(part, names) for part in item)}]"
    return repr(item)


_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "div": "//", "mod": "%", "truediv": "/", "pow": "**"}
_ROUNDED = ("floor", "ceil", "trunc")


def _expression(node: Node, names: dict[int, str]) -> str:
    args = [_literal(arg, names) for arg in node.arguments.values()]
    if not node.op.startswith("size."):
        return f"torch.{node.op.partition('.')[0]}({', '.join(args)})"
    name = node.op[5:]
    if name in ("size", "numel"):
        return f"torch.{name}({', '.join(args)})"
    if name in _ROUNDED:
        return f"math.{name}({args[0]})"
    return f"{args[0]} {_SYMBOLS[name]} {args[1]}" if name in _SYMBOLS else f"{name}({', '.join(args)})"


def code_of(graph: Graph, name: str, arguments: list[str], captures: list[str]) -> str:
    """The program as Python would write it."""
    inputs = graph.inputs()
    count = len(graph._native.inputs)
    names = {v.index: text for v, text in zip(inputs[:count], arguments, strict=True)}
    names.update({v.index: text for v, text in zip(inputs[count:], captures, strict=True)})
    lines = [f"def {name}({', '.join(arguments)}):"]
    for node in graph.nodes():
        if node.op.startswith(("size.", "function.")) and not node.outputs():
            continue  # a guard
        made = node.outputs()
        for v in made:
            names.setdefault(v.index, f"_{v.index}")
        targets = ", ".join(names[v.index] for v in made)
        lines.append(f"  {targets + ' = ' if made else ''}{_expression(node, names)}")
    given = [names[v.index] for v in graph.outputs()]
    lines.append(f"  return {', '.join(given) if len(given) == 1 else '(' + ', '.join(given) + ')'}")
    return "\n".join(lines) + "\n"
