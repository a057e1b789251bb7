"""Replacing a part of a graph, wherever it occurs, by another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tesserack.fx._symbolic_trace import symbolic_trace
from tesserack.fx.graph import Graph
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node, map_arg

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A place where the pattern was: the node of its result, and the nodes that its nodes stood for."""

    anchor: Node
    nodes_map: dict[Node, Node]


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
    wanted, other = _graph_of(pattern), _graph_of(replacement)
    parameters = [[n for n in graph.nodes if n.op == "placeholder"] for graph in (wanted, other)]
    if len(parameters[0]) != len(parameters[1]):
        raise RuntimeError(f"replace_pattern: expected as many parameters in the replacement as in the pattern, got "
                           f"{len(parameters[1])} and {len(parameters[0])}")  # fmt: skip
    matches = _matches(gm.graph, wanted)
    moved: dict[Node, Node] = {}  # results of matches that were replaced, which later ones may read
    for match in matches:
        inputs = [match.nodes_map[p] for p in parameters[0]]
        inputs = [moved.get(node, node) for node in inputs]
        moved.update(_replace(gm.graph, wanted, other, match, dict(zip(parameters[1], inputs, strict=True))))
    if matches:
        _take_parts(gm, replacement, other)
        gm.graph.lint()
        gm.recompile()
    return matches


def _graph_of(program: Any) -> Graph:
    if isinstance(program, Graph):
        return program
    return program.graph if isinstance(program, GraphModule) else symbolic_trace(program).graph


def _results(graph: Graph) -> list[Node]:
    return graph.output_node().all_input_nodes


def _matches(graph: Graph, pattern: Graph) -> list[Match]:
    results = _results(pattern)
    if not results or any(node.op == "placeholder" for node in results):
        raise RuntimeError("replace_pattern: expected a pattern that returns values it computes")
    found: list[Match] = []
    taken: set[Node] = set()
    for node in graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        nodes = next(_extended(graph, results, node), None)
        if nodes is None:
            continue
        inside = {g for p, g in nodes.items() if p.op != "placeholder"}
        if inside & taken or not _contained(nodes, inside, set(results)):
            continue
        taken |= inside
        found.append(Match(nodes[results[0]], nodes))
    return found


def _extended(graph: Graph, results: list[Node], node: Node) -> Iterator[dict[Node, Node]]:
    """The ways in which the first result is ``node``: other results may be anywhere."""
    nodes: dict[Node, Node] = {}
    if not _same(results[0], node, nodes):
        return
    pending = [nodes]
    for result in results[1:]:
        longer = []
        for partial in pending:
            for candidate in [partial[result]] if result in partial else graph.nodes:
                extended = dict(partial)
                if _same(result, candidate, extended):
                    longer.append(extended)
        pending = longer
    yield from pending


def _same(wanted: Any, given: Any, nodes: dict[Node, Node]) -> bool:
    """Whether a value of the pattern is one of the graph, with what stands for what noted in ``nodes``."""
    if isinstance(wanted, Node):
        if not isinstance(given, Node):
            return False
        if wanted in nodes:
            return nodes[wanted] is given
        if wanted.op != "placeholder":
            alike = (wanted.op, wanted.target) == (given.op, given.target)
            if not alike or not _same((wanted.args, wanted.kwargs), (given.args, given.kwargs), nodes):
                return False
        nodes[wanted] = given
        return True
    if isinstance(wanted, (tuple, list)):
        sized = isinstance(given, (tuple, list)) and len(given) == len(wanted)
        return sized and all(_same(a, b, nodes) for a, b in zip(wanted, given, strict=True))
    if isinstance(wanted, dict):
        keyed = isinstance(given, dict) and given.keys() == wanted.keys()
        return keyed and all(_same(value, given[key], nodes) for key, value in wanted.items())
    if isinstance(wanted, slice):
        return isinstance(given, slice) and _same(_parts(wanted), _parts(given), nodes)
    return bool(type(wanted) is type(given) and wanted == given)


def _parts(value: slice) -> tuple[Any, ...]:
    return value.start, value.stop, value.step


def _contained(nodes: dict[Node, Node], inside: set[Node], results: set[Node]) -> bool:
    """Whether nothing outside reads what the pattern does not return."""
    hidden = [g for p, g in nodes.items() if p.op != "placeholder" and p not in results]
    return all(user in inside for node in hidden for user in node.users)


def _replace(graph: Graph, pattern: Graph, other: Graph, match: Match, values: dict[Node, Node]) -> dict[Node, Node]:
    old = [match.nodes_map[node] for node in _results(pattern)]
    inside = {g for p, g in match.nodes_map.items() if p.op != "placeholder"}
    readers = {user for node in old for user in node.users if user not in inside}
    place = next((node for node in graph.nodes if node in readers), graph.output_node())
    with graph.inserting_before(place):
        copied = graph.graph_copy(other, values)
    new: list[Node] = []
    map_arg(copied, new.append)
    if len(new) != len(old):
        raise RuntimeError(f"replace_pattern: expected a replacement of {len(old)} results, got {len(new)}")
    for before, after in zip(old, new, strict=True):
        before.replace_all_uses_with(after)
    for node in reversed([node for node in graph.nodes if node in inside]):
        graph.erase_node(node)
    return dict(zip(old, new, strict=True))


def _take_parts(gm: GraphModule, replacement: Any, other: Graph) -> None:
    """Modules and tensors of the replacement that the graph now names."""
    for node in other.nodes:
        if node.op in ("call_module", "get_attr") and isinstance(replacement, GraphModule):
            value: Any = replacement
            for name in node.target.split("."):
                value = getattr(value, name)
            gm._place(node.target, value)
