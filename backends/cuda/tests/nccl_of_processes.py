"""NCCL that is not there, for ranks in processes of their own: what each gives travels by a store of the first.

A collective is done when all ranks have called it; until then it keeps the caller, or waits for ever, as NCCL's does.
"""

from __future__ import annotations

import ctypes
import pickle
import threading
import time
from datetime import timedelta
from typing import Any

import numpy as np
from simulated_nccl import _REDUCE, _TYPES, NcclError, SimulatedNccl
from tesserack.distributed import TCPStore

__all__ = ["NcclOfProcesses"]

_LONG = timedelta(days=1)
_BFLOAT16 = 9


class NcclOfProcesses(SimulatedNccl):
    """The module. ``calls``: what was called, by name."""

    def __init__(self, driver: Any) -> None:
        super().__init__(driver)
        self.calls: list[str] = []
        self._kept: list[Any] = []
        self.later: list[Any] = []  # receives of a group

    def get_unique_id(self) -> bytes:
        self._kept.append(TCPStore("127.0.0.1", 0, is_master=True, timeout=_LONG, wait_for_workers=False))
        return int(self._kept[-1].port).to_bytes(128, "big")

    def groupEnd(self) -> None:
        super().groupEnd()
        later, self.later = self.later, []
        for receive in later:
            receive()

    def NcclCommunicator(self, size: int, identity: bytes, rank: int) -> Any:
        store = TCPStore("127.0.0.1", int.from_bytes(identity, "big"), timeout=_LONG)
        return _Rank(self, store, size, rank)


def _wide(values: Any, kind: int) -> Any:
    return (values.astype(np.uint32) << 16).view(np.float32) if kind == _BFLOAT16 else values


class _Rank:
    """One rank of a communicator."""

    def __init__(self, module: NcclOfProcesses, store: Any, size: int, rank: int) -> None:
        self._module, self._store, self._size, self._rank = module, store, size, rank
        self._device, self._step, self._failed = module.driver.getDevice(), 0, threading.Event()
        self._sent: dict[tuple[int, int], int] = {}
        self._exchange("opened", b"")

    def destroy(self) -> None:
        self._module.calls.append("destroy")

    def abort(self) -> None:
        self._failed.set()

    def check_async_error(self) -> None:
        if self._failed.is_set():
            raise NcclError("NCCL_ERROR_INTERNAL_ERROR: aborted")

    def _get(self, key: str) -> bytes:
        while not self._store.check([key]):
            self.check_async_error()
            time.sleep(1e-3)
        return bytes(self._store.get(key))

    def _exchange(self, what: str, data: bytes) -> list[bytes]:
        self._step += 1
        self._module.calls.append(what)
        self._store.set(f"{self._step}/{self._rank}", pickle.dumps((what, data)))
        told = [pickle.loads(self._get(f"{self._step}/{k}")) for k in range(self._size)]
        if {name for name, _ in told} != {what}:
            raise NcclError(f"the ranks disagree: {[name for name, _ in told]}")
        return [data for _, data in told]

    def _memory(self, address: int, count: int, kind: int, stream: int) -> Any:
        driver, dtype = self._module.driver, np.dtype(_TYPES[kind])
        assert driver.getDevice() == self._device, "the communicator's device is not current"
        driver._stream(stream).run()
        if count and driver._find(address, count * dtype.itemsize) != self._device:
            raise NcclError(f"{address:#x} is not of device {self._device}")
        return (
            np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address), dtype)
            if count
            else np.empty(0, dtype)
        )

    def _reduced(self, what: str, send: int, count: int, kind: int, op: int, stream: int) -> Any:
        given = self._exchange(what, self._memory(send, count, kind, stream).tobytes())
        values = [_wide(np.frombuffer(each, _TYPES[kind]), kind) for each in given]
        total = values[0].copy()
        for value in values[1:]:
            total = _REDUCE[0 if op == 4 else op](total, value)
        if op == 4:
            total = (total / self._size).astype(total.dtype)
        return (total.view(np.uint32) >> 16).astype(np.uint16) if kind == _BFLOAT16 else total

    def allReduce(self, send: int, recv: int, count: int, kind: int, op: int, stream: int) -> None:
        total = self._reduced("all_reduce", send, count, kind, op, stream)
        self._memory(recv, count, kind, stream)[:] = total

    def reduce(self, send: int, recv: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        total = self._reduced("reduce", send, count, kind, op, stream)
        if self._rank == root:
            self._memory(recv, count, kind, stream)[:] = total

    def broadcast(self, send: int, recv: int, count: int, kind: int, root: int, stream: int) -> None:
        data = self._memory(send, count, kind, stream).tobytes() if self._rank == root else b""
        given = self._exchange("broadcast", data)[root]
        self._memory(recv, count, kind, stream)[:] = np.frombuffer(given, _TYPES[kind])

    def allGather(self, send: int, recv: int, count: int, kind: int, stream: int) -> None:
        given = self._exchange("all_gather", self._memory(send, count, kind, stream).tobytes())
        self._memory(recv, count * self._size, kind, stream)[:] = np.frombuffer(b"".join(given), _TYPES[kind])

    def reduceScatter(self, send: int, recv: int, count: int, kind: int, op: int, stream: int) -> None:
        total = self._reduced("reduce_scatter", send, count * self._size, kind, op, stream)
        self._memory(recv, count, kind, stream)[:] = total[self._rank * count : (self._rank + 1) * count]

    def _next(self, sender: int, receiver: int) -> str:
        number = self._sent[sender, receiver] = self._sent.get((sender, receiver), 0) + 1
        return f"{sender} to {receiver}/{number}"

    def send(self, buffer: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._module.calls.append("send")
        self._store.set(self._next(self._rank, peer) + "!", self._memory(buffer, count, kind, stream).tobytes())

    def recv(self, buffer: int, count: int, kind: int, peer: int, stream: int) -> None:
        key = f"{peer} to {self._rank}/{self._taken(peer)}!"

        def receive() -> None:
            self._memory(buffer, count, kind, stream)[:] = np.frombuffer(self._get(key), _TYPES[kind])

        if self._module.depth:
            self._module.later.append(receive)
        else:
            receive()

    def _taken(self, peer: int) -> int:
        key = (-1 - peer, self._rank)
        self._sent[key] = self._sent.get(key, 0) + 1
        return self._sent[key]
