"""What several passes need: names of targets, orders of nodes, groups that must stay together."""

from __future__ import annotations

import collections
import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tesserack import Tensor
from tesserack.fx._compatibility import compatibility
from tesserack.fx._naming import qualified_name
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node

__all__ = ["CALLABLE_NODE_OPS", "FxNetAccFusionsFinder", "get_acc_ops_name", "get_node_target",
           "is_node_output_tensor", "legalize_graph", "stable_topological_sort"]  # fmt: skip

Tensors = tuple[Tensor] | list[Tensor]
TensorOrTensors = Tensor | Tensors
NodeList = list[Node]
NodeSet = set[Node]
Names = list[str]
CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


@compatibility(is_backward_compatible=False)
def get_acc_ops_name(k: Any) -> str:
    """A class or function by module and name; ``acc_ops.`` for those of a module of such a name."""
    if isinstance(k, str):
        return k
    if "acc_ops" in (k.__module__ or ""):
        return f"acc_ops.{k.__name__}"
    return f"{(k.__module__ or '').replace('torch._ops', 'torch.ops')}.{k.__name__}"


@compatibility(is_backward_compatible=False)
def get_node_target(submodules: Mapping[str, Any], node: Node) -> str:
    """What a node calls, by name: the class of a module, ``_operator.add``, or the method."""
    assert node.op in CALLABLE_NODE_OPS, f"Expect op types of {', '.join(CALLABLE_NODE_OPS)}, but found {node.op}"
    if node.op == "call_module":
        module = submodules[node.target]
        return get_acc_ops_name(getattr(module, "_base_class_origin", type(module)))
    if node.op == "call_method":
        return str(node.target)
    if "acc_ops" in (getattr(node.target, "__module__", None) or ""):
        return f"acc_ops.{node.target.__name__}"
    return qualified_name(node.target)


@compatibility(is_backward_compatible=False)
def is_node_output_tensor(node: Node) -> bool:
    """Whether a node gives a tensor, as ``ShapeProp`` has noted."""
    kind = node.meta.get("type")
    return kind is not None and issubclass(kind, Tensor)


@compatibility(is_backward_compatible=False)
class FxNetAccFusionsFinder:
    """Groups of supported nodes that hand each other what are no tensors: they stay together or are not taken."""

    @dataclass
    class FusionGroup:
        """A group, the place of its first node, what it reads, and its nodes that are to be looked at."""

        top_node_idx: int
        nodes: NodeSet
        inputs: NodeSet
        nodes_need_process: NodeSet

        def add_node(self, node: Node) -> None:
            """Take a node in."""
            if node in self.nodes:
                return
            self.nodes_need_process.add(node)
            self.nodes.add(node)
            self.inputs.discard(node)
            self.inputs.update(n for n in node.all_input_nodes if n.op in CALLABLE_NODE_OPS and n not in self.nodes)

    def __init__(self, module: GraphModule, acc_nodes: NodeSet) -> None:
        self.module, self.acc_nodes = module, acc_nodes
        self.nodes = [*module.graph.nodes]
        self.node_index = {node: k for k, node in enumerate(self.nodes)}

    def recursive_add_node(self, group: FusionGroup, inputs: Any, visited: NodeSet | None = None) -> bool:
        """Take in all nodes on ways from the group to these inputs; whether there are any."""
        visited = set() if visited is None else visited
        for node in inputs:
            if node in visited:
                continue
            visited.add(node)
            if node.op not in CALLABLE_NODE_OPS or self.node_index[node] < group.top_node_idx:
                continue
            if node in group.nodes:
                return True
            if self.recursive_add_node(group, node.all_input_nodes, visited):
                group.add_node(node)
                return True
        return False

    def __call__(self) -> dict[Node, NodeSet]:
        found: dict[Node, NodeSet] = {}
        for node in sorted(self.acc_nodes):
            if node in found or node.op not in CALLABLE_NODE_OPS or "tensor_meta" in node.meta:
                continue
            if node not in self.acc_nodes:
                continue
            group = self.FusionGroup(self.node_index[node], {node}, {*node.all_input_nodes}, {node})
            while group.nodes_need_process:
                self._grow(group, group.nodes_need_process.pop())
            if group.nodes <= self.acc_nodes:
                found.update(dict.fromkeys(group.nodes, group.nodes))
            else:
                self.acc_nodes -= group.nodes
        return found

    def _grow(self, group: FusionGroup, node: Node) -> None:
        self.recursive_add_node(group, [*group.inputs])
        users = node.users if "tensor_meta" not in node.meta else ()
        inputs = [n for n in node.all_input_nodes if "tensor_meta" not in n.meta]
        for other in (*users, *inputs):
            if other.op in CALLABLE_NODE_OPS and other not in group.nodes:
                group.add_node(other)
                if other in inputs:
                    group.top_node_idx = min(group.top_node_idx, self.node_index[other])
                self.recursive_add_node(group, [*group.inputs])


def _reordered(gm: GraphModule, order: list[Node]) -> GraphModule:
    """The module with its nodes in another order."""
    if len(order) != len(gm.graph.nodes):
        left = {*gm.graph.nodes} - {*order}
        raise RuntimeError(f"Input graph has cycles, unable to add {[node for node in gm.graph.nodes if node in left]}")
    for node in order:
        gm.graph._root.prepend(node)
    gm.recompile()
    return gm


@compatibility(is_backward_compatible=False)
def legalize_graph(gm: GraphModule) -> GraphModule:
    """Put the nodes of a module in an order in which they can run. ``RuntimeError`` for a cycle."""
    waiting = {node: len(node.all_input_nodes) for node in gm.graph.nodes}
    ready = collections.deque(node for node in gm.graph.nodes if not waiting[node])
    order: list[Node] = []
    while ready:
        node = ready.popleft()
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return _reordered(gm, order)


@compatibility(is_backward_compatible=False)
def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """:func:`legalize_graph`, where nodes that may stay in the order they are in do."""
    nodes = [*gm.graph.nodes]
    place = {node: k for k, node in enumerate(nodes)}
    waiting = {node: len(node.all_input_nodes) for node in nodes}
    ready = [k for k, node in enumerate(nodes) if not waiting[node]]
    order: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        order.append(node)
        for user in node.users:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, place[user])
    return _reordered(gm, order)
