"""What the server's processes know of each other: a few numbers in shared memory, and the table of models in a file."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

__all__ = ["READY", "Board", "Table"]

READY = "READY"
_SLOTS = 1024  # models and versions that may ever be loaded by one server
_TEXT = 1 << 16
_GENERATION, _DRAINING, _STOPPING, _TRACE, _SLOTS_USED = range(5)


class Board:
    """Made by the main process and handed to all others. Every number but the flags has one writer."""

    def __init__(self, folder: Path, frontends: int, workers: int) -> None:
        context = get_context("spawn")
        self.folder, self.frontends, self.workers = folder, frontends, workers
        self._flags = context.RawArray("q", 8)
        self._pending = context.RawArray("q", frontends * _SLOTS)
        self._outstanding = context.RawArray("q", frontends)
        self._starts = context.RawArray("q", workers)
        self._ends = context.RawArray("q", workers)
        self._in_hand = context.RawArray("q", workers)
        self._held = [context.RawArray("c", _TEXT) for _ in range(workers)]
        self._lost = [context.RawArray("c", _TEXT) for _ in range(workers)]
        self.controls = [context.SimpleQueue() for _ in range(workers)]

    @property
    def table(self) -> Table:
        """The models."""
        return Table(self.folder / "models.json", self._changed)

    def _changed(self) -> None:
        self._flags[_GENERATION] += 1

    @property
    def generation(self) -> int:
        """Grows with every change of the table."""
        return int(self._flags[_GENERATION])

    def new_slot(self) -> int:
        """Where requests of a newly loaded model are counted; called with the table locked."""
        slot = int(self._flags[_SLOTS_USED])
        self._flags[_SLOTS_USED] = (slot + 1) % _SLOTS
        return slot

    def count(self, frontend: int, slot: int, change: int) -> None:
        """One request more or less that a frontend waits for."""
        self._pending[frontend * _SLOTS + slot] += change
        self._outstanding[frontend] += change

    def pending(self, slot: int) -> int:
        """Requests of a model, of all frontends."""
        return sum(self._pending[frontend * _SLOTS + slot] for frontend in range(self.frontends))

    @property
    def outstanding(self) -> int:
        """Requests that were accepted and not answered."""
        return int(sum(self._outstanding))

    def queued(self) -> int:
        """Requests that no worker has taken yet, but for those on their way; a look costs less than the queue's."""
        return self.outstanding - int(sum(self._in_hand))

    # --- stopping --------------------------------------------------------------------------------------------------

    @property
    def draining(self) -> bool:
        """Whether new requests are refused."""
        return bool(self._flags[_DRAINING])

    def drain(self) -> None:
        """From now on new requests are refused."""
        self._flags[_DRAINING] = 1

    @property
    def stopping(self) -> bool:
        """Whether workers may end."""
        return bool(self._flags[_STOPPING])

    def stop(self) -> None:
        """From now on workers end when they are told to."""
        self._flags[_STOPPING] = 1

    # --- tracing ---------------------------------------------------------------------------------------------------

    @property
    def trace(self) -> int:
        """How many batches each worker is still to record, as last set; -1: until told otherwise."""
        return int(self._flags[_TRACE])

    def set_trace(self, batches: int) -> None:
        """Begin to record, or end with 0."""
        self._flags[_TRACE] = batches

    # --- what a worker that dies had in hand -------------------------------------------------------------------------

    def hold(self, worker: int, keys: list[str]) -> None:
        """Note the requests that a worker has taken."""
        self._in_hand[worker] = len(keys)
        self._held[worker].value = "\n".join(keys).encode()[: _TEXT - 1]

    def start_worker(self, worker: int) -> None:
        """A worker begins."""
        self._starts[worker] += 1

    def starts(self, worker: int) -> int:
        """How often a worker has begun."""
        return int(self._starts[worker])

    def end_worker(self, worker: int) -> None:
        """A worker has died, and the next one not begun: what it had in hand is lost."""
        self._lost[worker].value = self._held[worker].value
        self.hold(worker, [])
        self._ends[worker] += 1

    def ends(self, worker: int) -> int:
        """How often a worker has died."""
        return int(self._ends[worker])

    def lost(self, worker: int) -> list[str]:
        """The requests that the worker that died last had in hand."""
        return str(self._lost[worker].value.decode(errors="replace")).split()


class Table:
    """Models by name and version, as JSON in a file that is replaced whole."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._path, self._changed = path, changed

    def read(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Name: version: entry."""
        if not self._path.exists():
            return {}
        found: dict[str, dict[str, dict[str, Any]]] = json.loads(self._path.read_text())
        return found

    @contextlib.contextmanager
    def change(self) -> Iterator[dict[str, dict[str, dict[str, Any]]]]:
        """The table, to be changed; one process at a time. The lock goes with a process that dies."""
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            models = self.read()
            yield models
            fresh = self._path.with_suffix(f".{os.getpid()}")
            fresh.write_text(json.dumps(models))
            os.replace(fresh, self._path)
            self._changed()
