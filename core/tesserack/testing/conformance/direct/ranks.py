"""A card's communicator, called as the core would: every rank in a thread of its own, on a device of its own."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import _native
from tesserack.backends._info import DTYPES
from tesserack.distributed._card_table import AVERAGE, CLOSE, COLLECTIVE, DECLINED, KINDS, OPEN, Collective, Table

__all__ = ["AVERAGE", "CLOSE", "COLLECTIVE", "DECLINED", "KINDS", "OPEN", "REDUCTIONS", "Collective", "Ranks", "Table"]

_P, _L, _S = ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t

REDUCTIONS = {"sum": 0, "prod": 1, "max": 2, "min": 3, "average": AVERAGE}
OK = 0
_SECONDS = 60  # after which a rank hangs


class Ranks:
    """One communicator of a card's devices, a rank on each."""

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size
        table, self.ctx = _native._communicator_table(name)
        self.table = Table.from_address(table)
        self.sequence = 0
        identity, told = self._identity()
        self.handles: list[Any] = [_P() for _ in range(size)]

        def open_(rank: int) -> None:
            out = ctypes.byref(self.handles[rank])
            self._check("open", self.table.open(self.ctx, rank, identity, told, rank, size, out))

        self.each(open_)

    def _identity(self) -> tuple[Any, int]:
        space = ctypes.create_string_buffer(b"tesserack conformance", 4096)
        if not self.table.has("unique_id"):
            return space, 21
        told = _S()
        self._check("unique_id", self.table.unique_id(self.ctx, space, len(space), ctypes.byref(told)))
        return space, told.value

    def _check(self, slot: str, status: int) -> None:
        if status:
            raise RuntimeError(f"{slot} gave status {status}: {_native._take_last_error() or 'no message'}")

    def close(self) -> None:
        """Let go of the communicator, on every rank."""
        self.each(lambda rank: self.table.close(self.ctx, self.handles[rank]))

    def takes(self, kind: str, dtype: str) -> bool:
        """Whether the table says that it has the collective, and takes the dtype."""
        return bool(self.table.collectives >> KINDS.index(kind) & 1 and self.table.dtypes >> DTYPES.index(dtype) & 1)

    def each(self, work: Callable[[int], Any]) -> list[Any]:
        """Run it for every rank at once. ``TimeoutError`` names the ranks that did not end, else the first error."""
        results: list[Any] = [None] * self.size
        errors: list[BaseException] = []

        def run(rank: int) -> None:
            try:
                results[rank] = work(rank)
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_SECONDS)
        late = [str(rank) for rank, thread in enumerate(threads) if thread.is_alive()]
        if late:
            raise TimeoutError(f"rank {' and '.join(late)} of {self.size} did not end within {_SECONDS} s")
        if errors:
            raise errors[0]
        return results

    def call(self, rank: int, kind: str, src: Any, dst: Any, waits: bool = True, **fields: Any) -> int:
        """One rank's collective on the current stream, and its wait; the status. Tensors are dense."""
        like = src if src is not None else dst
        dtype = "int32" if like is None else str(like.dtype).rpartition(".")[2]
        for name in ("counts", "gotten"):
            if fields.get(name) is not None:
                fields[name] = (_L * self.size)(*fields[name])
        place: dict[str, Any] = {}
        for name, x in (("src", src), ("dst", dst)):
            handle, offset = _native._handle_of(x) if x is not None else (None, 0)
            place |= {name: handle, f"{name}_offset": offset}
        given = Collective(
            ctypes.sizeof(Collective),
            _native._host_table(),
            KINDS.index(kind),
            dtype=DTYPES.index(dtype),
            sequence=self.sequence,
            stream=ts.current_stream(f"{self.name}:{rank}").stream_id or None,
            **place,
            **fields,
        )
        status = int(self.table.collective(self.ctx, self.handles[rank], ctypes.byref(given)))
        if status == OK and waits:
            ts.synchronize(f"{self.name}:{rank}")
        elif status not in (OK, DECLINED):
            self._check(kind, status)
        return status

    def all(
        self,
        kind: str,
        sources: Sequence[Any] | None,
        targets: Sequence[Any] | None,
        before: Callable[[int], None] = lambda rank: None,
        **fields: Any,
    ) -> bool:
        """Every rank calls, after ``before``; fields that are tuples differ by rank. False where all declined."""
        self.sequence += 1

        def call(rank: int) -> int:
            before(rank)
            own = {key: value[rank] if isinstance(value, tuple) else value for key, value in fields.items()}
            src, dst = (None if x is None else x[rank] for x in (sources, targets))
            return self.call(rank, kind, src, dst, **own)

        statuses = set(self.each(call))
        if len(statuses) != 1:
            raise RuntimeError(f"{kind}: some ranks declined and others did not")
        return statuses == {OK}
