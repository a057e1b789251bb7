"""Sets of nodes: in order, and whether they can be one step."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tesserack.fx._compatibility import compatibility
from tesserack.fx.node import Node

__all__ = ["topo_sort", "validate_partition"]


@compatibility(is_backward_compatible=False)
def topo_sort(nodes: list[Node]) -> list[Node]:
    """The nodes, each after those it reads, and otherwise in the order given."""
    position = {node: k for k, node in enumerate(nodes)}
    waiting = {node: sum(read in position for read in node.all_input_nodes) for node in nodes}
    ready = [position[node] for node in nodes if not waiting[node]]
    heapq.heapify(ready)
    found: list[Node] = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        found.append(node)
        for user in node.users:
            if user in waiting:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, position[user])
    assert len(nodes) == len(found), "topological sorted nodes doesn't have same length as input nodes"
    return found


@compatibility(is_backward_compatible=False)
def validate_partition(partition: Iterable[Node]) -> bool:
    """Whether nodes can be one step: nothing outside reads one and is read by another."""
    inside = set(partition)
    pending = [user for node in inside for user in node.users if user not in inside]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in inside:
            return False
        if node not in seen:
            seen.add(node)
            pending += node.users
    return True
