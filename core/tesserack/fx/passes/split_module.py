"""A module in parts, each a submodule, with a program that calls them one after another."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg
from tesserack.fx.proxy import Proxy
from tesserack.nn.modules.module import Module

__all__ = ["Partition", "split_module"]


@compatibility(is_backward_compatible=True)
@dataclass
class Partition:
    """A part: its nodes, what it reads of other parts and of the whole's parameters, and what others read of it."""

    name: str
    submod_name: str = ""
    node_names: list[str] = field(default_factory=list)
    inputs: dict[str, None] = field(default_factory=dict)
    outputs: dict[str, None] = field(default_factory=dict)
    dependencies: dict[str, None] = field(default_factory=dict)
    dependents: dict[str, None] = field(default_factory=dict)
    graph: Graph = field(default_factory=Graph)
    environment: dict[Node, Node] = field(default_factory=dict)
    targets: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.submod_name = f"submod_{self.name}"

    def __repr__(self) -> str:
        return (
            f"name: {self.name},\n nodes: {self.node_names},\n inputs: {self.inputs},\n outputs: {self.outputs},\n "
            f"partitions depended on: {self.dependencies},\n partition dependents: {self.dependents}"
        )


def _read(module: Any, path: str) -> Any:
    for name in path.split("."):
        if not hasattr(module, name):
            raise AttributeError(f"Node target {path} not found!")
        module = getattr(module, name)
    return module


@dataclass
class _Options:
    qualname_map: dict[str, str] | None
    keep_order: bool
    keep_node_names: bool
    keep_input_names: bool
    tuple_return: bool


