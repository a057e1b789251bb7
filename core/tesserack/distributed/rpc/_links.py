"""Connections between workers: messages with their length, over sockets that know the store's word."""

from __future__ import annotations

import contextlib
import hmac
import pickle
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from tesserack.distributed._sockets import exactly, greet, listening, tuned

__all__ = ["Doors", "Link"]

WORD = 32  # bytes
_HELLO = struct.Struct(f"!{WORD}sI")  # the word, and who calls
_LENGTH = struct.Struct("!Q")
_PATIENCE = 20.0  # seconds that a connection may take to be there


class Link:
    """A connection on which whole messages go, from any thread."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._lock = connection, threading.Lock()

    @classmethod
    def towards(cls, hosts: list[str], port: int, word: bytes, me: int) -> Link:
        """One to a worker at the first of these hosts that answers. ``OSError`` if none does."""
        failures = []
        for host in hosts:
            try:
                link = cls(socket.create_connection((host, port), timeout=_PATIENCE))
            except OSError as error:
                failures.append(f"{host}:{port}: {error}")
                continue
            try:
                greet(link._socket, _HELLO.pack(word, me))
                link._socket.settimeout(None)
                tuned(link._socket)
                return link
            except OSError as error:
                failures.append(f"{host}:{port}: {error}")
                link.close()
        raise ConnectionError("; ".join(failures))

    def send(self, message: Any) -> None:
        """A message, which pickles."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._lock:
            self._socket.sendall(_LENGTH.pack(len(data)))
            self._socket.sendall(data)

    def receive(self) -> Any:
        """The next message. ``OSError`` when the other end is gone."""
        (length,) = _LENGTH.unpack(exactly(self._socket, _LENGTH.size))
        return pickle.loads(exactly(self._socket, length))

    def close(self) -> None:
        """End it; who receives is told."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Doors:
    """Where a worker is reached: each caller that knows the word gets a thread, which runs ``serve(link, caller)``."""

    def __init__(self, hosts: list[str], word: bytes, serve: Callable[[Link, int], None]) -> None:
        self._listener = listening(hosts)
        self.port: int = self._listener.getsockname()[1]
        self._word, self._serve = word, serve
        self._links: list[Link] = []
        threading.Thread(target=self._accept, name="rpc", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._admit, args=(connection,), name="rpc", daemon=True).start()

    def _admit(self, connection: socket.socket) -> None:
        link = Link(connection)
        try:
            connection.settimeout(_PATIENCE)
            word, caller = _HELLO.unpack(exactly(connection, _HELLO.size))
            if not hmac.compare_digest(word, self._word):
                return
            connection.sendall(b"ok")
            connection.settimeout(None)
            tuned(connection)
            self._links.append(link)
            self._serve(link, caller)
        except OSError:
            pass
        finally:
            link.close()

    def close(self) -> None:
        """Nobody is let in any more, and who is there is told."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for link in self._links:
            link.close()
