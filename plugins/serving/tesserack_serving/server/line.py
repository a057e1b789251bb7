"""The line in which requests wait for workers, in a process of its own as LitServe's is: several leave it at once."""

from __future__ import annotations

import queue
from collections.abc import Callable
from multiprocessing.managers import BaseManager, BaseProxy
from typing import Any

__all__ = ["Lines", "WaitingLine"]


class _Line(queue.Queue):  # type: ignore[type-arg] # of bytes
    def take(self, limit: int, seconds: float) -> list[bytes]:
        """Up to ``limit`` requests; none if none comes within that time."""
        taken: list[bytes] = []
        try:
            taken.append(self.get(seconds > 0, seconds))
            while len(taken) < limit:
                taken.append(self.get_nowait())
        except queue.Empty:
            pass
        return taken


class WaitingLine(BaseProxy):
    """A line, seen from another process: each call is a message there and one back, whatever it brings."""

    _exposed_ = ("put", "take")

    def put(self, packed: bytes) -> None:
        """Have a request wait at the end."""
        self._callmethod("put", (packed,))

    def take(self, limit: int, seconds: float) -> list[bytes]:
        """Take the next requests, up to ``limit``; none if none comes within ``seconds``.

        Raises:
            EOFError, ConnectionError: the server has ended.
        """
        called: Callable[..., Any] = self._callmethod  # whose result the types leave out
        found: list[bytes] = called("take", (limit, seconds))
        return found


class Lines(BaseManager):
    """The process of a server's line: ``Lines().line()`` once it is started."""

    def line(self) -> WaitingLine:
        """A new one."""
        made: WaitingLine = self._line()  # type: ignore[attr-defined]
        return made


Lines.register("_line", _Line, WaitingLine)
