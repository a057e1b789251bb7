"""The communicator of ranks on several machines: collectives over TCP (``core/native/comm/sockets.h``).

Each rank listens and writes its addresses into the store; of two ranks the higher calls the lower, three times: for
collectives, messages, and news of those who give up. Who calls proves with a word of the store that it belongs here.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import socket
import struct
import time
from typing import Any

from tesserack import _native
from tesserack.distributed._errors import DistError, DistNetworkError, DistStoreError
from tesserack.distributed._native_engine import NativeEngine
from tesserack.distributed._sockets import addresses, exactly, greet, listening, tuned

__all__ = ["TCPEngine"]

CHANNELS = 3  # collectives, letters, news
_HELLO = struct.Struct("!32sII")  # the word, the caller's rank, the channel
_SPINS = 200  # empty looks at the sockets before a rank sleeps


class _Mesh:
    """The sockets of one rank, by channel and rank."""

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        self.store, self.prefix, self.rank, self.size = store, prefix, rank, size
        self.end, self.timeout = time.monotonic() + timeout, timeout
        self.sockets: list[list[socket.socket | None]] = [[None] * size for _ in range(CHANNELS)]
        self.hosts: list[str] = []

    def connect(self) -> None:
        """Reach all, and be reached. ``DistError`` with the ranks that are missing when the time is over."""
        if self.rank == 0:
            self.store.set(f"{self.prefix}/word", secrets.token_bytes(32))
        places = addresses(_master(self.store))
        with listening(places) as listener:
            told = {"hosts": places, "port": listener.getsockname()[1], "machine": _machine()}
            self.store.set(f"{self.prefix}/rank{self.rank}", json.dumps(told))
            self.word = self.store.get(f"{self.prefix}/word")
            for other in range(self.rank):
                self._call(other)
            self._answer(listener)

    def _call(self, other: int) -> None:
        try:
            told = json.loads(self.store.get(f"{self.prefix}/rank{other}"))
        except DistStoreError:
            raise DistError(self._late([other])) from None
        self.hosts.append(told["machine"])
        failures: list[str] = []
        for host in told["hosts"]:
            try:
                for channel in range(CHANNELS):
                    self.sockets[channel][other] = self._connection(host, told["port"], channel)
                return
            except OSError as error:
                failures.append(f"{host}:{told['port']}: {error}")
                self._close(other)
        raise DistNetworkError(
            f"init: rank {self.rank} cannot reach rank {other} at {'; '.join(failures)}; try TESSERACK_SOCKET_IFNAME="
            "the network interface that the machines share, and see that no firewall is between them"
        )

    def _connection(self, host: str, port: int, channel: int) -> socket.socket:
        left = max(0.1, self.end - time.monotonic())
        connection = socket.create_connection((host, port), timeout=min(left, 20.0))
        try:
            greet(connection, _HELLO.pack(self.word, self.rank, channel))
        except BaseException:
            connection.close()
            raise
        return tuned(connection)

    def _answer(self, listener: socket.socket) -> None:
        while missing := self._missing():
            left = self.end - time.monotonic()
            if left <= 0:
                raise DistError(self._late(missing))
            listener.settimeout(min(left, 1.0))
            with contextlib.suppress(TimeoutError):
                self._admit(listener.accept()[0])

    def _late(self, missing: list[int]) -> str:
        named = ", ".join(f"rank {other}" for other in missing)
        return f"init: {named} did not join rank {self.rank} within {self.timeout:g} s"

    def _admit(self, connection: socket.socket) -> None:
        """Keep a caller that knows the word; others are left alone."""
        connection.settimeout(5.0)
        with contextlib.suppress(OSError):
            word, rank, channel = _HELLO.unpack(exactly(connection, _HELLO.size))
            fits = self.rank < rank < self.size and channel < CHANNELS and self.sockets[channel][rank] is None
            if fits and hmac.compare_digest(word, self.word):
                connection.sendall(b"ok")
                self.sockets[channel][rank] = tuned(connection)
                return
        connection.close()

    def _missing(self) -> list[int]:
        waited = range(self.rank + 1, self.size)
        return [k for k in waited if any(channel[k] is None for channel in self.sockets)]

    def _close(self, other: int) -> None:
        for channel in self.sockets:
            if (connection := channel[other]) is not None:
                connection.close()
                channel[other] = None

    def close(self) -> None:
        """Give up all connections."""
        for other in range(self.size):
            self._close(other)

    def descriptors(self) -> list[list[int]]:
        """The sockets' numbers, which are the caller's now; -1 for this rank."""
        return [[-1 if s is None else s.detach() for s in channel] for channel in self.sockets]

    def on_this_machine(self) -> int:
        """How many ranks share this one's processors."""
        told = [json.loads(self.store.get(f"{self.prefix}/rank{k}"))["machine"] for k in range(self.size)]
        return told.count(_machine())


def _machine() -> str:
    """Differs between machines that are up at once."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return socket.gethostname()


def _master(store: Any) -> str | None:
    """The host that a store is kept on, if it is kept on one."""
    while (inner := getattr(store, "underlying_store", None)) is not None:
        store = inner
    host = getattr(store, "host", None)
    return host if isinstance(host, str) else None


class TCPEngine(NativeEngine):
    """Collectives over TCP: between machines, or on one."""

    name = "tcp"

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)
        mesh = _Mesh(store, f"{prefix}/tcp", rank, size, timeout)
        try:
            mesh.connect()
            spins = _SPINS if mesh.on_this_machine() <= (os.cpu_count() or 1) else 0
        except BaseException:
            mesh.close()
            raise
        sockets = mesh.descriptors()
        self._group = _native._SocketGroup(*sockets, rank, spins)
        self._sockets = [each for channel in sockets for each in channel if each >= 0]
        self.settle(timeout)

    def forked(self) -> None:
        # Connections that a child has copies of are not seen to end with this process. Their numbers stay taken: the
        # native group closes them.
        nothing = os.open(os.devnull, os.O_RDWR)
        for each in self._sockets:
            os.dup2(nothing, each, inheritable=False)
        os.close(nothing)
        super().forked()

    def close(self) -> None:
        self._sockets = []
        super().close()
