"""Targets replaced, and how large values are."""

from __future__ import annotations

from typing import Any, NamedTuple

import tesserack as ts
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.passes.shape_prop import ShapeProp, TensorMetadata

__all__ = ["get_size_of_all_nodes", "get_size_of_node", "get_tensor_meta", "replace_target_nodes_with", "size_bytes"]


@compatibility(is_backward_compatible=False)
def replace_target_nodes_with(
    fx_module: GraphModule, old_op: str, old_target: Any, new_op: str, new_target: Any
) -> None:
    """Have all nodes of one kind and target be of another."""
    graph = Graph()
    made: dict[Node, Node] = {}
    for node in fx_module.graph.nodes:
        if node.op == old_op and node.target == old_target:
            args, kwargs = (map_arg(value, lambda n: made[n]) for value in (node.args, node.kwargs))
            made[node] = graph.create_node(new_op, new_target, args, kwargs, node.name)
        else:
            made[node] = graph.node_copy(node, lambda n: made[n])
    fx_module.graph = graph


class size_bytes(NamedTuple):
    """What a node gives, and with the parameters it takes, in bytes."""

    output_size: int
    total_size: int


@compatibility(is_backward_compatible=False)
def get_size_of_all_nodes(fx_module: GraphModule, args: list[ts.Tensor] | None = None) -> None:
    """Note the sizes of all nodes, as ``size_bytes``, running the module on ``args`` if given."""
    if args is not None:
        ShapeProp(fx_module).propagate(*args)
    for node in fx_module.graph.nodes:
        if node.op != "output":
            node.size_bytes = get_size_of_node(fx_module, node)


@compatibility(is_backward_compatible=False)
def get_tensor_meta(node: Node) -> TensorMetadata:
    """What is noted of a node's tensor. ``RuntimeError`` if nothing is."""
    found = node.meta.get("tensor_meta")
    if not found:
        raise RuntimeError(
            f"Node {node} has no tensor metadata associated with it! Check that shape propagation has run."
        )
    return found  # type: ignore[no-any-return]


@compatibility(is_backward_compatible=False)
def get_size_of_node(fx_module: GraphModule, node: Node) -> size_bytes:
    """The sizes of one node."""
    meta = get_tensor_meta(node)
    output = meta.shape.numel()
    modules = dict(fx_module.named_modules()) if node.op == "call_module" else {}
    held = sum(p.numel() for p in modules[node.target].parameters()) if node.op == "call_module" else 0
    each = ts.tensor([], dtype=meta.dtype).element_size()
    return size_bytes(each * output, each * (output + held))
