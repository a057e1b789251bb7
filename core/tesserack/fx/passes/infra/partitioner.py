"""The nodes that a backend takes, in as few sets as can be run one by one."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from tesserack.fx._naming import qualified_name
from tesserack.fx.graph_module import GraphModule
from tesserack.fx.node import Node
from tesserack.fx.passes.operator_support import OperatorSupportBase
from tesserack.fx.passes.utils.fuser_utils import fuse_by_partitions

__all__ = ["CapabilityBasedPartitioner", "Partition"]

logger = logging.getLogger(__name__)
_NO_COMPUTATION = frozenset({"torch.ops.aten.view", "_operator.getitem"})


class Partition:
    """A set of nodes, in order, and its number."""

    def __init__(
        self, id: int | None = None, nodes: Iterable[Node] | None = None, node_orders: Iterable[int] | None = None
    ) -> None:
        self.id = id
        given = [*(nodes or ())]
        orders = [*node_orders] if node_orders is not None else [None] * len(given)
        assert len(given) == len(orders), "nodes and node_orders must have the same length"
        self.nodes: dict[Node, int | None] = dict(zip(given, orders, strict=True))

    def __repr__(self) -> str:
        return str(self.nodes)

    def add_node(self, node: Node, node_order: int | None = None) -> None:
        """Take a node in."""
        self.nodes[node] = node_order

    def remove_node(self, node: Node) -> None:
        """Leave a node out."""
        del self.nodes[node]

    def size(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)


class _Growing:
    """Partitions that grow by merging, as long as each can still be one step."""

    def __init__(self) -> None:
        self.found: dict[int, Partition] = {}
        self.of: dict[Node, int] = {}
        self.rank: dict[int, int] = {}

    def begin(self, number: int, node: Node, order: int) -> None:
        """A partition of one node."""
        self.found[number] = Partition(number, [node], [order])
        self.of[node], self.rank[number] = number, number

    def merge(self, first: int, second: int) -> int:
        """The number of both, or of the first where they cannot be one step."""
        if self._cycles({first, second}):
            return first
        large, small = sorted((first, second), key=lambda n: (-self.found[n].size(), n != first))
        self.found[large].nodes.update(self.found[small].nodes)
        self.of.update(dict.fromkeys(self.found.pop(small).nodes, large))
        self.rank[large] = min(self.rank[large], self.rank.pop(small))
        return large

    def _cycles(self, numbers: set[int]) -> bool:
        """Whether a way leads out of these partitions and back, other partitions being one step each."""
        pending = [user for n in numbers for node in self.found[n].nodes for user in node.users]
        pending = [user for user in pending if self.of.get(user) not in numbers]
        seen: set[Any] = set()
        while pending:
            node = pending.pop()
            number = self.of.get(node)
            if number in numbers:
                return True
            unit: Any = node if number is None else number
            if unit not in seen:
                seen.add(unit)
                members = [node] if number is None else self.found[number].nodes
                pending += [user for member in members for user in member.users if self.of.get(user) != number
                            or number is None]  # fmt: skip
        return False

    def move(self, node: Node, number: int | None) -> None:
        """Put a node into another partition, or none."""
        if node in self.of:
            self.found[self.of[node]].remove_node(node)
            del self.of[node]
        if number is not None:
            self.of[node] = number
            self.found.setdefault(number, Partition(number)).add_node(node)


class CapabilityBasedPartitioner:
    """Finds sets of supported nodes that can each be one step, and makes them calls of submodules.

    Sets of a single step are left alone unless ``allows_single_node_partition``, or the step is among
    ``allowed_single_node_partition_ops``; ``non_compute_ops`` do not count as steps. With ``skip_horizontal_fusion``
    only nodes that read each other come together.
    """

    def __init__(
        self,
        graph_module: GraphModule,
        operator_support: OperatorSupportBase,
        allows_single_node_partition: bool = False,
        non_compute_ops: Sequence[str] | None = None,
        allowed_single_node_partition_ops: Sequence[str] | None = None,
        skip_horizontal_fusion: bool = False,
    ) -> None:
        self.graph_module, self.operator_support = graph_module, operator_support
        self.allows_single_node_partition = allows_single_node_partition
        self.non_compute_ops = [*(non_compute_ops or ())]
        self.allowed_single_node_partition_ops = [*(allowed_single_node_partition_ops or ())]
        self.skip_horizontal_fusion = skip_horizontal_fusion

    def _is_node_supported(self, node: Node) -> bool:
        return self.operator_support.is_node_supported(dict(self.graph_module.named_modules()), node)

    def propose_partitions(self) -> list[Partition]:
        """The sets, from the end of the graph to its beginning."""
        growing, numbers = _Growing(), itertools.count()
        for order, node in enumerate(reversed(self.graph_module.graph.nodes)):
            candidates: dict[int, None] = {}
            if self._is_node_supported(node):
                number = next(numbers)
                growing.begin(number, node, order)
                candidates[number] = None
                if self.skip_horizontal_fusion:
                    candidates.update((growing.of[user], None) for user in node.users if user in growing.of)
            if not self.skip_horizontal_fusion:
                candidates.update((n, None) for n in sorted(growing.rank, key=lambda n: growing.rank[n]))
            self._merge(growing, [*candidates])
        for partition in growing.found.values():
            partition.nodes = dict(sorted(partition.nodes.items(), key=lambda item: -(item[1] or 0)))
        self._keep_items_with_tuples(growing)
        if not self.allows_single_node_partition:
            for number in [n for n, partition in growing.found.items() if self._steps(partition) <= 1]:
                del growing.found[number]
        return [partition for partition in growing.found.values() if partition.size()]

    @staticmethod
    def _merge(growing: _Growing, candidates: list[int]) -> None:
        """Merge with the first what can be merged with it."""
        for other in candidates[1:]:
            candidates[0] = growing.merge(candidates[0], other)

    def _keep_items_with_tuples(self, growing: _Growing) -> None:
        """A node that gives a tuple, and those that take its items, are in one set."""
        while True:
            moves: dict[Node, int | None] = {}
            for node in self.graph_module.graph.nodes:
                items = all(
                    u.op == "call_function" and qualified_name(u.target) == "_operator.getitem" for u in node.users
                )
                if items:
                    number = growing.of.get(node)
                    moves.update((user, number) for user in node.users if growing.of.get(user) != number)
            if not moves:
                return
            for node, number in moves.items():
                growing.move(node, number)

    def _steps(self, partition: Partition) -> int:
        count = 0
        for node in partition.nodes:
            if node.op == "call_function":
                name = qualified_name(node.target)
                count += name not in _NO_COMPUTATION and name not in self.non_compute_ops
                count += name in self.allowed_single_node_partition_ops
        return count

    def fuse_partitions(self, partitions: list[Partition], prefix: str = "fused_") -> GraphModule:
        """The module with each set made a call of a submodule."""
        return fuse_by_partitions(self.graph_module, [partition.nodes for partition in partitions], prefix=prefix)

    def remove_bookend_non_compute_ops(self, partitions: list[Partition]) -> None:
        """Leave out, at the beginnings and ends of sets, what are no steps."""
        for partition in partitions:
            inside = {*partition.nodes}
            for ahead in (lambda node: node.all_input_nodes, lambda node: [*node.users]):
                nodes = sorted(inside)
                changed = True
                while changed:
                    outer = [n for n in nodes if n in inside and self._is_bookend(n, inside, ahead)]
                    inside.difference_update(outer)
                    changed = bool(outer)
            for node in [*partition.nodes]:
                if node not in inside:
                    partition.remove_node(node)

    def _is_bookend(self, node: Node, inside: set[Node], ahead: Any) -> bool:
        plain = node.op == "call_function" and qualified_name(node.target) in self.non_compute_ops
        return plain and all(other not in inside for other in ahead(node))

    def partition_and_fuse(self, prefix: str = "fused_") -> GraphModule:
        """The module with the sets found made calls of submodules."""
        return self.fuse_partitions(self.propose_partitions(), prefix)
