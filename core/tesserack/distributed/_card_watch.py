"""A thread that looks whether a card's collectives end in time: devices wait for ever."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from tesserack import _native
from tesserack.distributed._card_table import Table
from tesserack.distributed._engine import Call
from tesserack.distributed._errors import DistBackendError
from tesserack.distributed._gathering import GRACE

__all__ = ["Watch"]

_LONGEST = 0.05  # seconds between looks


def _came(place: list[Any]) -> bool:
    """Whether a device is past an event; one of a recorded graph is nobody's to wait for."""
    try:
        return bool(place and (place[0] is None or place[0].query()))
    except RuntimeError:
        return True


class Watch:
    """What one communicator was given and has not done. The first failure ends all that is under way and to come."""

    def __init__(self, made: Any, device: Any, table: Table, context: Any, handle: Any) -> None:
        self._store, self._rank, self._size, self._host = made.store, made.rank(), made.size(), made.engine
        self._device, self._table, self._context, self._handle = device, table, context, handle
        self._given: queue.SimpleQueue[tuple[list[Any], float, float, str] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.error: DistBackendError | None = None

    @property
    def failed(self) -> bool:
        """Whether the communicator is of no use any more."""
        return self.error is not None

    def check(self) -> None:
        """``DistBackendError`` once something has failed."""
        if self.error is not None:
            raise DistBackendError(str(self.error))

    def begin(self, call: Call, text: str) -> list[Any]:
        """Look, from here on, until the event has come that is put into what this returns; as long as the call says."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name=f"watch of {self._device}", daemon=True)
            self._thread.start()
        place: list[Any] = []  # a call may wait, too, before there is an event
        self._given.put((place, time.monotonic() + call.timeout, call.timeout, text))
        return place

    def _loop(self) -> None:
        while (entry := self._given.get()) is not None:
            place, end, timeout, text = entry
            pause = 0.0
            while not self.failed and not _came(place):
                if self._table.has("query_error") and self._table.query_error(self._context, self._handle):
                    self.fail(f"{text}: {_native._take_last_error() or 'the communicator has failed'}")
                elif time.monotonic() > end:
                    self.fail(
                        f"{text}: {self._missing()} did not come within {timeout:g} s (told by rank {self._rank})"
                    )
                time.sleep(pause)
                pause = min(_LONGEST, pause + 1e-3)

    def _missing(self) -> str:
        """Ranks that are not late themselves, since they do not wait."""
        prefix = f"late/{self._device.type}"
        with contextlib.suppress(Exception):  # who keeps the store may have ended
            self._store.set(f"{prefix}/{self._rank}", "")
            time.sleep(GRACE)
            late = [k for k in range(self._size) if not self._store.check([f"{prefix}/{k}"])]
            return ", ".join(f"rank {k}" for k in late) or "some rank"
        return "some rank"

    def fail(self, reason: str) -> None:
        """End what is under way on this rank, and tell the others where the host's communicator can."""
        with self._lock:
            if self.error is not None:
                return
            self.error = DistBackendError(reason)
        if self._table.has("abort"):
            self._table.abort(self._context, self._handle)
        self._host.abort(reason)

    def close(self) -> bool:
        """End the thread once all is done; whether the communicator is still of use."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._given.put(None)
            thread.join()
        return self.error is None
