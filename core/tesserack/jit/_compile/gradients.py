"""Whether gradients would flow through a graph as they do through the run that it was made from."""

from __future__ import annotations

import operator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.fx.graph import Graph
from tesserack.fx.node import Node, map_arg
from tesserack.jit._compile.errors import NotProved
from tesserack.jit._compile.whole import WholeCall
from tesserack.utils import _pytree as pytree

__all__ = ["check_gradients"]


def check_gradients(graph: Graph, values: dict[Node, Tensor], outputs: list[Node]) -> None:
    """``NotProved`` where a result requires gradients in the run and not in the graph, or the other way round.

    The graph runs on the meta device, where nothing is computed.
    """
    if not any(x.requires_grad for x in values.values()):
        return
    found: dict[Node, Any] = {}
    for node in graph.nodes:
        if isinstance(node.target, WholeCall):
            continue
        try:
            found[node] = (
                _outline(values[node]) if node.op != "call_function" or _of_whole(node) else _called(node, found)
            )
        except Exception as error:
            raise NotProved(f"{node.target} cannot be followed without data: {error}") from error
    for node in outputs:
        run, value = values[node], found[node]
        if run.requires_grad != value.requires_grad:
            has = "requires" if run.requires_grad else "does not require"
            raise NotProved(
                f"the result of {node.target} {has} gradients, unlike that of a step of a graph: they are switched "
                "on or off on the way, or a function has a gradient of its own"
            )


def _of_whole(node: Node) -> bool:
    """Whether it takes a result of a call that stands whole, which is as the run's was."""
    return node.target is operator.getitem and isinstance(getattr(node.args[0], "target", None), WholeCall)


def _outline(x: Tensor) -> Tensor:
    made = ts.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="meta")
    if x.requires_grad:
        made.requires_grad_()
    return made if x.is_leaf or not x.requires_grad else made.view_as(made)


def _called(node: Node, found: dict[Node, Any]) -> Any:
    args, kwargs = (map_arg(value, found.__getitem__) for value in (node.args, node.kwargs))
    if "device" in kwargs:
        kwargs = {**kwargs, "device": "meta"}
    elif not any(isinstance(x, Tensor) for x in pytree.tree_leaves((args, dict(kwargs)))):
        kwargs = {**kwargs, "device": "meta"}  # one that makes tensors
    return node.target(*_plain(args), **{k: _plain(v) for k, v in kwargs.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return tuple(_plain(item) for item in value) if type(value) is tuple else value
