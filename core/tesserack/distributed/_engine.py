"""What a communicator is asked: the slots of an engine, over dense memory of the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

__all__ = ["Call", "Engine", "QuickCalls"]


class Call(NamedTuple):
    """What a collective says beside its data."""

    timeout: float  #: seconds
    where: str = ""  #: the user's line, for messages


class QuickCalls(NamedTuple):
    """Whole collectives by one call each, recorder and messages included. What they do not do returns False, and
    nothing has happened."""

    all_reduce: Callable[[Any, Any, float], bool]  #: tensor, reduction, seconds
    barrier: Callable[[float], bool]


class Engine:
    """Carries collectives of one group. Tensors are dense and on the host, and already checked; every wait ends with an
    error that says who is missing, after ``call.timeout`` seconds at the latest. A plugin derives from it and names a
    factory, ``factory(store, prefix, rank, size, timeout)``, by the hook ``tesserack_communicators`` (or with
    :func:`tesserack.distributed.Backend.register_backend`). A factory with a method ``meet(timeout)``, which returns a
    store, this process's rank and the number of ranks, needs no address to begin.
    """

    name = "engine"
    quick: QuickCalls | None = None
    takes_parts = False
    allocates = False
    joins_cards = False  #: cards with a communicator of their own do their tensors' collectives themselves
    device: Any = None  #: the card whose tensors it takes where they are
    by_ranks = False  #: the ranks' own processors do what a collective computes, and nothing else carries it

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def prepare(self, recorder: Any) -> None:
        """The group's recorder, for what is done by :attr:`quick`."""

    def run(self, job: Callable[[], Any], call: Call, text: str, async_op: bool, result: Any) -> Any:
        """Of an engine with a ``device``: queue a collective there."""
        raise self._lacks("run")

    def barrier(self, call: Call) -> None:
        """Wait for all ranks."""
        raise self._lacks("barrier")

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        """The root's elements, in ``tensor`` of every rank."""
        raise self._lacks("broadcast")

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        """Elements combined over all ranks; ``target`` may be ``source``."""
        raise self._lacks("all_reduce")

    def all_reduce_parts(self, tensors: Sequence[Any], op: int, call: Call) -> None:
        """As :meth:`all_reduce` of one tensor that holds all of these, in place; where ``takes_parts``. Some ranks may
        call the one, some the other."""
        raise self._lacks("all_reduce_parts")

    def allocate(self, size: int, call: Call) -> Any:
        """Bytes in memory that all ranks map, for each of which this is a collective; where it ``allocates``. Tensors
        in it are reduced faster than others."""
        raise self._lacks("allocate_tensor")

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        """The same on the root alone."""
        raise self._lacks("reduce")

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        """Each rank's tensor, on every rank; they may be of different sizes, known to all."""
        raise self._lacks("all_gather")

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        """Each rank's tensor, on the root; ``targets`` is empty elsewhere."""
        raise self._lacks("gather")

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        """A tensor of the root's for each rank; ``sources`` is empty elsewhere."""
        raise self._lacks("scatter")

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        """A tensor for each rank, combined over the ranks that give one."""
        raise self._lacks("reduce_scatter")

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        """From each rank a tensor to each."""
        raise self._lacks("all_to_all")

    def send(self, tensor: Any, to: int, tag: int, call: Call) -> None:
        """A message to another rank."""
        raise self._lacks("send")

    def receive(self, tensor: Any, source: int, tag: int, call: Call) -> int:
        """A message of another rank, -1: of any; returns whose."""
        raise self._lacks("recv")

    def abort(self, reason: str) -> None:
        """End what is under way, on every rank, with an error that says why."""

    def close(self) -> None:
        """Give up what the engine holds: every rank of the group does."""

    def leave(self) -> None:
        """The program ends without having destroyed the group; others may still wait for this rank."""
        self.close()

    def forked(self) -> None:
        """In a child of this process, which is no rank: what came along must not look like the rank to others."""

    def _lacks(self, what: str) -> NotImplementedError:
        return NotImplementedError(f"{what}: the communicator {self.name!r} has none; try backend='local'")
