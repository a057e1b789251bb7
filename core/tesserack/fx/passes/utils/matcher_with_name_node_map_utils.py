"""Finding a pattern whose nodes have names."""

from __future__ import annotations

from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _without_names(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """The pattern without the dict of names that it returns last, and that dict."""
    output = gm.graph.output_node()
    *results, names = output.args[0]
    assert isinstance(names, dict), (
        f"Expecting the input graph to have a dict output as the last element, got {type(names)}"
    )
    gm.graph.erase_node(output)
    gm.graph.output(tuple(results))
    gm.recompile()
    return gm, {**names}


@compatibility(is_backward_compatible=False)
class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A matcher for a pattern that returns, last, a dict of nodes by name: matches have ``name_node_map``."""

    def __init__(self, pattern_gm: GraphModule, *args: Any, **options: Any) -> None:
        pattern_gm, self.name_node_map = _without_names(pattern_gm)
        super().__init__(pattern_gm.graph, *args, **options)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places, each with its nodes by name."""
        found = super().match(graph, node_name_match)
        for match in found:
            match.name_node_map.update({name: match.nodes_map[node] for name, node in self.name_node_map.items()})
        return found
