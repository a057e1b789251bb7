"""Graphs as text and back: JSON, a line for each node. What is read is checked, and names only known operators."""

from __future__ import annotations

import builtins
import json
import keyword
import math
import operator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.fake.fake_tensor import FakeTensor, FakeTensorMode
from tesserack.aten.higher_order import HigherOrderOperator, higher_order_operators
from tesserack.aten.missing import MissingNameError
from tesserack.aten.operators import OpOverload, namespace
from tesserack.fx.export._expression import SymInt
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.library import in_namespace
from tesserack.nn.modules.module import Module

__all__ = ["decode", "encode", "read_graph", "write_graph"]

_FUNCTIONS: dict[str, Any] = {
    **{f"operator.{name}": getattr(operator, name)
       for name in ("getitem", "add", "sub", "mul", "floordiv", "truediv", "pow", "mod", "neg", "abs",
                    "eq", "ne", "lt", "le", "gt", "ge")},
    "math.sqrt": math.sqrt,
    **{f"math.{name}": getattr(math, name) for name in ("log", "trunc", "floor", "ceil")},
    **{f"builtins.{name}": getattr(builtins, name) for name in ("float", "round", "min", "max")},
}  # fmt: skip
_NAMES = {function: name for name, function in _FUNCTIONS.items()}
_SPECIAL = {"memory_format": ts.memory_format, "layout": ts.layout}


# --- values ----------------------------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """An argument as JSON has it; nodes by their names."""
    if isinstance(value, Node):
        return {"node": value.name}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, list):
        return [encode(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    if isinstance(value, slice):
        return {"slice": [encode(part) for part in (value.start, value.stop, value.step)]}
    if isinstance(value, ts.dtype):
        return {"dtype": _name(value)}
    if isinstance(value, ts.device):
        return {"device": str(value)}
    for kind, cls in _SPECIAL.items():
        if isinstance(value, cls):
            return {kind: _name(value)}
    raise TypeError(f"export.save: expected numbers, text, dtypes and devices as arguments, got {type(value).__name__}")


def _name(value: Any) -> str:
    return str(value).rpartition(".")[2]


def decode(value: Any, nodes: dict[str, Node]) -> Any:
    """The argument again. ``ValueError`` for what :func:`encode` does not write."""
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, list):
        return [decode(item, nodes) for item in value]
    if not isinstance(value, dict) or len(value) != 1:
        raise ValueError(f"no argument is written as {value!r}")
    ((kind, content),) = value.items()
    if kind == "node":
        return nodes[content]
    if kind == "tuple":
        return tuple(decode(item, nodes) for item in content)
    if kind == "dict":
        return {decode(key, nodes): decode(item, nodes) for key, item in content}
    if kind == "slice":
        return slice(*(decode(part, nodes) for part in content))
    if kind == "float" and content in ("inf", "-inf", "nan"):
        return float(content)
    if kind == "complex":
        return complex(*content)
    if kind == "device":
        return ts.device(content)
    found = getattr(ts, content) if isinstance(content, str) and content.isidentifier() else None
    if isinstance(found, {"dtype": ts.dtype, **_SPECIAL}.get(kind, ())):
        return found
    raise ValueError(f"no argument is written as {value!r}")


# --- operators -------------------------------------------------------------------------------------------------------


def _target(target: Any) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, OpOverload):
        return f"{target.namespace}.{target.__name__}"
    if target in _NAMES:
        return _NAMES[target]
    raise TypeError(f"export.save: expected operators, got {target!r}")


