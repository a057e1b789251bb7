"""A module in parts by tags at its nodes."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from tesserack import nn
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.passes.tools_common import CALLABLE_NODE_OPS, is_node_output_tensor
from tesserack.fx.passes.utils.common import HolderModule, lift_subgraph_as_module
from tesserack.fx.proxy import Proxy

__all__ = ["Component", "getattr_recursive", "move_non_tensor_nodes_on_boundary", "setattr_recursive", "split_by_tags"]


@compatibility(is_backward_compatible=False)
def getattr_recursive(obj: Any, name: str) -> Any:
    """An attribute by its dotted path; None where there is none."""
    for part in name.split("."):
        members = obj._modules if isinstance(obj, nn.ModuleList) else None
        obj = members.get(part) if members is not None else getattr(obj, part, None)
        if obj is None:
            return None
    return obj


@compatibility(is_backward_compatible=False)
def setattr_recursive(obj: Any, attr: str, value: Any) -> None:
    """Set an attribute by its dotted path."""
    *parents, last = attr.split(".")
    for part in parents:
        obj = getattr(obj, part)
    setattr(obj, last, value)


@compatibility(is_backward_compatible=False)
@dataclass
class Component:
    """A part: its graph, place and name, what stands for what it reads, and what others read of it."""

    graph: Graph
    order: int
    name: str
    input_placeholders: list[Node] = field(default_factory=list)
    orig_inputs: list[Node] = field(default_factory=list)
    orig_outputs: list[Node] = field(default_factory=list)
    getattr_maps: dict[Node, Node] = field(default_factory=dict)
    constructor_args: list[str] = field(default_factory=list)
    gm: GraphModule | None = None


@compatibility(is_backward_compatible=False)
def split_by_tags(
    gm: GraphModule,
    tags: list[str],
    return_fqn_mapping: bool = False,
    return_tuple: bool = False,
    GraphModuleCls: type[GraphModule] = GraphModule,
) -> Any:
    """A module whose submodules, named by the tags, are the nodes with that ``tag``; called in the order of the tags.

    ``AssertionError`` where a node has no tag, or reads one of a later part. With ``return_fqn_mapping`` also the new
    names of submodules, by their old ones; with ``return_tuple`` parts always return tuples.
    """
    splitting = _Splitting(gm, tags)
    for node in gm.graph.nodes:
        splitting.add(node)
    if splitting.output is None:
        raise RuntimeError("Graph had no output node!")
    made, names = splitting.put_together(return_tuple, GraphModuleCls)
    return (made, names) if return_fqn_mapping else made


class _Splitting:
    def __init__(self, gm: GraphModule, tags: list[str]) -> None:
        self.gm = gm
        self.parts = {tag: Component(Graph(), order, str(tag)) for order, tag in enumerate(tags)}
        self.of: dict[Node, Component] = {}
        self.copies: dict[Node, Node] = {}  # in the parts
        self.outer: dict[Node, Node] = {}  # in the program that calls them
        self.graph = Graph()
        self.read_outside: dict[Node, None] = {}
        self.output: Node | None = None

    def add(self, node: Node) -> None:
        """A node in its part."""
        if node.op == "output":
            if self.output is not None:
                raise RuntimeError("Multiple output nodes in graph!")
            self.output = node
        elif node.op == "placeholder":
            self.outer[node] = self.graph.placeholder(node.name, type_expr=node.type)
            self.outer[node].meta = copy.copy(node.meta)
        elif node.op != "get_attr":
            assert hasattr(node, "tag"), f"Node does not have tag: {node.format_node()}"
            part = self.of[node] = self.parts[node.tag]
            latest = max((self.of[n].order for n in node.all_input_nodes if n in self.of), default=0)
            assert part.order >= latest, (
                f"Component {part.name} order must be >= max of its upstream components, order={part.order} and "
                f"max={latest}"
            )
            made = self.copies[node] = part.graph.node_copy(node, lambda read: self._inside(part, read))
            made.tag = node.tag

    def _inside(self, part: Component, read: Node) -> Node:
        if read.op == "get_attr":
            if read not in part.getattr_maps:
                part.getattr_maps[read] = part.graph.get_attr(read.target, type_expr=read.type)
                part.getattr_maps[read].meta = copy.copy(read.meta)
            return part.getattr_maps[read]
        if self.of.get(read) is part:
            return self.copies[read]
        if read not in part.orig_inputs:
            part.orig_inputs.append(read)
            part.input_placeholders.append(part.graph.placeholder(read.name, type_expr=read.type))
            part.input_placeholders[-1].meta = copy.copy(read.meta)
            self.read_outside[read] = None
        return part.input_placeholders[part.orig_inputs.index(read)]

    def put_together(self, return_tuple: bool, cls: type[GraphModule]) -> tuple[GraphModule, dict[str, str]]:
        """The program that calls the parts."""
        assert self.output is not None
        root = HolderModule({})
        for node in self.output.all_input_nodes:
            if node.op == "get_attr":
                self.outer[node] = self.graph.get_attr(node.name, type_expr=node.type)
                setattr(root, node.name, getattr_recursive(self.gm, node.target))
            else:
                self.read_outside[node] = None
        for node in self.read_outside:
            if node.op != "placeholder":
                self.of[node].orig_outputs.append(node)
        names: dict[str, str] = {}
        for part in self.parts.values():
            results = tuple(self.copies[node] for node in part.orig_outputs)
            single = len(results) == 1 and not return_tuple
            part.graph.output(results[0] if single else results)
            part.gm, found = lift_subgraph_as_module(self.gm, part.graph, part.name)
            names.update(found)
            root.add_module(part.name, part.gm)
            call = self.graph.call_module(part.name, tuple(self.outer[node] for node in part.orig_inputs))
            for k, node in enumerate(part.orig_outputs):
                self.outer[node] = call if single else Proxy(call)[k].node  # type: ignore[index]
        self.graph.output(map_arg(self.output.args[0], self.outer.__getitem__))
        self.graph._codegen = self.gm.graph._codegen
        return cls(root, self.graph), names


@compatibility(is_backward_compatible=False)
def move_non_tensor_nodes_on_boundary(subgraphs: list[Any]) -> None:
    """Put nodes of supported parts that give no tensors to one other part into that part, with what else they need."""
    of = {node: k for k, subgraph in enumerate(subgraphs) for node in subgraph.nodes}
    for number, subgraph in enumerate(subgraphs):
        if not subgraph.is_acc:
            continue
        queue = [n for n in subgraph.nodes if not is_node_output_tensor(n) and _targets(n, of) - {number}]
        seen: set[Node] = set()
        while queue:
            node = queue.pop(0)
            targets = _targets(node, of) - {number}
            if node in seen or of.get(node) != number or len(targets) != 1:
                continue
            seen.add(node)
            target = next(iter(targets))
            moving = _following(node, of, number, target)
            if moving is None:
                continue
            for each in moving:
                subgraph.nodes.remove(each)
                subgraphs[target].nodes.append(each)
                of[each] = target
            queue += [n for n in node.all_input_nodes if of.get(n) == number and not is_node_output_tensor(n)]


def _targets(node: Node, of: dict[Node, int]) -> set[int]:
    return {of[user] for user in node.users if user.op in CALLABLE_NODE_OPS and user in of}


def _following(node: Node, of: dict[Node, int], number: int, target: int) -> list[Node] | None:
    """The nodes of a part that must move with one; None where they reach yet another part."""
    found: dict[Node, None] = {}
    pending = [node]
    while pending:
        current = pending.pop()
        place = of.get(current)
        if current in found or place is None or place == target:
            continue
        if place != number:
            return None
        found[current] = None
        pending += [user for user in current.users if user.op in CALLABLE_NODE_OPS]
    return [*found]
