"""Products with one matrix on the right, made one."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import tesserack as ts
from tesserack.fx._symbolic_trace import symbolic_trace
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes.tools_common import legalize_graph
from tesserack.fx.proxy import Proxy
from tesserack.nn.modules.module import Module

__all__ = ["are_nodes_independent", "may_depend_on", "merge_matmul", "split_result_tensors"]


def split_result_tensors(result: Any, inputs: list[Any]) -> Any:
    """The rows of a product, by the operands that they come from."""
    sizes = [0] * len(inputs) if isinstance(result, Proxy) else [x.shape[0] for x in inputs]
    return ts.split(result, sizes)


def may_depend_on(a: Node, b: Node, search_depth: int = 6) -> bool:
    """Whether one node may need another; True where that is too far to see."""
    if a is b:
        return True
    if not a.all_input_nodes:
        return False
    return search_depth == 0 or any(may_depend_on(read, b, search_depth - 1) for read in a.all_input_nodes)


def are_nodes_independent(nodes: list[Node]) -> bool:
    """Whether none of them needs another."""
    return not any(may_depend_on(a, b) or may_depend_on(b, a) for a, b in itertools.combinations(nodes, 2))


def merge_matmul(in_mod: Module) -> GraphModule:
    """A module with products that have one right operand computed as one, of their left operands one below another."""
    gm = symbolic_trace(in_mod)
    by_right: dict[Any, list[Node]] = {}
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is ts.matmul:
            right = node.args[1]
            by_right.setdefault(right.target if right.op == "get_attr" else right, []).append(node)
    for right, products in by_right.items():
        if len(products) > 1 and are_nodes_independent(products):
            _merge(gm, right, products)
            legalize_graph(gm)
    gm.recompile()
    gm.graph.lint()
    return gm


def _merge(gm: GraphModule, right: Any, products: list[Node]) -> None:
    lefts = [node.args[0] for node in products]
    graph = gm.graph
    output = graph.output_node()
    with graph.inserting_before(output):
        other = graph.get_attr(right) if isinstance(right, str) else right
        together = graph.call_function(ts.matmul, (graph.call_function(ts.cat, (lefts,)), other))
        rows = graph.call_function(split_result_tensors, (together, lefts))
        for k, node in enumerate(products):
            node.replace_all_uses_with(graph.call_function(operator.getitem, (rows, k)))
            graph.erase_node(node)
