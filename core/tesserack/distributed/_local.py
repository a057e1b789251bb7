"""The communicator of ranks on one machine: shared memory, handed over with an anonymous file's descriptor.

The file has no name, so nothing stays behind however the processes end. Who shares it is who received the descriptor:
the first rank writes down what came of it, so that all go on alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from typing import Any

from tesserack import _native
from tesserack.distributed._errors import DistError
from tesserack.distributed._native_engine import NativeEngine

__all__ = ["ElsewhereError", "LocalEngine"]

LARGEST = 64  # ranks that share memory


class ElsewhereError(DistError):
    """Ranks cannot share memory: the same on each of them."""


def _share(store: Any, prefix: str, size: int, timeout: float) -> int:
    """The first rank's part: a file for all, given to each that calls."""
    descriptor = os.memfd_create("tesserack-local", os.MFD_CLOEXEC)
    try:
        os.ftruncate(descriptor, _native._LocalGroup.bytes_for(size))
        name = f"tesserack-{secrets.token_hex(8)}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind("\0" + name)
            listener.listen(size)
            store.set(f"{prefix}/address", name)
            _hand_out(descriptor, listener, store, prefix, size, timeout)
        store.set(f"{prefix}/verdict", "shared")
    except BaseException as error:
        os.close(descriptor)
        with contextlib.suppress(Exception):
            kind = "elsewhere" if isinstance(error, ElsewhereError) else "failed"
            store.set(f"{prefix}/verdict", f"{kind} {error}")
        raise
    return descriptor


def _hand_out(descriptor: int, listener: socket.socket, store: Any, prefix: str, size: int, timeout: float) -> None:
    waiting, end = size - 1, time.monotonic() + timeout
    while waiting:
        listener.settimeout(min(0.25, max(0.01, end - time.monotonic())))
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            with connection:
                socket.send_fds(connection, [b"d"], [descriptor])
            waiting -= 1
            continue
        if store.check([f"{prefix}/elsewhere"]):
            raise ElsewhereError(_elsewhere(store.get(f"{prefix}/elsewhere").decode()))
        if time.monotonic() > end:
            raise DistError(f"init: {waiting} of {size} ranks did not join within {timeout:g} s")


def _elsewhere(rank: str) -> str:
    return (
        f"init: expected ranks on one machine, got rank {rank} where the first rank's memory cannot be shared (another "
        "machine or network namespace); try backend='tcp', or launch with MPI and backend='mpi'"
    )


def _receive(store: Any, prefix: str, rank: int, timeout: float) -> int:
    """Another rank's part."""
    name = store.get(f"{prefix}/address").decode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        try:
            connection.connect("\0" + name)
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
        except OSError:
            descriptors = []
    if not descriptors:
        store.set(f"{prefix}/elsewhere", str(rank))
    verdict, _, text = store.get(f"{prefix}/verdict").decode().partition(" ")
    if verdict == "shared" and descriptors:
        return int(descriptors[0])
    for descriptor in descriptors:
        os.close(descriptor)
    raise (ElsewhereError if verdict == "elsewhere" else DistError)(text or f"init: rank {rank} got no shared memory")


class LocalEngine(NativeEngine):
    """Collectives through shared memory (``core/native/comm``)."""

    name = "local"

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)
        if size > LARGEST:
            raise ElsewhereError(
                f"init: expected at most {LARGEST} ranks that share memory, got {size}; try backend='tcp'"
            )
        descriptor = _share(store, prefix, size, timeout) if rank == 0 else _receive(store, prefix, rank, timeout)
        try:
            self._group = _native._LocalGroup(descriptor, rank, size)
        finally:
            os.close(descriptor)
