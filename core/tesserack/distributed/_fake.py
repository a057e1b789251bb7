"""A communicator that goes nowhere: one rank of a large world, run without the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack.distributed._engine import Call, Engine

__all__ = ["FakeEngine"]


class FakeEngine(Engine):
    """Each collective gives what it would if every rank held what this one holds, but for sums, which stay as they are
    (as with averages): shapes, memory and time are those of a real run, values are not.
    """

    name = "fake"

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)

    def barrier(self, call: Call) -> None:
        pass

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        pass

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        target.copy_(source)

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        target.copy_(source)

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        for target in targets:
            target.view(-1).copy_(source.view(-1)[: target.numel()])

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        self.all_gather(source, targets, call)

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        if sources:
            target.copy_(sources[self.rank])

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        target.view(-1).copy_(sources[self.rank].view(-1))

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        for source, target in zip(sources, targets, strict=True):
            n = min(source.numel(), target.numel())
            target.view(-1)[:n].copy_(source.view(-1)[:n])

    def send(self, tensor: Any, to: int, tag: int, call: Call) -> None:
        pass

    def receive(self, tensor: Any, source: int, tag: int, call: Call) -> int:
        return max(source, 0)
