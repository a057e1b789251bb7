"""One graph of a forward and a backward pass as two, the first of which gives the second what it needs."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node

__all__ = ["parted"]


def parted(joint: GraphModule, inputs: int, outputs: int) -> tuple[GraphModule, GraphModule, list[int | None]]:
    """The forward and the backward graph of a joint one, whose first ``inputs`` arguments are those of the forward
    pass, the others the gradients of its results, and whose first ``outputs`` results are those of the forward pass.

    The forward graph gives what it saves behind its results; the backward graph takes that, then gradients. The list
    tells for each saved value which input it is, or None.
    """
    nodes = [*joint.graph.nodes]
    given = [node for node in nodes if node.op == "placeholder"]
    results = [*nodes[-1].args[0]]
    own, gradients = results[:outputs], results[outputs:]
    first = _needed([*own, *(node for node in nodes if node.op == "call_function" and node.is_impure())])
    first |= {node for node in nodes if node.target is operator.getitem and node.args[0] in first}
    second = _needed(gradients) - first
    saved = [
        node
        for node in nodes
        if node.op != "get_attr"
        and (node in first or node in given[:inputs])
        and (any(user in second and user.op != "placeholder" for user in node.users) or node in gradients)
    ]
    places = [given.index(node) if node in given else None for node in saved]
    forward = _graph(joint, given[:inputs], [n for n in nodes if n in first and n.op != "placeholder"], [*own, *saved])
    within = [node for node in nodes if node in second and node.op != "placeholder"]
    within = [node for node in nodes if node.op == "get_attr" and node not in within] + within
    backward = _graph(joint, [*saved, *given[inputs:]], within, gradients)
    return forward, backward, places


def _needed(wanted: Iterable[Any]) -> set[Node]:
    """The nodes that these are computed from, with them."""
    found: set[Node] = set()
    pending = [node for node in wanted if isinstance(node, Node)]
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending += node.all_input_nodes
    return found


def _graph(joint: GraphModule, given: list[Node], steps: list[Node], results: list[Any]) -> GraphModule:
    graph, made = Graph(), dict[Node, Node]()
    for node in given:
        made[node] = graph.placeholder(node.name)
        made[node].meta = node.meta.copy()
    for node in steps:
        made[node] = graph.node_copy(node, made.__getitem__)
    graph.output(tuple(made[item] if isinstance(item, Node) else item for item in results))
    for node in [n for n in graph.nodes if n.op == "get_attr" and not n.users]:
        graph.erase_node(node)
    return GraphModule(joint, graph)
