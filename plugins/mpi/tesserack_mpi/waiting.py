"""Waits that end: MPI has none. Before a collective every rank greets the others with what it calls."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tesserack.distributed import DistBackendError
from tesserack.distributed._engine import Call

from tesserack_mpi.world import MPI, has_failed

__all__ = ["Waiting"]

_TEXT = 240  # bytes of a greeting's text
_GREETING = np.dtype([("number", "<u8"), ("signature", "<u8"), ("text", f"S{_TEXT}")])
_DIRECT = 64  # ranks up to which each greets each, and so knows who is missing
_EAGER = 2e-4  # seconds of looking again at once, before sleeps between looks
_LONGEST = 1e-3  # seconds between looks
_NEWS = 1  # the tag of a message that says why a rank gives up


class Waiting:
    """Requests of one group of ranks, each waited for with a limit, and news of ranks that give up."""

    def __init__(self, comm: Any) -> None:
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._greetings, self._news = comm.Dup(), comm.Dup()
        self._mine = np.zeros(1, _GREETING)
        self._came = np.zeros(self.size, _GREETING)
        self._number = 0
        self._reason = ""
        self._lock = threading.Lock()
        self._left: list[Any] = []  # requests that will never end keep their memory
        self._told: list[Any] = []
        others = [k for k in range(self.size) if k != self.rank]
        self._others = others
        self._exchange: list[Any] = []
        if self.size <= _DIRECT:
            bytes_of = self._came.view(np.uint8).reshape(self.size, -1)
            self._exchange = [self._greetings.Recv_init([bytes_of[k], MPI.BYTE], source=k) for k in others]
            self._exchange += [self._greetings.Send_init([self._mine.view(np.uint8), MPI.BYTE], dest=k) for k in others]

    def greet(self, op: str, of: str, detail: Any, call: Call) -> str:
        """Meet all ranks; ``DistBackendError`` unless all called the same. Returns what is said of the call."""
        self._number += 1
        text = f"{op} #{self._number}{' of ' + of if of else ''}{' at ' + call.where if call.where else ''}"
        told = hashlib.blake2b(repr((op, self._number, of, detail)).encode(), digest_size=8).digest()
        self._mine[0] = (self._number, int.from_bytes(told, "little"), text.encode()[: _TEXT - 1])
        if self.size == 1:
            return text
        began = self._came["number"].copy()
        if self._exchange:
            MPI.Prequest.Startall(self._exchange)
            self.finish(self._exchange, text, call, began=began)
        else:
            kind = [self._came.view(np.uint8), MPI.BYTE]
            self.finish([self._greetings.Iallgather([self._mine.view(np.uint8), MPI.BYTE], kind)], text, call)
        self._came[self.rank] = self._mine[0]
        if (self._came["signature"] != self._mine["signature"]).any():
            called = "; ".join(f"rank {k} {self._text(k)}" for k in range(self.size))
            self.abort(f"ranks called different collectives: {called}")
            self.check()
        return text

    def _text(self, rank: int) -> str:
        return bytes(self._came["text"][rank]).decode(errors="replace")

    def finish(
        self, requests: Sequence[Any], text: str, call: Call, peers: Sequence[int] = (), began: Any = None
    ) -> None:
        """Until all of these are done, as :meth:`until`."""
        held = [*requests]
        try:
            self.until(lambda: bool(MPI.Request.Testall(held)), text, call, peers, began)
        except BaseException:
            self._left.append(held)
            raise

    def until(
        self, done: Callable[[], bool], text: str, call: Call, peers: Sequence[int] = (), began: Any = None
    ) -> None:
        """Look until something is so. ``DistBackendError`` with who is missing when the time is over, or with what
        another rank gave up for."""
        start, pause = time.monotonic(), 0.0
        try:
            while not done():
                waited = time.monotonic() - start
                if waited < _EAGER:
                    continue
                self.check()
                if waited > call.timeout:
                    self.abort(self._missing(text, call, peers, began))
                    self.check()
                time.sleep(pause)
                pause = min(_LONGEST, pause + 2e-5)
        except KeyboardInterrupt:
            self.abort(f"{text}: rank {self.rank} was interrupted")
            raise

    def _missing(self, text: str, call: Call, peers: Sequence[int], began: Any) -> str:
        late = list(peers)
        if began is not None:
            late = [k for k in self._others if self._came["number"][k] == began[k]]
        named = ", ".join(f"rank {k}" for k in late) or "some rank"
        last = "".join(f"; rank {k} last began {self._text(k) or 'nothing'}" for k in late)
        return f"{text}: {named} did not come within {call.timeout:g} s{last}"

    def abort(self, reason: str) -> None:
        """End what is under way and to come, here and on the others."""
        with self._lock:
            if self._reason:
                return
            self._reason = reason
        for other in self._others:
            with contextlib.suppress(MPI.Exception):
                self._told.append(self._news.isend(reason, dest=other, tag=_NEWS))

    def check(self) -> None:
        """``DistBackendError`` if somebody gave up."""
        if not self._reason:
            with self._lock:
                message = self._news.improbe(source=MPI.ANY_SOURCE, tag=_NEWS)
                if message is not None:
                    self._reason = str(message.recv())
        if self._reason:
            has_failed()
            raise DistBackendError(self._reason)

    def leave(self) -> None:
        """Tell those who still wait that this rank does not come any more."""
        last = self._mine["text"][0].decode(errors="replace") or "nothing"
        if not MPI.Is_finalized():
            self.abort(f"rank {self.rank} has ended: it left its groups; it last began {last}")

    @property
    def given_up(self) -> bool:
        """Whether the group is of no use any more."""
        return bool(self._reason)

    def close(self) -> None:
        """Give the communicators up; every rank of the group does."""
        if MPI.Is_finalized() or self._reason:
            return
        for request in self._exchange:
            request.Free()
        self._exchange = []
        self._greetings.Free()
        self._news.Free()
