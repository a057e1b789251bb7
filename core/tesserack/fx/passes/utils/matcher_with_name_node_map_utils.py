"""Finding a pattern whose nodes have names."""

from __future__ import annotations

from typing import Any

from tesserack.fx._codegen import PyTreeCodeGen
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes.utils.matcher_utils import InternalMatch, SubgraphMatcher
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["SubgraphMatcherWithNameNodeMap"]


def _split_to_graph_and_name_node_map(gm: GraphModule) -> tuple[GraphModule, dict[str, Node]]:
    """The pattern without the dict of names that it returns last, and that dict."""
    output, codegen = gm.graph.output_node(), gm.graph._codegen
    info = codegen.pytree_info if isinstance(codegen, PyTreeCodeGen) else None
    given = output.args[0] if info is None or info.out_spec is None else tree_unflatten(output.args[0], info.out_spec)
    *results, names = given
    assert isinstance(names, dict), (
        f"Expecting the input graph to have a dict output as the last element, got {type(names)}"
    )
    gm.graph.erase_node(output)
    leaves, spec = tree_flatten(results)
    gm.graph.output(tuple(leaves))
    if isinstance(codegen, PyTreeCodeGen) and info is not None:
        codegen.pytree_info = info._replace(out_spec=spec)
    gm.recompile()
    return gm, {**names}


@compatibility(is_backward_compatible=False)
class SubgraphMatcherWithNameNodeMap(SubgraphMatcher):
    """A matcher for a pattern that returns, last, a dict of nodes by name: matches have ``name_node_map``."""

    def __init__(self, pattern_gm: GraphModule, *args: Any, **options: Any) -> None:
        pattern_gm, self.name_node_map = _split_to_graph_and_name_node_map(pattern_gm)
        super().__init__(pattern_gm.graph, *args, **options)

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places, each with its nodes by name."""
        found = super().match(graph, node_name_match)
        for match in found:
            match.name_node_map.update({name: match.nodes_map[node] for name, node in self.name_node_map.items()})
        return found
