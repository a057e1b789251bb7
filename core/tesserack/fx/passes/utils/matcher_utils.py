"""Finding a pattern in a graph."""

from __future__ import annotations

import copy
import itertools
import logging
import os
from dataclasses import dataclass, field
from typing import Any

from tesserack import Tensor
from tesserack.aten.operators import OpOverload
from tesserack.fx._compatibility import compatibility
from tesserack.fx.graph import Graph
from tesserack.fx.node import Node
from tesserack.fx.passes.utils._partitions import validate_partition

__all__ = ["InternalMatch", "SubgraphMatcher"]

logger = logging.getLogger(__name__)
logger.setLevel(os.environ.get("PYTORCH_MATCHER_LOGLEVEL", "WARNING").upper())


@compatibility(is_backward_compatible=False)
@dataclass
class InternalMatch:
    """A place where the pattern is: what stands for each of its nodes, parameters, results and named nodes."""

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)

    def __copy__(self) -> InternalMatch:
        return InternalMatch(self.anchors, {**self.nodes_map}, [*self.placeholder_nodes], [*self.returning_nodes])


@compatibility(is_backward_compatible=False)
class SubgraphMatcher:
    """Finds the places of a graph that are as a pattern is: parameters of the pattern stand for any value.

    With ``match_output`` and ``match_placeholder`` the pattern is a whole program. Of places that overlap only the
    first is taken, unless told otherwise; with ``ignore_literals`` numbers and other constants may differ.
    ``ValueError`` for an empty pattern, ``AssertionError`` for one with steps that nothing reads.

    >>> import tesserack as ts
    >>> from tesserack import fx
    >>> pattern = fx.symbolic_trace(lambda x: ts.relu(x)).graph
    >>> len(SubgraphMatcher(pattern).match(fx.symbolic_trace(lambda x: ts.relu(ts.relu(x) + 1)).graph))
    2
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern, self.match_output, self.match_placeholder = pattern, match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.is_impure():
                assert node.users, "SubgraphMatcher cannot be initialized with an pattern with dead code"
        self.pattern_placeholder_nodes = [node for node in pattern.nodes if node.op == "placeholder"]
        output = next(iter(reversed(pattern.nodes)))
        self.pattern_returning_nodes = output.all_input_nodes
        ends = [node for node in output.all_input_nodes if len(node.users) == 1]
        self.pattern_anchors = [output] if match_output else ends

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places, none of whose inner values anything outside reads, and which can be one step."""
        candidates = [
            [node for node in graph.nodes if self._nodes_are_equal(anchor, node, node_name_match)]
            for anchor in self.pattern_anchors
        ]
        pairs = [(anchor, found) for anchor, found in zip(self.pattern_anchors, candidates, strict=True) if found]
        matches: list[InternalMatch] = []
        if pairs:
            self._extend(pairs, InternalMatch(self.pattern_anchors), node_name_match, matches)
        matches = [found for found in matches if self._is_contained(found.nodes_map)]
        matches = [found for found in matches if validate_partition(_computed(found))]
        if self.remove_overlapping_matches:
            matches = self._remove_overlapping_matches(matches)
        logger.info("Matches returned: %s", matches)
        return matches

    def _extend(
        self, pairs: list[tuple[Node, list[Node]]], found: InternalMatch, name: str, matches: list[InternalMatch]
    ) -> None:
        """All ways to match the anchors that are left."""
        if not pairs:
            if all(node in found.nodes_map for node in self.pattern_returning_nodes):
                found.placeholder_nodes = [found.nodes_map.get(node) for node in self.pattern_placeholder_nodes]
                found.returning_nodes = [found.nodes_map[node] for node in self.pattern_returning_nodes]
                matches.append(found)
            return
        anchor, candidates = pairs[0]
        for node in candidates:
            attempt = copy.copy(found)
            if self._match_nodes(anchor, node, attempt, name):
                self._extend(pairs[1:], attempt, name, matches)

    # --- one node ----------------------------------------------------------------------------------------------------

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        if not self.match_placeholder and pn.op == "placeholder":
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        return self._match_attributes(pn, gn) if pn.op == "get_attr" else bool(pn.target == gn.target)

    @staticmethod
    def _match_attributes(pn: Node, gn: Node) -> bool:
        mine, other = (_attribute(node.graph.owning_module, node.target) for node in (pn, gn))
        if type(mine) is not type(other):
            return False
        if not isinstance(mine, Tensor):
            raise RuntimeError(f"Unsupported type {mine} when matching attributes")
        return True

    def _match_nodes(self, pn: Node, gn: Node, found: InternalMatch, node_name_match: str = "") -> bool:
        if pn in found.nodes_map:
            return bool(found.nodes_map[pn] is gn)
        if any(gn is node for node in found.nodes_map.values()):
            return False
        if not self._nodes_are_equal(pn, gn, node_name_match):
            return False
        found.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        mine, given = _all_arguments(pn, gn)
        return mine is not None and self._match_values(mine, given, found)

    def _match_values(self, mine: Any, given: Any, found: InternalMatch) -> bool:
        """Whether values of arguments are the same, with what stands for what noted."""
        if isinstance(mine, (list, tuple)) and isinstance(given, (list, tuple)):
            if len(mine) != len(given):
                return False
            return all(self._match_values(a, b, found) for a, b in zip(mine, given, strict=True))
        if isinstance(mine, slice) and isinstance(given, slice):
            parts = [(s.start, s.stop, s.step) for s in (mine, given)]
            return self._match_values(parts[0], parts[1], found)
        if isinstance(mine, dict) and isinstance(given, dict):
            return mine.keys() == given.keys() and self._match_values([*mine.values()], [given[k] for k in mine], found)
        if isinstance(mine, Node) and isinstance(given, Node):
            return self._match_nodes(mine, given, found)
        return self._match_literals(mine, given, found) or self.ignore_literals

    def _match_literals(self, pn: Any, gn: Any, found: InternalMatch) -> bool:
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            return bool(found.nodes_map.setdefault(pn, gn) == gn)
        return not isinstance(gn, Node) and type(gn) is type(pn) and bool(gn == pn)

    # --- which places count ------------------------------------------------------------------------------------------

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        inside = {gn: pn for pn, gn in nodes_map.items() if pn.op != "placeholder"}
        hidden = (gn for gn, pn in inside.items() if pn not in self.pattern_returning_nodes)
        return all(user in inside for user in itertools.chain.from_iterable(gn.users for gn in hidden))

    def _remove_overlapping_matches(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        kept: list[InternalMatch] = []
        taken: set[Node] = set()
        for found in matches:
            nodes = _computed(found)
            if taken.isdisjoint(nodes):
                kept.append(found)
                taken.update(nodes)
        return kept


def _computed(found: InternalMatch) -> list[Node]:
    return [gn for pn, gn in found.nodes_map.items() if pn.op not in ("placeholder", "output")]


def _attribute(module: Any, path: str) -> Any:
    assert module is not None, f"expected a graph with a module, to read {path}"
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _all_arguments(pn: Node, gn: Node) -> tuple[Any, Any]:
    """The arguments of both in one order; None where they do not lie alike."""
    if len(pn.args) == len(gn.args) and [*pn.kwargs] == [*gn.kwargs]:
        return [*pn.args, *pn.kwargs.values()], [*gn.args, *gn.kwargs.values()]
    if pn.op == "call_function" and isinstance(pn.target, OpOverload):
        return _by_schema(pn), _by_schema(gn)
    return None, None


def _by_schema(node: Node) -> list[Any]:
    found = []
    for k, argument in enumerate(node.target._schema.arguments):
        placed = not argument.kwarg_only and k < len(node.args)
        found.append(node.kwargs.get(argument.name, node.args[k] if placed else argument.default_value))
    return found
