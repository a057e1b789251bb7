"""A store that one process keeps and others reach over TCP.

A message is its length and its fields, each with its own: the operation, the time to wait, how many keys, keys, values.
An answer is the name of an error, empty if there was none, and values or what the error says.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

from tesserack.distributed import _errors
from tesserack.distributed._errors import DistNetworkError, DistStoreError
from tesserack.distributed._sockets import exactly
from tesserack.distributed._stores import Store
from tesserack.distributed._table import Table

__all__ = ["TCPStore"]

LARGEST = 1 << 30  # bytes of a message
GRACE = 1.0  # seconds that an answer may take beside what it waits for
WORKERS = "init/"  # counts who is there


def _pack(fields: list[bytes]) -> bytes:
    body = b"".join(struct.pack("!I", len(field)) + field for field in fields)
    return struct.pack("!I", len(body)) + body


def _receive(connection: socket.socket) -> list[bytes]:
    (length,) = struct.unpack("!I", exactly(connection, 4))
    if length > LARGEST:
        raise ConnectionResetError(f"a message of {length} bytes")
    body, fields, at = bytes(exactly(connection, length)), [], 0
    while at < length:
        if at + 4 > length:
            raise ConnectionResetError("a message that ends within a field")
        (size,) = struct.unpack_from("!I", body, at)
        if at + 4 + size > length:
            raise ConnectionResetError("a message that ends within a field")
        fields.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    return fields


class _Server:
    """The table, and threads that answer for it."""

    def __init__(self, host: str, port: int) -> None:
        self.table, self.users = Table(), 0
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._listening = socket.socket(family, kind)
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listening.bind(address)
        except OSError as error:
            self._listening.close()
            raise DistNetworkError(f"TCPStore: cannot listen at {host}:{port}: {error.strerror}") from error
        self._listening.listen(128)
        self.port: int = self._listening.getsockname()[1]
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, name="TCPStore", daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            self._connections = [c for c in self._connections if c.fileno() >= 0] + [connection]
            threading.Thread(target=self._serve, args=(connection,), name="TCPStore", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError, struct.error), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                op, seconds, count, *rest = _receive(connection)
                keys = [key.decode() for key in rest[: int(count)]]
                try:
                    answer = [b"", *self.table.run(op.decode(), keys, rest[int(count) :], float(seconds))]
                except Exception as error:
                    answer = [type(error).__name__.encode(), str(error).encode()]
                connection.sendall(_pack(answer))

    def leave(self) -> None:
        """One user less; after the last, listen and answer no more."""
        self.users -= 1
        if self.users:
            return
        for open_socket in (self._listening, *self._connections):
            with contextlib.suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
            open_socket.close()

    def forked(self) -> None:
        """In a child: its copies would keep the port, and connections, when this process has ended."""
        for copied in (self._listening, *self._connections):
            copied.close()


_servers: weakref.WeakValueDictionary[tuple[str, int], _Server] = weakref.WeakValueDictionary()
_stores: weakref.WeakSet[TCPStore] = weakref.WeakSet()


def _after_fork() -> None:
    for server in list(_servers.values()):
        server.forked()
    _servers.clear()
    for store in list(_stores):
        store.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class TCPStore(Store):
    """A store that the master keeps and ``world_size`` processes share; the master waits until they are there.

    ``port`` 0 takes a free one, which ``port`` then says. ``DistNetworkError`` if the master cannot listen there, or
    cannot be reached within ``timeout``.

    >>> import tesserack as ts
    >>> store = TCPStore("127.0.0.1", 0, world_size=1, is_master=True)
    >>> other = TCPStore("127.0.0.1", store.port)
    >>> store.set("key", "value")
    >>> other.get("key")
    b'value'
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = timedelta(seconds=300),
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__()
        if master_listen_fd is not None:
            raise NotImplementedError("TCPStore: expected no master_listen_fd; let it listen by itself")
        self.timeout, self.host, self.port = timeout, host_name, int(port)
        self._lock = threading.Lock()
        self._server = self._serve(multi_tenant) if is_master else None
        self._connection: socket.socket | None = None
        if self._server is not None:
            self.port = self._server.port
        else:
            self._connect()
        _stores.add(self)
        self.add(WORKERS, 1)
        if is_master and wait_for_workers and world_size:
            self._await_workers(world_size)

    @property
    def libuvBackend(self) -> bool:
        """Always False."""
        return False

    def _serve(self, multi_tenant: bool) -> _Server:
        known = _servers.get((self.host, self.port)) if multi_tenant else None
        server = known if known is not None and known.users else _Server(self.host, self.port)  # the last may have left
        _servers[self.host, server.port] = server
        server.users += 1
        weakref.finalize(self, server.leave)
        return server

    def forked(self) -> None:
        """In a child: it is a process of its own, which connects by itself once it asks."""
        if self._connection is not None:
            self._connection.close()
        self._server, self._connection, self._lock = None, None, threading.Lock()

    def _connect(self) -> socket.socket:
        end = time.monotonic() + self.timeout.total_seconds()
        while True:
            left = end - time.monotonic()
            try:
                connection = socket.create_connection((self.host, self.port), timeout=max(left, 0.05))
                if connection.getsockname() != connection.getpeername():
                    break
                connection.close()  # a port that nobody listens at, and chance, have made it its own other end
            except OSError as error:  # the master may not be there yet
                if left <= 0:
                    place = f"{self.host}:{self.port}"
                    raise DistNetworkError(f"TCPStore: no master answers at {place}: {error}") from error
                time.sleep(min(0.05, left))
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        weakref.finalize(self, connection.close)
        self._connection = connection
        return connection

    def _await_workers(self, world_size: int) -> None:
        end = time.monotonic() + self.timeout.total_seconds()
        while (there := int(self.get(WORKERS))) < world_size:
            if time.monotonic() > end:
                raise DistStoreError(f"TCPStore: {there} of {world_size} processes came within {self.timeout}")
            time.sleep(0.01)

    def _run(self, op: str, keys: list[str], values: list[bytes], timeout: float) -> list[bytes]:
        if self._server is not None:
            return self._server.table.run(op, keys, values, timeout)
        fields = [
            op.encode(),
            repr(timeout).encode(),
            str(len(keys)).encode(),
            *(key.encode() for key in keys),
            *values,
        ]
        try:
            with self._lock:
                connection = self._connection or self._connect()
                # The master keeps the time; one that is stopped keeps none.
                connection.settimeout(timeout + GRACE)
                connection.sendall(_pack(fields))
                error, *answer = _receive(connection)
        except TimeoutError as late:
            connection.close()  # an answer that still comes would be taken for another's
            raise DistNetworkError(
                f"TCPStore: the master at {self.host}:{self.port} did not answer within {timeout + GRACE:g} s ({op} of "
                f"{', '.join(keys) or 'nothing'})"
            ) from late
        except OSError as failed:
            raise DistNetworkError(f"TCPStore: the master at {self.host}:{self.port} is gone: {failed}") from failed
        if error:
            kind: Any = getattr(_errors, error.decode(), DistStoreError)
            raise kind(answer[0].decode())
        return answer

    def clone(self) -> Store:
        """A store of the same values, for another thread."""
        return TCPStore(self.host, self.port, timeout=self.timeout, wait_for_workers=False)

    def __repr__(self) -> str:
        return f"TCPStore({self.host}:{self.port}, {'master' if self._server else 'client'})"
