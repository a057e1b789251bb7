"""How workers find each other, and how they part, by a store."""

from __future__ import annotations

import contextlib
import itertools
import json
import secrets
import time
from datetime import timedelta
from typing import Any

from tesserack.distributed._errors import DistStoreError
from tesserack.distributed._sockets import addresses
from tesserack.distributed._stores import PrefixStore
from tesserack.distributed.rpc._links import WORD
from tesserack.distributed.rpc._workers import WorkerInfo

__all__ = ["Meeting"]

_times = itertools.count()  # how often this process took part; all do so equally often
_LAST = 10.0  # seconds that the keeper of the store waits for others to have read it


class Meeting:
    """The workers by their names and numbers, and where each is."""

    def __init__(self, store: Any, name: str, rank: int, size: int, timeout: timedelta) -> None:
        self.me, self.size, self._timeout = WorkerInfo(name, rank), size, timeout
        self._store = PrefixStore(f"rpc{next(_times)}", store)
        host = getattr(store, "host", None)
        self.hosts = addresses(host if isinstance(host, str) else None)
        if rank == 0:
            self._store.set("word", secrets.token_bytes(WORD))
        self.word: bytes = self._store.get("word")
        self.workers: list[WorkerInfo] = []
        self.places: list[tuple[list[str], int]] = []

    def introduce(self, port: int) -> None:
        """Tell the others where this worker is, and learn where they are.

        Raises:
            RuntimeError: where one does not come in time, or two have one name.
        """
        self._store.set(f"worker{self.me.id}", json.dumps([self.me.name, self.hosts, port]))
        self._all([f"worker{k}" for k in range(self.size)], self._timeout.total_seconds(), "init_rpc")
        for k in range(self.size):
            name, hosts, at = json.loads(self._store.get(f"worker{k}"))
            same = next((other for other in self.workers if other.name == name), None)
            if same is not None:
                raise RuntimeError(
                    f"init_rpc: RPC worker name {name} is not unique. Workers {same.id} and {k} share the same name."
                )
            self.workers.append(WorkerInfo(name, k))
            self.places.append((hosts, at))

    def worker(self, to: Any) -> WorkerInfo:
        """A worker by its name, number or information. ``RuntimeError`` if there is none, ``ValueError`` for else."""
        if isinstance(to, WorkerInfo):
            to = to.id
        if not isinstance(to, (str, int)):
            raise ValueError(f"rpc: expected a worker by name, number or WorkerInfo, got {to!r}")
        for worker in self.workers:
            if to == worker.name or (to == worker.id and not isinstance(to, bool)):
                return worker
        names = ", ".join(worker.name for worker in self.workers)
        raise RuntimeError(
            f"rpc: could not find destination {to!r}; expected one of the workers, {names}, by name or number"
        )

    def _all(self, keys: list[str], seconds: float, what: str) -> None:
        """Wait for what each worker writes."""
        end = time.monotonic() + seconds if seconds else float("inf")
        while True:
            try:
                self._store.wait(keys, timedelta(seconds=min(1.0, max(end - time.monotonic(), 0.01))))
                return
            except DistStoreError as error:
                if time.monotonic() < end:
                    continue
                missing = [str(k) for k, key in enumerate(keys) if not self._store.check([key])]
                raise RuntimeError(
                    f"{what}: worker {', '.join(missing)} of {self.size} did not come to it within {seconds:g} s"
                ) from error

    def all_end(self, timeout: float) -> None:
        """Wait until every worker ends. ``RuntimeError`` where one does not in time."""
        self._store.set(f"end{self.me.id}", "1")
        self._all([f"end{k}" for k in range(self.size)], timeout, "rpc.shutdown")

    def exchange(self, key: str, value: str, end: float) -> list[str]:
        """What each worker says under a key."""
        self._store.set(f"{key}/{self.me.id}", value)
        keys = [f"{key}/{k}" for k in range(self.size)]
        self._all(keys, 0.0 if end == float("inf") else max(end - time.monotonic(), 0.01), "rpc.shutdown")
        return [found.decode() for found in self._store.multi_get(keys)]

    def part(self) -> None:
        """Leave the store, which the first worker may keep."""
        with contextlib.suppress(Exception):
            self._store.set(f"left{self.me.id}", "1")
            if self.me.id == 0:
                keys = [f"left{k}" for k in range(self.size)]
                self._store.wait(keys, timedelta(seconds=_LAST))
