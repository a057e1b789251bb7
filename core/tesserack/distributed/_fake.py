"""A communicator that goes nowhere: one rank of a large world, run without the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed._engine import Call, Engine
from tesserack.distributed._group import ProcessGroup, refuse_traced, user_line
from tesserack.distributed._memory import shape_text
from tesserack.distributed._work import Work

__all__ = ["FakeEngine", "FakeGroup"]

#: Of a simulation (``tesserack.distributed.simulation``): what collectives cost, and when they end.
clock: Any = None


def _bytes(*tensors: Any) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


class FakeEngine(Engine):
    """Each collective gives what it would if every rank held what this one holds, but for sums, which stay as they are
    (as with averages): shapes, memory and time are those of a real run, values are not.
    """

    name = "fake"
    allocates = True
    moved: tuple[str, int] = ("barrier", 0)  # the last collective, and its bytes

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)

    @staticmethod
    def make_group(*arguments: Any) -> FakeGroup:
        """The group around an engine of this kind."""
        return FakeGroup(*arguments)

    def barrier(self, call: Call) -> None:
        self.moved = "barrier", 0

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        self.moved = "broadcast", _bytes(tensor)

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        self.moved = "all_reduce", _bytes(source)
        target.copy_(source)

    def allocate(self, size: int, call: Call) -> Any:
        self.moved = "barrier", 0
        return ts.zeros(size, dtype=ts.uint8, device="cpu")

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        self.moved = "reduce", _bytes(source)
        target.copy_(source)

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        self.moved = "all_gather", _bytes(*targets)
        for target in targets:
            target.view(-1).copy_(source.view(-1)[: target.numel()])

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        self.all_gather(source, targets, call)
        self.moved = "gather", sum(counts) * source.element_size()

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        self.moved = "scatter", sum(counts) * target.element_size()
        if sources:
            target.copy_(sources[self.rank])

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        self.moved = "reduce_scatter", _bytes(*sources)
        target.view(-1).copy_(sources[self.rank].view(-1))

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        self.moved = "all_to_all", _bytes(*sources)
        for source, target in zip(sources, targets, strict=True):
            n = min(source.numel(), target.numel())
            target.view(-1)[:n].copy_(source.view(-1)[:n])

    def send(self, tensor: Any, to: int, tag: int, call: Call) -> None:
        self.moved = "send", _bytes(tensor)

    def receive(self, tensor: Any, source: int, tag: int, call: Call) -> int:
        self.moved = "receive", _bytes(tensor)
        return max(source, 0)


class _SimulatedWork(Work):
    """Done as soon as it is called; by the clock, later."""

    def __init__(self, result: Any, end: float) -> None:
        super().__init__(result)
        self._end = end
        self._done.set()
        self._finished = True

    def wait(self, timeout: Any = None) -> bool:
        if clock is not None:
            clock.advance()
            clock.wait(self._end)
        return super().wait(timeout)

    def get_future(self) -> Any:
        self.wait()
        return super().get_future()


class FakeGroup(ProcessGroup):
    """A group whose collectives are done at once, and end by the clock of a simulation."""

    engine: FakeEngine

    def run(
        self,
        op: str,
        call: Call,
        job: Callable[[], Any],
        async_op: bool,
        result: Any,
        of: Tensor | None = None,
        shape: str = "",
        carrier: Engine | None = None,
    ) -> Work | None:
        work, _ = self._done(op, self.begun(op, call, of, shape), job, result)
        if async_op:
            return work
        work.wait()
        return None

    def post(
        self, op: str, peer: int, job: Callable[[], Any], async_op: bool, result: Any, tensor: Tensor
    ) -> Work | int:
        refuse_traced(op)
        entry = self.recorder.begin(op, f"{shape_text(tensor)} rank {peer}", user_line(), kind="message")
        work, given = self._done(op, entry, job, result)
        if async_op:
            return work
        work.wait()
        return given if isinstance(given, int) else -1

    def _done(self, op: str, entry: int, job: Callable[[], Any], result: Any) -> tuple[Work, Any]:
        if clock is not None:
            clock.advance()
        with self.recorder.written(entry):
            given = job()
        if clock is None:
            return _SimulatedWork(result, 0.0), given
        name, size = self.engine.moved
        end = clock.begin(name, size, self.ranks)
        clock.skip()
        return _SimulatedWork(result, end), given
