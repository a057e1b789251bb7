"""Collectives of one group over MPI."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import tesserack as ts
from tesserack.distributed._engine import Call, Engine
from tesserack.distributed._reduce_op import RedOpType

from tesserack_mpi.kinds import memory, operation, summable
from tesserack_mpi.waiting import Waiting
from tesserack_mpi.world import MPI, start

__all__ = ["MPIEngine"]


def _group(store: Any, prefix: str, rank: int, size: int) -> Any:
    """A communicator of these ranks alone, in their order; what others do does not matter."""
    world = start()
    store.set(f"{prefix}/mpi{rank}", str(world.Get_rank()))
    ranks = [int(store.get(f"{prefix}/mpi{k}")) for k in range(size)]
    group = world.Get_group().Incl(ranks)
    try:
        # Groups with a rank in common may be made at once: their tags differ.
        return world.Create_group(group, tag=sum(map(ord, prefix + json.dumps(ranks))) % 16384)
    finally:
        group.Free()


def _of(tensor: ts.Tensor, counts: Sequence[int] | None = None) -> str:
    listed = f"{[tensor.numel()] if counts is None else [*counts]}"
    return str(tensor.dtype).rpartition(".")[2] + (listed if len(listed) < 60 else listed[:60] + "...]")


_LABEL = 48  # bytes of what goes ahead of a message: its dtype and number of elements


class MPIEngine(Engine):
    """Every collective begins with a greeting of all ranks, so that mistakes are errors and waits end."""

    name = "mpi"

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)
        self._comm = _group(store, prefix, rank, size)
        self._letters = self._comm.Dup()
        self._waiting = Waiting(self._comm)
        self._open = True

    def barrier(self, call: Call) -> None:
        self._waiting.check()
        self._waiting.greet("barrier", "", None, call)

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        text = self._begin("broadcast", tensor, root, call)
        self._waiting.finish([self._comm.Ibcast(memory(tensor), root=root)], text, call)

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        how = operation("all_reduce", source.dtype, op)
        text = self._begin("all_reduce", source, op, call)
        given = summable(source)
        total = ts.empty_like(given)
        request = self._comm.Iallreduce(memory(given, raw=False), memory(total, raw=False), op=how)
        self._waiting.finish([request], text, call)
        self._bring(total, target, op)

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        how = operation("reduce", source.dtype, op)
        text = self._begin("reduce", source, (op, root), call)
        given = summable(source)
        total = ts.empty_like(given) if self.rank == root else None
        to = None if total is None else memory(total, raw=False)
        self._waiting.finish([self._comm.Ireduce(memory(given, raw=False), to, op=how, root=root)], text, call)
        if total is not None:
            self._bring(total, target, op)

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        text = self._begin("all_gather", source, None, call, [t.numel() for t in targets])
        self._pairs([source] * self.size, targets, text, call)

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        text = self._begin("gather", source, root, call, counts)
        given = [source if k == root else None for k in range(self.size)]
        self._pairs(given, targets if self.rank == root else [None] * self.size, text, call)

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        text = self._begin("scatter", target, root, call, counts)
        gotten = [target if k == root else None for k in range(self.size)]
        self._pairs(sources if self.rank == root else [None] * self.size, gotten, text, call)

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        how = operation("reduce_scatter", target.dtype, op)
        counts = [t.numel() for t in sources]
        text = self._begin("reduce_scatter", target, op, call, counts)
        given = ts.cat([summable(t).reshape(-1) for t in sources])
        total = ts.empty(target.numel(), dtype=given.dtype)
        arguments = memory(given, raw=False), memory(total, raw=False)
        self._waiting.finish([self._comm.Ireduce_scatter(*arguments, recvcounts=counts, op=how)], text, call)
        self._bring(total.view(target.shape), target, op)

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        dtype = str(sources[0].dtype).rpartition(".")[2]
        self._waiting.check()
        text = self._waiting.greet("all_to_all", dtype, None, call)
        self._agree(sources, targets, text, call)
        self._pairs(sources, targets, text, call)

    def _agree(self, sources: Sequence[Any], targets: Sequence[Any], text: str, call: Call) -> None:
        """Whether what each gives is what the other expects."""
        given, told = np.array([t.numel() for t in sources]), np.empty(self.size, np.int64)
        self._waiting.finish([self._comm.Ialltoall(given, told)], text, call)
        for giver, (count, target) in enumerate(zip(told.tolist(), targets, strict=True)):
            if count != target.numel():
                self.abort(
                    f"{text}: rank {giver} gives {count} elements to rank {self.rank}, which expects {target.numel()}"
                )
        # Who found nothing must not go on where another did: all meet once more.
        self._waiting.check()
        self._waiting.greet("all_to_all", "sizes", None, call)

    def _begin(self, op: str, tensor: Any, detail: Any, call: Call, counts: Sequence[int] | None = None) -> str:
        self._waiting.check()
        return self._waiting.greet(op, _of(tensor, counts), (detail, counts and [*counts]), call)

    def _pairs(self, given: Sequence[Any], gotten: Sequence[Any], text: str, call: Call) -> None:
        """A tensor to each rank and one from each, None: nothing."""
        requests = []
        for other, to in enumerate(gotten):
            if to is not None and other != self.rank:
                requests.append(self._comm.Irecv(memory(to), source=other))
        for other, source in enumerate(given):
            if source is not None and other != self.rank:
                requests.append(self._comm.Isend(memory(source), dest=other))
        mine, kept = given[self.rank], gotten[self.rank]
        if mine is not None and kept is not None and mine.data_ptr() != kept.data_ptr():
            kept.view(-1).copy_(mine.view(-1))
        self._waiting.finish(requests, text, call)

    def _bring(self, total: Any, target: Any, op: int) -> None:
        target.copy_(total / self.size if RedOpType(op) is RedOpType.AVG else total)

    def send(self, tensor: Any, to: int, tag: int, call: Call) -> None:
        text = f"send of {_of(tensor)} to rank {to}{' at ' + call.where if call.where else ''}"
        self._check_tag(tag)
        self._waiting.check()
        label = _of(tensor).encode().ljust(_LABEL)
        requests = [self._letters.Isend(part, dest=to, tag=tag) for part in ([label, MPI.BYTE], memory(tensor))]
        self._waiting.finish(requests, text, call, peers=[to])

    def receive(self, tensor: Any, source: int, tag: int, call: Call) -> int:
        who = "any rank" if source < 0 else f"rank {source}"
        text = f"recv of {_of(tensor)} from {who}{' at ' + call.where if call.where else ''}"
        self._check_tag(tag)
        self._waiting.check()
        sender, kind = self._label(source, tag, text, call)
        count = int(kind.partition("[")[2][:-1])
        fits = kind == _of(tensor)
        item = ts.empty(0, dtype=getattr(ts, kind.partition("[")[0])).element_size()
        to = tensor if fits else ts.empty(count * item, dtype=ts.uint8)
        self._waiting.finish([self._letters.Irecv(memory(to), source=sender, tag=tag)], text, call, peers=[sender])
        if not fits:
            raise ts.distributed.DistBackendError(f"{text}: expected {_of(tensor)} from rank {sender}, got {kind}")
        return sender

    def _label(self, source: int, tag: int, text: str, call: Call) -> tuple[int, str]:
        """The label of the next message of a tag: whose it is, and its dtype and size."""
        status, found = MPI.Status(), []

        def came() -> bool:
            message = self._letters.Improbe(MPI.ANY_SOURCE if source < 0 else source, tag, status)
            found.extend([message] if message is not None else [])
            return message is not None

        others = [k for k in range(self.size) if k != self.rank]
        self._waiting.until(came, text, call, others if source < 0 else [source])
        label = bytearray(_LABEL)
        found[0].Recv([label, MPI.BYTE])
        return status.Get_source(), label.decode().strip()

    def _check_tag(self, tag: int) -> None:
        most = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
        if not 0 <= tag <= most:
            raise ValueError(f"expected a tag from 0 to {most} over MPI, got {tag}")

    def abort(self, reason: str) -> None:
        self._waiting.abort(reason)

    def leave(self) -> None:
        """At the end of a program that did not destroy its groups: others must not wait for it."""
        if self._open:
            self._waiting.leave()

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        self._waiting.close()
        if not MPI.Is_finalized() and not self._waiting.given_up:
            self._letters.Free()
            self._comm.Free()
