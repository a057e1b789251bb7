"""What depends on what: a directed graph whose nodes have attributes and stand in the order in which they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["DiGraph"]


class DiGraph:
    """A directed graph, with the names that NetworkX has."""

    def __init__(self) -> None:
        self._node: dict[Any, dict[str, Any]] = {}
        self._succ: dict[Any, dict[Any, bool]] = {}
        self._pred: dict[Any, dict[Any, bool]] = {}

    def add_node(self, n: Any, **attributes: Any) -> None:
        """Add a node, or attributes to one that is there."""
        self._node.setdefault(n, {}).update(attributes)
        self._succ.setdefault(n, {})
        self._pred.setdefault(n, {})

    def add_edge(self, u: Any, v: Any) -> None:
        """Add an edge, and its ends where they are new."""
        self.add_node(u)
        self.add_node(v)
        self._succ[u][v] = self._pred[v][u] = True

    def successors(self, n: Any) -> Iterator[Any]:
        """The nodes to which edges lead. ``ValueError`` for a node that is not there."""
        return iter(self._of(self._succ, n))

    def predecessors(self, n: Any) -> Iterator[Any]:
        """The nodes from which edges lead here. ``ValueError`` for a node that is not there."""
        return iter(self._of(self._pred, n))

    @staticmethod
    def _of(table: Mapping[Any, dict[Any, bool]], n: Any) -> dict[Any, bool]:
        if n not in table:
            raise ValueError(f"The node {n} is not in the digraph.")
        return table[n]

    @property
    def edges(self) -> Iterator[tuple[Any, Any]]:
        """All edges as pairs."""
        return ((u, v) for u, found in self._succ.items() for v in found)

    @property
    def nodes(self) -> dict[Any, dict[str, Any]]:
        """The attributes of every node."""
        return self._node

    def __iter__(self) -> Iterator[Any]:
        return iter(self._node)

    def __contains__(self, n: Any) -> bool:
        try:
            return n in self._node
        except TypeError:
            return False

    def _closure(self, table: Mapping[Any, dict[Any, bool]], start: Any) -> set[Any]:
        found, todo = {start}, [start]
        while todo:
            new = [n for n in self._of(table, todo.pop()) if n not in found]
            found.update(new)
            todo += new
        return found

    def forward_transitive_closure(self, src: Any) -> set[Any]:
        """The nodes that can be reached from one, which is among them."""
        return self._closure(self._succ, src)

    def backward_transitive_closure(self, src: Any) -> set[Any]:
        """The nodes from which one can be reached, which is among them."""
        return self._closure(self._pred, src)

    def all_paths(self, src: Any, dst: Any) -> str:
        """The part of the graph that lies on paths from one node to another, in the language of Graphviz."""
        part = DiGraph()
        if dst in (reached := self.forward_transitive_closure(src)):
            between = reached & self.backward_transitive_closure(dst)
            for u, v in self.edges:
                if u in between and v in between:
                    part.add_edge(u, v)
        return part.to_dot()

    def first_path(self, dst: Any) -> list[Any]:
        """The nodes by which one came into the graph, from where it began."""
        order = {n: k for k, n in enumerate(self._node)}
        path = [dst]
        while before := [n for n in self._pred[path[-1]] if n not in path]:
            path.append(min(before, key=order.__getitem__))
        return path[::-1]

    def to_dot(self) -> str:
        """The graph in the language of Graphviz."""
        edges = "\n".join(f'"{u}" -> "{v}";' for u, v in self.edges)
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{edges}\n}}\n"
