"""The communicator of ranks on one machine: shared memory, handed over with an anonymous file's descriptor.

The file has no name, so nothing stays behind however the processes end. Who shares it is who received the descriptor:
the first rank writes down what came of it, so that all go on alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import struct
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from tesserack import _native
from tesserack.distributed._engine import Call
from tesserack.distributed._errors import DistError
from tesserack.distributed._gathering import GRACE
from tesserack.distributed._native_engine import NativeEngine, lists, told

__all__ = ["ElsewhereError", "LocalEngine"]

LARGEST = 64  # ranks that share memory
_RANK = struct.Struct("!I")


class ElsewhereError(DistError):
    """Ranks cannot share memory: the same on each of them."""


def _share(store: Any, prefix: str, size: int, timeout: float) -> Any:
    """The first rank's part: a file for all, given to each that calls."""
    try:
        descriptor = os.memfd_create("tesserack-local", os.MFD_CLOEXEC)
        try:
            os.ftruncate(descriptor, _native._LocalGroup.bytes_for(size))
            group = _native._LocalGroup(descriptor, 0, size)
            name = f"tesserack-{secrets.token_hex(8)}"
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind("\0" + name)
                listener.listen(size)
                store.set(f"{prefix}/address", name)
                _hand_out(descriptor, listener, store, prefix, size, timeout)
        finally:
            os.close(descriptor)
        store.set(f"{prefix}/verdict", "shared")
    except BaseException as error:
        with contextlib.suppress(Exception):
            kind = "elsewhere" if isinstance(error, ElsewhereError) else "failed"
            store.set(f"{prefix}/verdict", f"{kind} {error}")
        raise
    return group


def _hand_out(descriptor: int, listener: socket.socket, store: Any, prefix: str, size: int, timeout: float) -> None:
    """Until each has said that it has the memory. One that ends meanwhile is gone for good, and the others with it."""
    callers: dict[int, socket.socket] = {}
    missing, end = set(range(1, size)), time.monotonic() + timeout
    with contextlib.ExitStack() as open_sockets:
        while len(callers) < size - 1:
            listener.settimeout(min(0.25, max(0.01, end - time.monotonic())))
            with contextlib.suppress(TimeoutError):
                caller = open_sockets.enter_context(listener.accept()[0])
                rank = _read_rank(caller, end)
                if rank in missing and rank not in callers:
                    socket.send_fds(caller, [b"d"], [descriptor])
                    callers[rank] = caller
                continue
            if store.check([f"{prefix}/elsewhere"]):
                raise ElsewhereError(_elsewhere(store.get(f"{prefix}/elsewhere").decode()))
            if time.monotonic() > end:
                raise DistError(_late(missing - callers.keys(), timeout))
        for rank, caller in callers.items():
            try:
                caller.settimeout(max(0.01, end - time.monotonic()))
                there = caller.recv(1) == b"k"
            except TimeoutError:
                raise DistError(_late({rank}, timeout)) from None
            except OSError:
                there = False
            if not there:
                raise DistError(f"init: rank {rank} has ended while it joined; look at its output")


def _read_rank(caller: socket.socket, end: float) -> int:
    """Whom a caller says to be, -1 for one that has ended."""
    caller.settimeout(max(0.01, end - time.monotonic()))
    with contextlib.suppress(ConnectionError):
        if said := caller.recv(_RANK.size, socket.MSG_WAITALL):
            return int(_RANK.unpack(said)[0]) if len(said) == _RANK.size else -1
    return -1


def _late(ranks: set[int], timeout: float) -> str:
    named = ", ".join(f"rank {k}" for k in sorted(ranks))
    return f"init: {named} did not join within {timeout:g} s (told by rank 0)"


def _elsewhere(rank: str) -> str:
    return (
        f"init: expected ranks on one machine, got rank {rank} where the first rank's memory cannot be shared (another "
        "machine or network namespace); try backend='tcp', or launch with MPI and backend='mpi'"
    )


def _receive(store: Any, prefix: str, rank: int, size: int, timeout: float) -> Any:
    """Another rank's part."""
    name, group = store.get(f"{prefix}/address").decode(), None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout)
        descriptors: list[int] = []
        try:
            connection.connect("\0" + name)
            connection.sendall(_RANK.pack(rank))
            _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
            if descriptors:
                group = _native._LocalGroup(descriptors[0], rank, size)
                connection.sendall(b"k")
        except OSError:
            group = None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        if group is None:
            store.set(f"{prefix}/elsewhere", str(rank))
        # The first rank may notice at its end that others are late: it is it that says so.
        store.wait([f"{prefix}/verdict"], timedelta(seconds=timeout + GRACE))
    verdict, _, text = store.get(f"{prefix}/verdict").decode().partition(" ")
    if verdict == "shared" and group is not None:
        return group
    raise (ElsewhereError if verdict == "elsewhere" else DistError)(text or f"init: rank {rank} got no shared memory")


class LocalEngine(NativeEngine):
    """Collectives through shared memory (``core/native/comm``)."""

    name = "local"
    takes_parts = True
    allocates = True
    by_ranks = True

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)
        if size > LARGEST:
            raise ElsewhereError(
                f"init: expected at most {LARGEST} ranks that share memory, got {size}; try backend='tcp'"
            )
        first = rank == 0
        self._group = _share(store, prefix, size, timeout) if first else _receive(store, prefix, rank, size, timeout)
        self.settle(timeout)

    def all_reduce_parts(self, tensors: Sequence[Any], op: int, call: Call) -> None:
        told(self._group.all_reduce_parts, *lists(tensors), tensors[0].dtype, op, *call)

    def allocate(self, size: int, call: Call) -> Any:
        return told(self._group.window, size, *call)

    def leave(self) -> None:
        """The others see this rank gone at once: what the process still does (``MPI_Finalize``) may wait for them."""
        self._group.leave()
        self.close()