@compatibility(is_backward_compatible=True)
def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module whose submodules ``submod_0``, ``submod_1`` ... are the parts that the callback puts nodes into.

    Parts are called in an order that their values allow, with ``keep_original_order`` in that of their first nodes.
    ``qualname_map`` is filled with the old names of submodules by their new ones. Without ``keep_original_input_name``
    parameters of parts are called ``arg_0`` and so on; with ``tuple_return`` parts always return tuples.
    ``RuntimeError`` where parts would wait for each other.

    >>> from tesserack import fx
    >>> traced = fx.symbolic_trace(lambda x: (x + 1) * 2)
    >>> parts = split_module(traced, traced, lambda node: int(node.name == "mul"))
    >>> [name for name, _ in parts.named_children()], parts(3)
    (['submod_0', 'submod_1'], 8)
    """
    options = _Options(
        qualname_map, bool(keep_original_order), bool(keep_original_node_name), keep_original_input_name, tuple_return
    )
    splitting = _Splitting(m, options)
    splitting.assign(split_callback, partition_affix)
    order = splitting.ordered()
    for name in order:
        splitting.add_inputs(splitting.partitions[name])
    splitting.copy_nodes()
    made = splitting.put_together([*splitting.partitions] if options.keep_order else order)
    made.meta["partition_names"] = {partition.submod_name for partition in splitting.partitions.values()}
    return made


class _Splitting:
    def __init__(self, m: GraphModule, options: _Options) -> None:
        self.module, self.options = m, options
        self.partitions: dict[str, Partition] = {}
        self.of: dict[Node, str] = {}
        self.nodes = {node.name: node for node in m.graph.nodes}

    def assign(self, split_callback: Callable[[Node], Any], affix: str | None) -> None:
        """Put nodes into parts, and note which part reads which."""
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            number = split_callback(node)
            name = str(number) if affix is None else f"{affix}_{number}"
            self.of[node] = node._fx_partition = name
            self.partitions.setdefault(name, Partition(name)).node_names.append(node.name)
        for node in self.module.graph.nodes:
            for read in node.all_input_nodes if node.op not in ("placeholder", "get_attr") else ():
                self._note(read, node)

    def _note(self, read: Node, reader: Node) -> None:
        defined, used = self.of.get(read), self.of.get(reader)
        if defined == used:
            return
        if defined is not None:
            self.partitions[defined].outputs.setdefault(read.name)
        if used is not None:
            self.partitions[used].inputs.setdefault(read.name)
        if defined is not None and used is not None:
            self.partitions[defined].dependents.setdefault(used)
            self.partitions[used].dependencies.setdefault(defined)

    def ordered(self) -> list[str]:
        """The parts in an order in which they can run."""
        waiting = {name: {**partition.dependencies} for name, partition in self.partitions.items()}
        ready = [name for name, before in waiting.items() if not before]
        found: list[str] = []
        while ready:
            name = ready.pop()
            found.append(name)
            for dependent in self.partitions[name].dependents:
                waiting[dependent].pop(name)
                if not waiting[dependent]:
                    ready.append(dependent)
        if len(found) != len(self.partitions):
            raise RuntimeError("cycle exists between partitions!")
        return found

    def _is_module(self, node: Node) -> bool:
        return node.op == "get_attr" and isinstance(_read(self.module, node.target), Module)

    def add_inputs(self, partition: Partition) -> None:
        """Parameters of a part; modules that it reads are its own."""
        given: dict[str, None] = {}
        for name in sorted(partition.inputs, key=lambda name: self._is_module(self.nodes[name])):
            node = self.nodes[name]
            if self._is_module(node):
                made = partition.graph.get_attr(node.target)
                partition.targets[node.target] = _read(self.module, node.target)
            else:
                shown = name if self.options.keep_input_names else f"arg_{len(given)}"
                made = partition.graph.placeholder(shown, type_expr=node.type)
                given[name] = None
            made.meta = {**node.meta}
            partition.environment[node] = made
        partition.inputs = given

    def copy_nodes(self) -> None:
        """Each node in its part."""
        for node, name in self.of.items():
            partition = self.partitions[name]
            target = node.target
            if node.op == "call_module":
                target = target.replace(".", "_")
                partition.targets[target] = _read(self.module, node.target)
                if self.options.qualname_map is not None:
                    self.options.qualname_map[f"{partition.submod_name}.{target}"] = node.target
            args, kwargs = (map_arg(v, partition.environment.__getitem__) for v in (node.args, node.kwargs))
            shown = node.name if self.options.keep_node_names else None
            made = partition.graph.create_node(node.op, target, args, kwargs, shown, node.type)
            made.meta = {**node.meta}
            partition.environment[node] = made

    def put_together(self, order: list[str]) -> GraphModule:
        """The program that calls the parts."""
        graph, made = Graph(), dict[str, Node]()
        parts: dict[str, Any] = {}
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr") and not (node.op == "get_attr" and self.options.keep_order):
                self._outer(graph, node, made, parts)
        for name in order:
            partition = self.partitions[name]
            results = tuple(partition.environment[self.nodes[output]] for output in partition.outputs)
            single = len(results) == 1 and not self.options.tuple_return
            partition.graph.output(results[0] if single else results)
            parts[partition.submod_name] = GraphModule(partition.targets, partition.graph)
            for needed in partition.inputs:
                if needed not in made:
                    self._outer(graph, self.nodes[needed], made, parts)
            call = graph.call_module(partition.submod_name, tuple(made[needed] for needed in partition.inputs))
            for k, output in enumerate(partition.outputs):
                made[output] = call if single else Proxy(call)[k].node  # type: ignore[index]
        result = self.module.graph.output_node()
        for node in result.all_input_nodes:
            if node.name not in made:
                self._outer(graph, node, made, parts)
        graph.output(map_arg(result.args[0], lambda node: made[node.name]))
        return GraphModule(parts, graph)

    def _outer(self, graph: Graph, node: Node, made: dict[str, Node], parts: dict[str, Any]) -> None:
        if node.op == "get_attr":
            made[node.name] = graph.get_attr(node.target)
            parts[node.target] = _read(self.module, node.target)
        else:
            default = node.args[0] if node.args else inspect.Signature.empty
            name = node.name if self.options.keep_node_names else node.target
            made[node.name] = graph.placeholder(name, type_expr=node.type, default_value=default)
        made[node.name].meta = {**node.meta}
