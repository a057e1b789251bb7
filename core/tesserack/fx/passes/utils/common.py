"""Parts of a graph as modules of their own."""

from __future__ import annotations

from collections.abc import Mapping

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.passes.utils.matcher_utils import SubgraphMatcher
from tesserack.nn.modules.module import Module

__all__ = ["HolderModule", "compare_graphs", "lift_subgraph_as_module"]


@compatibility(is_backward_compatible=False)
class HolderModule(Module):
    """A module that only holds others."""

    def __init__(self, d: Mapping[str, Module | None]) -> None:
        super().__init__()
        for name, module in d.items():
            self.add_module(name, module)


@compatibility(is_backward_compatible=False)
def lift_subgraph_as_module(
    gm: GraphModule, subgraph: Graph, comp_name: str = "", class_name: str = "GraphModule"
) -> tuple[GraphModule, dict[str, str]]:
    """A module that runs a graph made of nodes of another module's, with that one's parts; and how these are called
    in it, by their names there, below ``comp_name``.
    """
    holder = HolderModule({})
    names: dict[str, str] = {}
    for node in subgraph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        *parents, last = node.target.split(".")
        place, found = holder, gm
        for name in parents:
            if not hasattr(place, name):
                place.add_module(name, HolderModule({}))
            place, found = getattr(place, name), getattr(found, name)
        names[node.target] = f"{comp_name}.{node.target}"
        setattr(place, last, getattr(found, last))
    return GraphModule(holder, subgraph, class_name), names


@compatibility(is_backward_compatible=False)
def compare_graphs(left: Graph, right: Graph) -> bool:
    """Whether two graphs are the same program."""
    return bool(SubgraphMatcher(left, match_output=True, match_placeholder=True).match(right))
