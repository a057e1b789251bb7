"""Cards in Python whose two devices have a communicator, and such cards with one planted fault each."""

from __future__ import annotations

import ctypes
import functools
import operator
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mutants import Mutant
from tesserack.testing.conformance.direct import ranks
from tesserack_reference import Array

_DTYPES = (
    *(np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64),
    *(np.float16, None, np.float32, np.float64),
)
_JOIN: dict[int, Any] = {0: operator.add, 1: operator.mul, 2: np.maximum, 3: np.minimum, ranks.AVERAGE: operator.add}
_BY_NUMBER = {number: name for name, number in ranks.REDUCTIONS.items()}


class Declined(Exception):
    """There is no such collective."""


class Meeting:
    """Ranks that come together: each brings something, and sees what the others brought."""

    def __init__(self, size: int) -> None:
        self.barrier, self.brought = threading.Barrier(size), [None] * size

    def exchange(self, rank: int, mine: Any) -> list[Any]:
        self.brought[rank] = mine
        self.barrier.wait(30)
        all_of_them = list(self.brought)
        self.barrier.wait(30)
        return all_of_them


class Ranks:
    """Ranks of one process, which meet in its memory: beside a backend, whose blocks are arrays of bytes."""

    def make_table(self) -> None:
        """Fill in the communicator's table."""
        self.meetings: dict[bytes, Meeting] = {}
        self.members: dict[int, tuple[Meeting, int, int]] = {}  # with rank and size
        self.opening = threading.Lock()
        self.table = ranks.Table(
            ctypes.sizeof(ranks.Table),
            (1 << len(ranks.KINDS)) - 1,
            sum(1 << k for k, dtype in enumerate(_DTYPES) if dtype),
            0,
            0,
            ranks.OPEN(self.open_),
            ranks.COLLECTIVE(self.collective_),
            ranks.CLOSE(lambda ctx, comm: None),
        )
        self.communicator_table = ctypes.addressof(self.table)

    def open_(self, ctx: Any, device: int, identity: int, nbytes: int, rank: int, size: int, out: Any) -> int:
        with self.opening:
            meeting = self.meetings.setdefault(ctypes.string_at(identity, nbytes), Meeting(size))
            number = len(self.members) + 1
            self.members[number] = (meeting, rank, size)
        out[0] = number
        return 0

    def collective_(self, ctx: Any, comm: int, given: Any) -> int:
        try:
            c = given.contents
            meeting, rank, size = self.members[comm]
            run = getattr(self, ranks.KINDS[c.kind])
            run(c, functools.partial(meeting.exchange, rank), rank, size)
            return 0
        except Declined:
            return ranks.DECLINED
        except Exception as error:
            print(repr(error), flush=True)
            return 2

    # --- memory ------------------------------------------------------------------------------------------------------

    def at(self, handle: int | None, offset: int, c: Any, count: int) -> Array:
        if not handle:
            return np.empty(0, _DTYPES[c.dtype])  # nothing to give or to get
        array: Array = ctypes.cast(handle, ctypes.py_object).value
        dtype = np.dtype(_DTYPES[c.dtype])
        return array[offset : offset + count * dtype.itemsize].view(dtype)

    def source(self, c: Any, count: int) -> Array:
        return self.at(c.src, c.src_offset, c, count).copy()

    def store(self, c: Any, values: Any) -> None:
        values = np.asarray(values)
        self.at(c.dst, c.dst_offset, c, values.size)[...] = values

    def counts(self, c: Any, size: int) -> list[int]:
        return c.counts[:size] if c.counts else [c.count] * size

    # --- collectives -------------------------------------------------------------------------------------------------

    def join(self, parts: list[Array], c: Any) -> Array:
        kind = parts[0].dtype
        if c.reduction == ranks.AVERAGE and kind.kind != "f":
            raise Declined
        if kind == np.bool_:
            return functools.reduce(np.maximum if c.reduction in (0, 2) else np.minimum, parts)
        total: Array = functools.reduce(_JOIN[c.reduction], parts)
        return total / len(parts) if c.reduction == ranks.AVERAGE else total

    def all_reduce(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        self.store(c, self.join(exchange(self.source(c, c.count)), c))

    def reduce(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        total = self.join(exchange(self.source(c, c.count)), c)
        if rank == c.peer:
            self.store(c, total)

    def broadcast(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        self.store(c, exchange(self.source(c, c.count) if rank == c.peer else None)[c.peer])

    def all_gather(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        self.store(c, np.concatenate(exchange(self.source(c, self.counts(c, size)[rank]))))

    def reduce_scatter(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        counts = self.counts(c, size)
        total = self.join(exchange(self.source(c, sum(counts))), c)
        self.store(c, total[sum(counts[:rank]) :][: counts[rank]])

    def all_to_all(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        given = c.counts[:size] if c.counts else [c.count // size] * size
        brought = exchange((self.source(c, sum(given)), given))
        self.store(c, np.concatenate([x[sum(n[:rank]) :][: n[rank]] for x, n in brought]))

    def gather(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        parts = exchange(self.source(c, c.count))
        if rank == c.peer:
            self.store(c, np.concatenate(parts))

    def scatter(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        whole = exchange(self.source(c, c.count * size) if rank == c.peer else None)[c.peer]
        self.store(c, whole[rank * c.count :][: c.count])

    def send(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        exchange(self.source(c, c.count))  # of two ranks both are here

    def recv(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        self.store(c, exchange(None)[c.peer])

    def barrier(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        exchange(None)


class Joined(Ranks, Mutant):
    """Two devices with a communicator."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.make_table()

    def probe(self) -> tuple[int, str]:
        return 2, ""


class TruthIsOne(Joined):
    """Adds truth values up as the bytes they are."""

    def join(self, parts: list[Array], c: Any) -> Array:
        if parts[0].dtype == np.bool_ and c.reduction == 0:
            return sum(part.view(np.uint8) for part in parts).view(np.bool_)  # type: ignore[union-attr,return-value]
        return super().join(parts, c)


class Undivided(Joined):
    """An average is a sum."""

    def join(self, parts: list[Array], c: Any) -> Array:
        return functools.reduce(_JOIN[c.reduction], parts) if c.reduction == ranks.AVERAGE else super().join(parts, c)


class WholeAverages(Joined):
    """Averages whole numbers, too."""

    def join(self, parts: list[Array], c: Any) -> Array:
        if c.reduction == ranks.AVERAGE and parts[0].dtype.kind in "iu":
            return sum(parts) // len(parts)  # type: ignore[return-value]
        return super().join(parts, c)


class ThroughDoubles(Joined):
    """Adds whole numbers up in double precision."""

    def join(self, parts: list[Array], c: Any) -> Array:
        total = super().join(parts, c)
        if c.reduction == 0 and parts[0].dtype == np.int64:
            return functools.reduce(operator.add, [part.astype(np.float64) for part in parts]).astype(np.int64)
        return total


class Even(Joined):
    """Takes all parts for equally large."""

    def counts(self, c: Any, size: int) -> list[int]:
        return [sum(super().counts(c, size)) // size] * size


class Fixed(Joined):
    """Broadcasts from the first rank, whoever was named."""

    def broadcast(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        self.store(c, exchange(self.source(c, c.count))[0])


class Hasty(Joined):
    """Looks at the memory of all ranks as soon as one has called, without waiting for them."""

    def all_reduce(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        known = self.__dict__.setdefault("latest", {})
        mine = self.source(c, c.count)
        known[rank] = mine
        others = [known.get(r, np.zeros_like(mine)) for r in range(size)]
        fits = [x if x.shape == mine.shape and x.dtype == mine.dtype else np.zeros_like(mine) for x in others]
        total = self.join(fits, c)
        exchange(None)  # so that nobody runs ahead
        self.store(c, total)


class Unplaced(Joined):
    """Forgets where in its memory the source begins."""

    def source(self, c: Any, count: int) -> Array:
        return self.at(c.src, 0, c, count).copy()


class ScattersFirst(Joined):
    """Forgets it where a part is scattered alone."""

    def scatter(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        c.dst_offset = 0
        super().scatter(c, exchange, rank, size)


class HastyParts(Joined):
    """Waits a moment for ranks whose parts it adds up, and takes those that are late for zeros."""

    def reduce_scatter(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        known, count = self.__dict__.setdefault("latest", {}), sum(self.counts(c, size))
        known[rank] = mine = self.source(c, count)
        time.sleep(0.05)
        others = [known.get(r, np.zeros_like(mine)) for r in range(size)]
        total, start = self.join(others, c), sum(self.counts(c, size)[:rank])
        exchange(None)
        known.pop(rank)
        self.store(c, total[start:][: self.counts(c, size)[rank]])


class WordParts(Joined):
    """Finds the parts of uneven ones as if all elements had four bytes."""

    def all_gather(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        if not c.counts:
            return super().all_gather(c, exchange, rank, size)
        parts, counts = exchange(self.source(c, self.counts(c, size)[rank])), self.counts(c, size)
        out, start = self.at(c.dst, c.dst_offset, c, sum(counts)).view(np.uint8), 0
        for part, count in zip(parts, counts, strict=True):
            room = out[4 * start :]
            room[: part.nbytes] = part.view(np.uint8)[: room.size]
            start += count


class Unmet(Joined):
    """A barrier that waits for nobody."""

    def barrier(self, c: Any, exchange: Callable[[Any], list[Any]], rank: int, size: int) -> None:
        return None


joined = Joined("joined")
truthisone = TruthIsOne("truthisone")
undivided = Undivided("undivided")
wholeaverages = WholeAverages("wholeaverages")
throughdoubles = ThroughDoubles("throughdoubles")
even = Even("even")
fixed = Fixed("fixed")
hastysums = Hasty("hastysums")
unplaced = Unplaced("unplaced")
scattersfirst = ScattersFirst("scattersfirst")
hastyparts = HastyParts("hastyparts")
wordparts = WordParts("wordparts")
unmet = Unmet("unmet")
