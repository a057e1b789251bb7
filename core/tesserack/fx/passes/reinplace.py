"""Writes in the place of new values, where nothing reads the old ones any more."""

from __future__ import annotations

import functools
from typing import Any

from tesserack import Tensor
from tesserack.aten.missing import MissingNameError
from tesserack.aten.operators import OpOverload, namespace
from tesserack.fx.export._functional import viewed, written
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes.fake_tensor_prop import FakeTensorProp

__all__ = ["reinplace"]


@functools.cache
def _in_place(target: Any) -> OpOverload | None:
    """The form of an operator that writes to its first argument; None if there is none."""
    if not isinstance(target, OpOverload) or target.namespace != "aten" or target._schema.is_mutable:
        return None
    packet = getattr(namespace("aten"), f"{target.overloadpacket.__name__}_")
    try:
        packet._find()
    except MissingNameError:
        return None
    found: OpOverload = getattr(packet, target._overloadname)
    schema = found._schema
    alike = [a.name for a in schema.arguments] == [a.name for a in target._schema.arguments]
    return found if alike and schema.arguments and schema.arguments[0].is_write else None


def _base(node: Node) -> Node:
    """Whose memory a node's value is."""
    while True:
        source = viewed(node)
        if source is None:
            own = written(node)
            source = own[0] if own else None
        if source is None:
            return node
        node = source


def _same_outline(one: Any, other: Any) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return False
    same = tuple(one.shape) == tuple(other.shape) and one.dtype is other.dtype and one.device == other.device
    return same and one.numel() > 0 and all(n == 1 or step for n, step in zip(one.shape, one.stride(), strict=True))


def _held(gm: GraphModule) -> set[Node]:
    """Memory that is the caller's: of inputs, and of what the module holds."""
    return {node for node in gm.graph.nodes if node.op in ("placeholder", "get_attr")}


def reinplace(gm: GraphModule, *sample_args: Any) -> GraphModule:
    """Have steps write to their first argument where neither the caller nor a later step sees it: the graph itself.

    ``sample_args`` are arguments like those to come, of which nothing but the outlines is used.

    >>> import tesserack as ts
    >>> from tesserack.fx.experimental.proxy_tensor import make_fx
    >>> gm = make_fx(lambda x: x.clone().add(1).mul(2))(ts.ones(3))
    >>> [str(node.target) for node in reinplace(gm, ts.ones(3)).graph.nodes][1:-1]
    ['aten.clone.default', 'aten.add_.Tensor', 'aten.mul_.Tensor']
    """
    FakeTensorProp(gm).propagate(*sample_args)
    order = {node: k for k, node in enumerate(gm.graph.nodes)}
    held = _held(gm)
    for node in gm.graph.nodes:
        target = _in_place(node.target) if node.op == "call_function" else None
        first = node.args[0] if node.args else None
        if target is None or not isinstance(first, Node) or not _same_outline(first.meta["val"], node.meta["val"]):
            continue
        memory = [other for other in order if _base(other) is _base(first)]
        others = [source for source in node.all_input_nodes if source is not first]
        if _base(first) in held or any(_base(other) is _base(first) for other in others):
            continue
        if all(order[user] <= order[node] for other in memory for user in other.users):
            node.target = target
    gm.recompile()
    return gm
