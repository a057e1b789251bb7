"""Nodes by the function or module of the program that they come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.node import Node

__all__ = ["SourcePartition", "check_subgraphs_connected", "get_source_partitions"]


@compatibility(is_backward_compatible=False)
@dataclass
class SourcePartition:
    """The nodes that come of one call, what was called, what they read but parameters, what others read, and the
    nodes that read parameters.
    """

    nodes: list[Node]
    source: Any
    input_nodes: list[Node] = field(default_factory=list)
    output_nodes: list[Node] = field(default_factory=list)
    params: list[Node] = field(default_factory=list)


@compatibility(is_backward_compatible=False)
def get_source_partitions(
    graph: Graph, wanted_sources: list[Any], filter_fn: Callable[[Node], bool] | None = None
) -> dict[Any, list[SourcePartition]]:
    """The nodes that come of calls of these functions or classes of modules, call by call.

    Where they come from is in ``meta``: ``source_fn_stack``, ``torch_fn`` or ``nn_module_stack``. Calls are left out
    unless ``filter_fn`` holds for all their nodes.
    """
    found: dict[Any, dict[str, list[Node]]] = {}
    for node in graph.nodes:
        source = _source(node, wanted_sources)
        if source is not None:
            name, called = source
            found.setdefault(called, {}).setdefault(name, []).append(node)
    return {
        called: [
            _partition(nodes, called) for nodes in calls.values() if filter_fn is None or all(map(filter_fn, nodes))
        ]
        for called, calls in found.items()
    }


def _source(node: Node, wanted: list[Any]) -> tuple[str, Any] | None:
    """The name of the call that a node comes of, and what was called."""
    stack = node.meta.get("source_fn_stack")
    if stack is not None:
        name, called = stack[-1]
        return (name, called) if called in wanted else None
    if "torch_fn" in node.meta:
        name, called = node.meta["torch_fn"]
        short = called.split(".")[1]
        if short in wanted:
            return name, short
    modules = node.meta.get("nn_module_stack")
    if node.op != "call_function" or not modules:
        return None
    path, kind = [*modules.values()][-1]
    for source in wanted:
        if isinstance(source, type):
            whole = f"{source.__module__}.{source.__qualname__}"
            if issubclass(kind, source) if isinstance(kind, type) else kind == whole:
                return path, source
        elif kind == source:
            return path, source
    return None


def _partition(nodes: list[Node], called: Any) -> SourcePartition:
    inside = set(nodes)
    read = [arg for node in nodes for arg in node.args if isinstance(arg, Node)]
    inputs = dict.fromkeys(arg for arg in read if arg not in inside and arg.op != "get_attr")
    params = [node for node in nodes if node.op == "get_attr"]
    outputs = [n for n in nodes if n.op != "get_attr" and any(user not in inside for user in n.users)]
    return SourcePartition(nodes, called, [*inputs], outputs, params)


@compatibility(is_backward_compatible=False)
def check_subgraphs_connected(subgraph1: SourcePartition, subgraph2: SourcePartition) -> bool:
    """Whether a node of the second reads one of the first."""
    inside = set(subgraph2.nodes)
    return any(user in inside for node in subgraph1.nodes for user in node.users)
