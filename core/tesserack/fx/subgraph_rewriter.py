"""Replacing a part of a graph, wherever it occurs, by another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tesserack.fx._compatibility import compatibility
from tesserack.fx._symbolic_trace import symbolic_trace
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.nn.modules.module import Module

if TYPE_CHECKING:
    from tesserack.fx.passes.utils.matcher_utils import InternalMatch

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]

Filter = Callable[["InternalMatch", Graph, Graph], bool]


@compatibility(is_backward_compatible=True)
class Match(NamedTuple):
    """A place where the pattern was: the pattern's last node, and what its nodes stood for."""

    anchor: Node
    nodes_map: dict[Node, Node]


@compatibility(is_backward_compatible=False)
@dataclass
class ReplacedPatterns:
    """The same, with the nodes that are there now."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


@compatibility(is_backward_compatible=True)
def replace_pattern(
    gm: GraphModule, pattern: Callable[..., Any] | GraphModule, replacement: Callable[..., Any] | GraphModule
) -> list[Match]:
    """Put ``replacement`` wherever ``pattern`` occurs in a graph; both are functions of the same parameters.

    A parameter stands for any value. What is matched must be of use to nobody else but through the pattern's results,
    and places do not overlap. Returns where it was.

    >>> import tesserack as ts
    >>> traced = symbolic_trace(lambda x: ts.relu(x) + 1)
    >>> len(replace_pattern(traced, lambda x: ts.relu(x), lambda x: x.abs()))
    1
    >>> traced(ts.tensor([-2.0])).tolist()
    [3.0]
    """
    return [Match(found.anchor, found.nodes_map) for found in _replace_pattern(gm, pattern, replacement)]


@compatibility(is_backward_compatible=False)
def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Callable[..., Any] | Graph | GraphModule,
    replacement: Callable[..., Any] | Graph | GraphModule | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """:func:`replace_pattern` where all filters, given the match, the graph and the pattern, agree.

    ``replacement_callback`` makes the graph to put in for each place; with ``ignore_literals`` constants may differ.
    """
    return _replace_pattern(
        gm, pattern, replacement, match_filters, ignore_literals, replacement_callback, node_name_match
    )


def _graph_of(program: Any) -> Graph:
    if isinstance(program, Graph):
        return program
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _replace_pattern(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Any = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    from tesserack.fx.passes.utils.matcher_utils import SubgraphMatcher

    wanted, graph = _graph_of(pattern), gm.graph
    matcher = SubgraphMatcher(wanted, ignore_literals=ignore_literals)
    matches = matcher.match(graph, node_name_match=node_name_match)
    matches = [found for found in matches if all(rule(found, graph, wanted) for rule in match_filters or ())]
    assert replacement is not None or replacement_callback is not None, (
        "Must provide either a replacement GraphModule or a replacement callback"
    )
    common = _graph_of(replacement) if replacement_callback is None else None
    moved: dict[Node, Node] = {}  # results of places that were replaced, which later ones may read
    replaced = []
    for found in matches:
        other = common if common is not None else replacement_callback(found, graph, wanted)
        replaced.append(_replace(graph, wanted, other, found, moved))
    gm.recompile()
    if isinstance(replacement, Module):
        _take_parts(gm, replacement)
    return replaced


def _replace(
    graph: Graph, wanted: Graph, other: Graph, found: InternalMatch, moved: dict[Node, Node]
) -> ReplacedPatterns:
    parameters = [node for node in other.nodes if node.op == "placeholder"]
    assert len(parameters) == len(found.placeholder_nodes), (
        f"Placeholder count mismatch: {len(found.placeholder_nodes)} vs {len(parameters)}"
    )
    for place, node in [*found.nodes_map.items()]:
        if isinstance(node, Node) and node in moved and place.op == "placeholder":
            found.nodes_map[place] = moved[node]
    given = [moved.get(node, node) if isinstance(node, Node) else node for node in found.placeholder_nodes]
    found.placeholder_nodes = given
    values: dict[Node, Any] = dict(zip(parameters, given, strict=True))
    with graph.inserting_before(_place(graph, found)):
        copied = graph.graph_copy(other, values)
    results = [copied] if isinstance(copied, Node) else [*copied]
    assert len(found.returning_nodes) == len(results), (
        f"Returning nodes count mismatch: {len(found.returning_nodes)} vs {len(results)}"
    )
    for before, after in zip(found.returning_nodes, results, strict=True):
        before.replace_all_uses_with(after)
        moved[before] = after
    for node in reversed(wanted.nodes):
        if node.op not in ("placeholder", "output"):
            graph.erase_node(found.nodes_map[node])
    made = [node for node in values.values() if not any(node is known for known in given)]
    return ReplacedPatterns(found.anchors[0], found.nodes_map, made)


def _place(graph: Graph, found: InternalMatch) -> Node:
    """Before the first that reads a result; after the results where nothing does."""
    readers = {user for node in found.returning_nodes for user in node.users}
    first = next((node for node in graph.nodes if node in readers), None)
    if first is not None:
        return first
    return next(node for node in reversed(graph.nodes) if node in found.returning_nodes).next


def _take_parts(gm: GraphModule, replacement: Any) -> None:
    """Modules and tensors of the replacement that the graph now names. ``RuntimeError`` if neither has one."""
    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr") or _read(gm, node.target) is not None:
            continue
        value = _read(replacement, node.target)
        if value is None:
            raise RuntimeError(
                f'Attempted to create a "{node.op}" node during subgraph rewriting with target {node.target}, but the '
                "referenced attribute does not exist in the replacement GraphModule"
            )
        if isinstance(value, Module):
            gm.add_submodule(node.target, copy.deepcopy(value))
        else:
            _set(gm, node.target, copy.deepcopy(value))
    gm.graph.lint()


def _read(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _set(module: Any, path: str, value: Any) -> None:
    from tesserack.fx._submodules import place

    place(value, module, path)
