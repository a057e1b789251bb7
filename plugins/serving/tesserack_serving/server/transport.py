"""The way of answers from workers to frontends: a socket for each pair, several answers in one message."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from litserve.transport.process_transport import MPQueueTransport

__all__ = ["Bundles"]

_HEAD = 8  # bytes that say how long a message is

Take = Callable[[str, Any], None]


class Bundles(MPQueueTransport):  # type: ignore[misc] # without types
    """A step of a worker answers many requests: they travel as one message, and are taken apart on arrival.

    The message goes from process to process: by LitServe's queues, which are a process of their own, it would take
    longer than a small request takes in all else.
    """

    def __init__(self, manager: Any, queues: Sequence[Any], folder: Path) -> None:
        super().__init__(manager, queues)
        self._folder = folder
        self._outgoing: dict[int, socket.socket] = {}
        self._sending = threading.Lock()

    def _path(self, consumer_id: int) -> str:
        return str(self._folder / f"a{consumer_id}")  # no longer than those of the queues: systems have a limit

    # --- of workers --------------------------------------------------------------------------------------------------

    def send_all(self, answers: Sequence[tuple[str, Any]], consumer_id: int) -> None:
        """Send answers with their requests' keys."""
        packed = pickle.dumps(answers, pickle.HIGHEST_PROTOCOL)
        with self._sending, contextlib.suppress(OSError):  # of a frontend that has ended, for which nobody waits
            try:
                if consumer_id not in self._outgoing:
                    made = self._outgoing[consumer_id] = socket.socket(socket.AF_UNIX)
                    made.connect(self._path(consumer_id))
                self._outgoing[consumer_id].sendall(len(packed).to_bytes(_HEAD, "little") + packed)
            except OSError:
                self._outgoing.pop(consumer_id).close()
                raise

    # --- of frontends ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def taking(self, consumer_id: int, take: Take) -> AsyncIterator[None]:
        """Within it ``take`` is given what is sent to a frontend."""
        loop = asyncio.get_running_loop()
        server = await loop.create_unix_server(lambda: _Incoming(take), self._path(consumer_id))
        try:
            yield
        finally:
            server.close()

    async def areceive(self, consumer_id: int, timeout: float | None = None, block: bool = True) -> Any:
        """Nothing, until LitServe cancels it: answers are given to those that wait for them."""
        await asyncio.Event().wait()

    def __reduce__(self) -> Any:
        return (Bundles, (None, self._queues, self._folder))


class _Incoming(asyncio.Protocol):
    """What a worker sends."""

    def __init__(self, take: Take) -> None:
        self.take = take
        self.arrived = bytearray()

    def data_received(self, data: bytes) -> None:
        """Whole messages are taken."""
        self.arrived += data
        while len(self.arrived) >= _HEAD:
            end = _HEAD + int.from_bytes(self.arrived[:_HEAD], "little")
            if len(self.arrived) < end:
                return
            packed = self.arrived[_HEAD:end]
            del self.arrived[:end]
            for key, answer in pickle.loads(packed):
                self.take(key, answer)
