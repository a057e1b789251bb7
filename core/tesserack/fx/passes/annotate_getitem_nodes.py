"""Types of items, from the types of what they are taken from."""

from __future__ import annotations

import operator
import typing
from typing import Any

import tesserack as ts
from tesserack.fx.graph import Graph

__all__ = ["annotate_getitem_nodes"]


def annotate_getitem_nodes(graph: Graph) -> None:
    """Give nodes that take an item of a tuple, list or named tuple of a known type the item's.

    >>> graph = Graph()
    >>> pair = graph.placeholder("pair", type_expr=tuple[int, str])
    >>> item = graph.call_function(operator.getitem, (pair, 1))
    >>> annotate_getitem_nodes(graph)
    >>> item.type
    <class 'str'>
    """
    for node in graph.nodes:
        if node.target is operator.getitem and len(node.args) == 2 and getattr(node.args[0], "type", None):
            found = _item(node.args[0].type, node.args[1])
            if found is not None:
                node.type = found


def _item(kind: Any, index: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is list:
        return inner[0] if inner else None
    if origin is tuple:
        if len(inner) == 2 and inner[1] is ...:
            return inner[0]
        assert len(inner) > index, f"Index {index} out of range for parameterized_types (len={len(inner)})"
        return inner[index]
    if hasattr(kind, "_fields") and kind is not ts.Tensor:
        return kind.__annotations__.get(kind._fields[index])
    return None
