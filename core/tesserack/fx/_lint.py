"""Whether a graph is a program: nodes in order, names once, targets that exist."""

from __future__ import annotations

from typing import Any

from tesserack.fx.node import Node, _legal_ops
from tesserack.nn.modules.module import Module

__all__ = ["lint"]


def lint(graph: Any) -> None:
    """``RuntimeError`` for the first fault."""
    names: set[str] = set()
    seen: set[Node] = set()
    for node in graph.nodes:
        if node.op not in _legal_ops:
            raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
        if node.graph is not graph:
            raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
        for read in node._input_nodes:
            _check_read(graph, node, read, seen)
        if node.name in names:
            raise RuntimeError(f"Node redefined name {node.name}!")
        seen.add(node)
        names.add(node.name)
    if graph.owning_module is not None:
        for node in graph.nodes:
            _check_target(graph.owning_module, node)


def _check_read(graph: Any, node: Node, read: Node, seen: set[Node]) -> None:
    if read.graph is not graph:
        raise RuntimeError(
            f"Argument '{read}' of Node '{node}' does not belong to this Graph, but was used as an argument! If you "
            f"are copying nodes from another graph, make sure to use ``arg_transform`` on node_copy() to remap values\n"
            f"{graph}"
        )
    if read not in seen:
        raise RuntimeError(
            f"Argument '{read}' of Node '{node}' was used before it has been defined! Please check that Nodes in the "
            f"graph are topologically ordered\n{graph}"
        )


def _check_target(root: Any, node: Node) -> None:
    wanted = "a Callable" if node.op == "call_function" else "a str"
    if (callable if node.op == "call_function" else lambda t: isinstance(t, str))(node.target) is False:
        kind = type(node.target).__name__
        raise ValueError(f"Node {node} target {node.target} has type {kind} but {wanted} is expected")
    if node.op not in ("get_attr", "call_module"):
        return
    found, path = root, ""
    for name in node.target.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {name} of {path}")
        if node.op == "call_module" and not isinstance(found, Module):
            raise RuntimeError(f"Node {node} target {node.target} {name} of {path} does not reference an nn.Module")
        path = f"{path}.{name}" if path else name
