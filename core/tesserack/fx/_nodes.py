"""The ring of a graph's nodes: walks along it, places in it, and which of two nodes comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tesserack.fx.node import Node

__all__ = ["InsertPoint", "NodeList", "ensure_order"]


class NodeList:
    """The nodes of a graph, forwards or backwards."""

    def __init__(self, graph: Any, direction: str = "_next") -> None:
        assert direction in ("_next", "_prev"), f"direction must be '_next' or '_prev', got {direction}"
        self.graph, self.direction = graph, direction

    def __iter__(self) -> Iterator[Node]:
        root, ahead = self.graph._root, self.direction
        node = getattr(root, ahead)
        while node is not root:
            following = getattr(node, ahead)
            if not node._erased:
                yield node
            # A node that was removed meanwhile stands in its own ring.
            node = following if node._erased else getattr(node, ahead)

    def __reversed__(self) -> Iterator[Node]:
        return iter(NodeList(self.graph, "_next" if self.direction == "_prev" else "_prev"))

    def __len__(self) -> int:
        return int(self.graph._len)


class InsertPoint:
    """Where new nodes of a graph are put, from its making on; as a context, until its end."""

    def __init__(self, graph: Any, new_insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        """Nothing more."""

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.orig_insert


def ensure_order(graph: Any, node: Node) -> None:
    """Give a node a number between those of its neighbours; where there is none left, new ones to all."""
    root = graph._root
    before = 0.0 if node._prev is root else node._prev._order
    after = before + 2.0 if node._next is root else node._next._order
    node._order = (before + after) / 2
    if not before < node._order < after:
        place = root._next
        number = 0.0
        while place is not root:
            number += 1.0
            place._order = number
            place = place._next
