"""Sets of nodes of a graph, each made one call of a submodule."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes.tools_common import stable_topological_sort
from tesserack.fx.passes.utils._partitions import topo_sort, validate_partition
from tesserack.fx.passes.utils.common import lift_subgraph_as_module
from tesserack.fx.proxy import Proxy

__all__ = ["erase_nodes", "fuse_as_graphmodule", "fuse_by_partitions", "insert_subgm", "topo_sort",
           "validate_partition"]  # fmt: skip


@compatibility(is_backward_compatible=False)
def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: list[Node],
    module_name: str,
    partition_lookup_table: dict[Node, int | None] | Iterable[Node] | None = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """A module that does what some nodes do, given in order; the nodes that these read, and those that others read.

    ``AssertionError`` where they are not of this module, or cannot be one step.
    """
    for node in nodes:
        owner = node.graph.owning_module
        assert owner is gm, f"{node} doesn't belong to passed in graph module {type(gm).__name__}"
        assert not node._erased, f"{node} has been removed from owning graph"
    assert validate_partition(nodes), "Invalid partition, found dependency cycles"
    inside = set(partition_lookup_table if partition_lookup_table is not None else nodes)
    graph = Graph()
    inputs: dict[Node, Node] = {}
    copies: dict[Node, Node] = {}

    def remap(node: Node) -> Node:
        if node in inside:
            return copies[node]
        if node not in inputs:
            inputs[node] = graph.placeholder(node.name, type_expr=node.type)
            inputs[node].meta = copy.copy(node.meta)
        return inputs[node]

    for node in nodes:
        copies[node] = graph.node_copy(node, remap)
    read = [node for node in nodes if any(user not in inside for user in node.users)]
    results = tuple(copies[node] for node in read)
    graph.output(results if always_return_tuple or len(results) != 1 else results[0])
    graph.lint()
    made, _ = lift_subgraph_as_module(gm, graph, class_name=module_name)
    return made, tuple(inputs), tuple(read)


@compatibility(is_backward_compatible=False)
def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call a submodule where nodes were that do the same, and have its results read; the nodes stay, unread."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    if insertion_point is None:
        insertion_point = next((node for node in reversed(gm.graph.nodes) if node in orig_outputs), None)
        assert insertion_point is not None, (
            "Cannot determine insertion point: no insertion_point provided and orig_outputs is empty. Pass the last "
            "partition node as insertion_point."
        )
    with gm.graph.inserting_after(insertion_point):
        call = gm.graph.call_module(name, args=orig_inputs)
    if not orig_outputs:
        return gm
    with gm.graph.inserting_before(call.next):
        if len(orig_outputs) == 1 and not isinstance(sub_gm.graph.output_node().args[0], tuple):
            orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
            return gm
        for k, output in enumerate(orig_outputs):
            output.replace_all_uses_with(Proxy(call)[k].node, propagate_meta=True)  # type: ignore[index]
    call.meta["val"] = tuple(output.meta.get("val") for output in orig_outputs)
    return gm


@compatibility(is_backward_compatible=False)
def erase_nodes(gm: GraphModule, nodes: list[Node]) -> None:
    """Remove nodes, given in order."""
    for node in reversed(nodes):
        gm.graph.erase_node(node)


@compatibility(is_backward_compatible=False)
def fuse_by_partitions(
    gm: GraphModule,
    partitions: list[dict[Node, int | None]],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Make each set of nodes a call of a submodule, ``fused_0`` and so on, in the module given."""
    for number, partition in enumerate(partitions):
        nodes = topo_sort([*partition])
        made = fuse_as_graphmodule(gm, nodes, f"{prefix}{number}", partition, always_return_tuple=always_return_tuple)
        insert_subgm(gm, *made, nodes[-1])
        erase_nodes(gm, nodes)
    stable_topological_sort(gm)
    gm.graph.lint()
    return gm
