"""The communicator of ranks on one machine: shared memory, handed over with an anonymous file's descriptor.

The file has no name, so nothing stays behind however the processes end. Who shares it is who received the descriptor:
ranks on other machines cannot, and say so.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from tesserack import _native
from tesserack.distributed._engine import Call, Engine
from tesserack.distributed._errors import DistBackendError, DistError

__all__ = ["LocalEngine"]


def _told(call: Callable[..., Any], *arguments: Any) -> Any:
    """The native call, whose errors are those of ``torch.distributed``."""
    try:
        return call(*arguments)
    except RuntimeError as error:
        raise DistBackendError(str(error)) from None


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
            waiting, end = size - 1, time.monotonic() + timeout
            while waiting:
                listener.settimeout(min(1.0, max(0.01, end - time.monotonic())))
                with contextlib.suppress(TimeoutError):
                    connection, _ = listener.accept()
                    with connection:
                        socket.send_fds(connection, [b"d"], [descriptor])
                    waiting -= 1
                    continue
                if store.check([f"{prefix}/elsewhere"]):
                    raise DistError(_elsewhere(store.get(f"{prefix}/elsewhere").decode()))
                if time.monotonic() > end:
                    raise DistError(f"init: {waiting} of {size} ranks did not join within {timeout:g} s")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


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
        raise DistError(_elsewhere(str(rank)))
    return int(descriptors[0])


class LocalEngine(Engine):
    """Collectives through shared memory (``core/native/comm``)."""

    name = "local"

    def __init__(self, store: Any, prefix: str, rank: int, size: int, timeout: float) -> None:
        super().__init__(rank, size)
        descriptor = _share(store, prefix, size, timeout) if rank == 0 else _receive(store, prefix, rank, timeout)
        try:
            self._group = _native._LocalGroup(descriptor, rank, size)
        finally:
            os.close(descriptor)

    def barrier(self, call: Call) -> None:
        _told(self._group.barrier, *call)

    def broadcast(self, tensor: Any, root: int, call: Call) -> None:
        _told(self._group.broadcast, tensor.data_ptr(), tensor.numel(), tensor.dtype, root, *call)

    def all_reduce(self, source: Any, target: Any, op: int, call: Call) -> None:
        arguments = source.data_ptr(), target.data_ptr(), source.numel(), source.dtype, op
        _told(self._group.all_reduce, *arguments, *call)

    def reduce(self, source: Any, target: Any, op: int, root: int, call: Call) -> None:
        arguments = source.data_ptr(), target.data_ptr(), source.numel(), source.dtype, op, root
        _told(self._group.reduce, *arguments, *call)

    def all_gather(self, source: Any, targets: Sequence[Any], call: Call) -> None:
        _told(self._group.all_gather, source.data_ptr(), *_lists(targets), source.dtype, *call)

    def gather(self, source: Any, targets: Sequence[Any], counts: Sequence[int], root: int, call: Call) -> None:
        to = [t.data_ptr() for t in targets]
        _told(self._group.gather, source.data_ptr(), to, list(counts), source.dtype, root, *call)

    def scatter(self, sources: Sequence[Any], target: Any, counts: Sequence[int], root: int, call: Call) -> None:
        given = [t.data_ptr() for t in sources]
        _told(self._group.scatter, given, target.data_ptr(), list(counts), target.dtype, root, *call)

    def reduce_scatter(self, sources: Sequence[Any], target: Any, op: int, call: Call) -> None:
        given, counts = _lists(sources)
        _told(self._group.reduce_scatter, given, target.data_ptr(), counts, target.dtype, op, *call)

    def all_to_all(self, sources: Sequence[Any], targets: Sequence[Any], call: Call) -> None:
        _told(self._group.all_to_all, *_lists(sources), *_lists(targets), sources[0].dtype, *call)

    def send(self, tensor: Any, to: int, tag: int, call: Call) -> None:
        _told(self._group.send, tensor.data_ptr(), tensor.numel(), tensor.dtype, to, tag, *call)

    def receive(self, tensor: Any, source: int, tag: int, call: Call) -> int:
        arguments = tensor.data_ptr(), tensor.numel(), tensor.dtype, source, tag
        return int(_told(self._group.receive, *arguments, *call))

    def abort(self, reason: str) -> None:
        self._group.abort(reason)


def _lists(tensors: Sequence[Any]) -> tuple[list[int], list[int]]:
    return [t.data_ptr() for t in tensors], [t.numel() for t in tensors]