def _operator(name: str) -> Any:
    """The operator of that name. ``ValueError`` if there is none."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    space, _, rest = name.partition(".")
    base, _, overload = rest.partition(".")
    if space == "higher_order" and rest in higher_order_operators():
        return higher_order_operators()[rest]
    if not base.isidentifier() or not overload.isidentifier():
        raise ValueError(f"no operator is called {name!r}")
    if space != "aten" and base not in in_namespace(space):
        raise ValueError(f"the operator {name!r} is not registered; import the package that defines it, then load")
    packet = getattr(namespace(space), base)
    try:
        packet._find()
    except MissingNameError as error:
        raise ValueError(str(error)) from None
    return getattr(packet, overload)


# --- values of nodes -------------------------------------------------------------------------------------------------


def _outline(value: Any) -> Any:
    if isinstance(value, Tensor):
        sizes = value._symbolic if isinstance(value, FakeTensor) and value._symbolic is not None else value.shape
        shape = [[int(n), n.expression] if isinstance(n, SymInt) else int(n) for n in sizes]
        strides = [int(n) for n in value.stride()]
        return {"tensor": [_name(value.dtype), shape, strides, str(value.device)]}
    if isinstance(value, SymInt):
        return {"size": [int(value), value.expression]}
    if isinstance(value, (list, tuple)):
        return {"values": [_outline(item) for item in value]}
    return {"number": value if isinstance(value, (int, float, bool, str)) else None}


def _value(outline: Any, mode: FakeTensorMode) -> Any:
    ((kind, content),) = outline.items()
    if kind == "tensor":
        dtype, shape, strides, device = content
        sizes = [n[0] if isinstance(n, list) else n for n in shape]
        meta = ts.empty_strided(sizes, strides, dtype=getattr(ts, dtype), device="meta")
        made = FakeTensor(mode, meta, ts.device(device))
        if any(isinstance(n, list) for n in shape):
            made._symbolic = tuple(SymInt(*n) if isinstance(n, list) else n for n in shape)
        return made
    if kind == "size":
        return SymInt(*content)
    return tuple(_value(item, mode) for item in content) if kind == "values" else content


# --- graphs ----------------------------------------------------------------------------------------------------------


def write_graph(module: GraphModule) -> dict[str, Any]:
    """A graph, and those that it holds, as JSON has them; each node is one line of text."""
    nodes = []
    for node in module.graph.nodes:
        line: dict[str, Any] = {"name": node.name, "op": node.op, "target": _target(node.target)}
        if node.args or node.kwargs:
            line["args"], line["kwargs"] = (
                [encode(a) for a in node.args],
                {k: encode(v) for k, v in node.kwargs.items()},
            )
        if node.meta.get("val") is not None and node.op != "output":
            line["val"] = _outline(node.meta["val"])
        if node.meta.get("stack_trace"):
            line["from"] = node.meta["stack_trace"]
        if node.meta.get("nn_module_stack"):
            line["modules"] = [[key, *value] for key, value in node.meta["nn_module_stack"].items()]
        nodes.append(json.dumps(line))
    inner = {name: write_graph(child) for name, child in module.named_children() if isinstance(child, GraphModule)}
    return {"nodes": [json.loads(line) for line in nodes], "graphs": inner}


def read_graph(content: dict[str, Any], mode: FakeTensorMode) -> tuple[Module, Graph]:
    """The graph again, and a module with those that it holds. ``ValueError`` for what is none."""
    root, graph = Module(), Graph()
    for name, inner in content["graphs"].items():
        if not name.isidentifier():
            raise ValueError(f"no graph is called {name!r}")
        root.add_module(name, GraphModule(*read_graph(inner, mode), name))
    nodes: dict[str, Node] = {}
    for line in content["nodes"]:
        op, name, target = line["op"], line["name"], line["target"]
        if op not in ("placeholder", "get_attr", "call_function", "output") or name in nodes:
            raise ValueError(f"no node is written as {line!r}")
        if (
            not str(name).isidentifier()
            or keyword.iskeyword(name)
            or (op in ("placeholder", "get_attr") and not str(target).isidentifier())
        ):
            raise ValueError(f"no node is called {name!r}, {target!r}")
        if op == "get_attr" and target not in root._modules:
            raise ValueError(f"the graph reads {target!r}, which it does not hold")
        args = tuple(decode(a, nodes) for a in line.get("args", ()))
        kwargs = {str(key): decode(value, nodes) for key, value in line.get("kwargs", {}).items()}
        made = graph.create_node(op, _operator(target) if op == "call_function" else target, args, kwargs, name=name)
        made.name = name
        nodes[name] = made
        _read_notes(made, line, mode)
    return root, graph


def _read_notes(node: Node, line: dict[str, Any], mode: FakeTensorMode) -> None:
    node.meta["val"] = _value(line["val"], mode) if "val" in line else None
    if "from" in line:
        node.meta["stack_trace"] = str(line["from"])
    if "modules" in line:
        node.meta["nn_module_stack"] = {str(key): (str(path), str(kind)) for key, path, kind in line["modules"]}
