"""NCCL behind the contract's table of communicators (``ts_communicator`` of ``tesserack/abi.h``), by CuPy's bindings.

Collectives are queued on the stream that the core names. What NCCL has no call for is a group of its sends and
receives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["AVERAGE", "DTYPES", "KINDS", "NCCL", "REDUCTIONS", "Call", "Declined"]

KINDS = (
    *("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"),
    *("send", "recv", "barrier"),
)
AVERAGE = 100
REDUCTIONS = {0: "SUM", 1: "PROD", 2: "MAX", 3: "MIN", AVERAGE: "AVG"}
#: By TS_*: bytes of an element, and NCCL's name where it computes with it.
DTYPES: tuple[tuple[int, str | None], ...] = (
    *((1, "UINT8"), (1, "UINT8"), (2, None), (4, "UINT32"), (8, "UINT64")),
    *((1, "INT8"), (2, None), (4, "INT32"), (8, "INT64")),
    *((2, "FLOAT16"), (2, "BFLOAT16"), (4, "FLOAT32"), (8, "FLOAT64"), (8, "FLOAT32"), (16, "FLOAT64")),
)
_BOOL, _COMPLEX = 0, (13, 14)
_ROOTED = ("broadcast", "reduce", "gather", "scatter")


class Declined(Exception):
    """NCCL has no such collective; the core goes another way."""


@dataclass(frozen=True)
class Call:
    """A collective, as ``ts_collective`` has it, with addresses for handles and offsets."""

    kind: str
    reduction: int
    dtype: int
    peer: int
    sequence: int
    count: int
    counts: Sequence[int] | None
    gotten: Sequence[int] | None
    src: int
    dst: int
    stream: int


@dataclass
class _Group:
    """One communicator on one device. ``scratch``: four bytes for barriers."""

    device: int
    native: Any
    rank: int
    size: int
    scratch: int


class NCCL:
    """The slots of the table as methods; handles of communicators are numbers."""

    def __init__(self, backend: CUDA):
        self._backend = backend
        self._groups: dict[int, _Group] = {}
        self._next = 1

    @property
    def _library(self) -> Any:
        found = self._backend.driver.library("nccl")
        if found is None:
            raise RuntimeError(
                f"{self._backend.name}: NCCL is not installed; try pip install nvidia-nccl-cu13, or another engine"
            )
        return found

    # --- communicators --------------------------------------------------------------------------------------------

    def unique_id(self) -> bytes:
        """What all ranks of a new communicator need, made on one of them."""
        return bytes(self._library.get_unique_id())

    def open(self, device: int, identity: bytes, rank: int, size: int) -> int:
        """A communicator of ``size`` ranks. Waits for all of them."""
        if not 0 <= rank < size:
            raise ValueError(f"NCCL: expected a rank from 0 to {size - 1}, got {rank}")
        self._backend.on(device)
        return self._keep(device, self._library.NcclCommunicator(size, identity, rank), rank, size)

    def _keep(self, device: int, native: Any, rank: int, size: int) -> int:
        scratch = self._backend.memory.take(device, 4, 0)
        self._backend.on(device).memsetAsync(scratch, 0, 4, 0)
        self._backend.on(device).streamSynchronize(0)
        number, self._next = self._next, self._next + 1
        self._groups[number] = _Group(device, native, rank, size, scratch)
        return number

    def size(self, handle: int) -> int:
        """How many ranks a communicator has."""
        return self._groups[handle].size

    def close(self, handle: int) -> None:
        """Let go of a communicator, after all that it was given is done."""
        group = self._groups.pop(handle)
        self._backend.on(group.device)
        group.native.destroy()
        self._backend.memory.give(group.device, group.scratch, 0)

    def split(self, handle: int, color: int, key: int) -> int:
        """The communicator of the ranks of one color, ordered by key; 0 in none, where the color is below 0."""
        group = self._groups[handle]
        self._backend.on(group.device)
        made = group.native.commSplit(color if color >= 0 else -1, key)
        if color < 0:
            return 0
        return self._keep(group.device, made, int(made.rank_id()), int(made.size()))

    def query_error(self, handle: int) -> None:
        """Raise what failed since; does not wait."""
        self._groups[handle].native.check_async_error()

    def abort(self, handle: int) -> None:
        """End what is under way with an error."""
        self._groups[handle].native.abort()

    def group_begin(self, handle: int) -> None:
        """What follows is given together."""
        self._library.groupStart()

    def group_end(self, handle: int) -> None:
        """Up to here."""
        self._library.groupEnd()

    # --- collectives ----------------------------------------------------------------------------------------------

    def collective(self, handle: int, call: Call) -> None:
        """Queue a collective. ``ValueError`` for one that cannot be right, :class:`Declined` for one NCCL has not."""
        group = self._groups[handle]
        self._check(group, call)
        self._backend.on(group.device)
        getattr(self, f"_{call.kind}")(group, call)

    def _check(self, group: _Group, call: Call) -> None:
        def refuse(expected: str, got: object) -> None:
            raise ValueError(f"{call.kind} (number {call.sequence}): expected {expected}, got {got}")

        if call.count < 0 or any(n < 0 for n in (*(call.counts or ()), *(call.gotten or ()))):
            refuse("counts of at least 0", call.counts or call.count)
        if call.kind in (*_ROOTED, "send", "recv") and not 0 <= call.peer < group.size:
            refuse(f"a rank from 0 to {group.size - 1}", call.peer)
        if call.kind in ("send", "recv") and call.peer == group.rank:
            refuse("another rank than one's own", call.peer)
        if call.kind == "all_to_all" and not call.counts and call.count % group.size:
            refuse(f"a count that {group.size} ranks share", call.count)
        if call.kind == "all_to_all" and bool(call.counts) != bool(call.gotten):
            refuse("counts and gotten, or neither", "one of them")
        if call.kind == "barrier":
            return
        reads = call.kind not in ("recv", *(() if group.rank == call.peer else ("scatter",)))
        writes = call.kind not in ("send", *(() if group.rank == call.peer else ("reduce", "gather")))
        given = call.counts or [call.count]
        if any(given) and ((reads and not call.src) or (writes and not call.dst)):
            refuse("memory to read and write", f"{call.src:#x} and {call.dst:#x}")

    def _moved(self, dtype: int) -> tuple[int, int, int]:
        """How elements go that are only moved: NCCL's type, how many of them an element has, and its bytes."""
        size, name = DTYPES[dtype]
        if name is None:
            return self._library.NCCL_UINT8, size, size
        return getattr(self._library, f"NCCL_{name}"), 2 if dtype in _COMPLEX else 1, size

    def _reduced(self, call: Call) -> tuple[int, int, int, int]:
        """As :meth:`_moved`, and the operation. Complex numbers can be added up, truth values be compared."""
        if (
            DTYPES[call.dtype][1] is None
            or call.reduction not in REDUCTIONS
            or (call.dtype in _COMPLEX and call.reduction not in (0, AVERAGE))
            or (call.dtype == _BOOL and REDUCTIONS[call.reduction] in ("SUM", "AVG"))
        ):
            raise Declined
        return *self._moved(call.dtype), getattr(self._library, f"NCCL_{REDUCTIONS[call.reduction]}")

    @contextmanager
    def _together(self) -> Iterator[None]:
        self._library.groupStart()
        try:
            yield
        finally:
            self._library.groupEnd()

    def _broadcast(self, group: _Group, c: Call) -> None:
        kind, each, _ = self._moved(c.dtype)
        source = c.src if group.rank == c.peer else c.dst
        group.native.broadcast(source, c.dst, c.count * each, kind, c.peer, c.stream)

    def _all_reduce(self, group: _Group, c: Call) -> None:
        kind, each, _, op = self._reduced(c)
        group.native.allReduce(c.src, c.dst, c.count * each, kind, op, c.stream)

    def _reduce(self, group: _Group, c: Call) -> None:
        kind, each, _, op = self._reduced(c)
        group.native.reduce(c.src, c.dst or c.src, c.count * each, kind, op, c.peer, c.stream)

    def _all_gather(self, group: _Group, c: Call) -> None:
        kind, each, size = self._moved(c.dtype)
        if not c.counts:
            group.native.allGather(c.src, c.dst, c.count * each, kind, c.stream)
            return
        with self._together():
            for rank, at in enumerate(_starts(c.counts)):
                target = c.dst + at * size
                source = c.src if rank == group.rank else target
                group.native.broadcast(source, target, c.counts[rank] * each, kind, rank, c.stream)

    def _reduce_scatter(self, group: _Group, c: Call) -> None:
        kind, each, size, op = self._reduced(c)
        if not c.counts:
            group.native.reduceScatter(c.src, c.dst, c.count * each, kind, op, c.stream)
            return
        with self._together():
            for rank, at in enumerate(_starts(c.counts)):
                source = c.src + at * size
                target = c.dst if rank == group.rank else source  # of which only the root's is written
                group.native.reduce(source, target, c.counts[rank] * each, kind, op, rank, c.stream)

    def _all_to_all(self, group: _Group, c: Call) -> None:
        kind, each, size = self._moved(c.dtype)
        even = [c.count // group.size] * group.size
        given, gotten = c.counts or even, c.gotten or even
        with self._apart(group, c, sum(given) * size) as source, self._together():
            self._send_parts(group, given, lambda at: source + at * size, kind, each, c.stream)
            for rank, at in enumerate(_starts(gotten)):
                if gotten[rank]:
                    group.native.recv(c.dst + at * size, gotten[rank] * each, kind, rank, c.stream)

    @contextmanager
    def _apart(self, group: _Group, c: Call, nbytes: int) -> Iterator[int]:
        """Where to read what is sent: a copy, where it would be overwritten by what is received."""
        if c.src != c.dst or not nbytes:
            yield c.src
            return
        copy = self._backend.memory.take(group.device, nbytes, c.stream)
        self._backend.copy_within(group.device, copy, 0, c.src, 0, nbytes, c.stream)
        try:
            yield copy
        finally:
            self._backend.memory.give(group.device, copy, c.stream)

    @staticmethod
    def _send_parts(
        group: _Group, counts: Sequence[int], place: Callable[[int], int], kind: int, each: int, stream: int
    ) -> None:
        for rank, at in enumerate(_starts(counts)):
            if counts[rank]:
                group.native.send(place(at), counts[rank] * each, kind, rank, stream)

    def _gather(self, group: _Group, c: Call) -> None:
        kind, each, size = self._moved(c.dtype)
        with self._together():
            if c.count:
                group.native.send(c.src, c.count * each, kind, c.peer, c.stream)
            for rank in range(group.size if group.rank == c.peer and c.count else 0):
                group.native.recv(c.dst + rank * c.count * size, c.count * each, kind, rank, c.stream)

    def _scatter(self, group: _Group, c: Call) -> None:
        kind, each, size = self._moved(c.dtype)
        with self._together():
            if group.rank == c.peer:
                counts = [c.count] * group.size
                self._send_parts(group, counts, lambda at: c.src + at * size, kind, each, c.stream)
            if c.count:
                group.native.recv(c.dst, c.count * each, kind, c.peer, c.stream)

    def _send(self, group: _Group, c: Call) -> None:
        kind, each, _ = self._moved(c.dtype)
        group.native.send(c.src, c.count * each, kind, c.peer, c.stream)

    def _recv(self, group: _Group, c: Call) -> None:
        kind, each, _ = self._moved(c.dtype)
        group.native.recv(c.dst, c.count * each, kind, c.peer, c.stream)

    def _barrier(self, group: _Group, c: Call) -> None:
        kind, op = self._library.NCCL_INT32, self._library.NCCL_SUM
        group.native.allReduce(group.scratch, group.scratch, 1, kind, op, c.stream)


def _starts(counts: Sequence[int]) -> list[int]:
    """Where the part of each rank begins.

    >>> _starts([2, 0, 3])
    [0, 2, 2]
    """
    return [sum(counts[:rank]) for rank in range(len(counts))]
