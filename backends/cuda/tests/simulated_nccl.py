"""NCCL that is not there, under CuPy's names: several ranks of one process, whose collectives run when all have come.

A collective is done in the order of the stream it was given, reads and writes what addresses and counts say, and
refuses memory of another device.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from simulated_errors import SimulatedError

if TYPE_CHECKING:
    from simulated import Simulated

__all__ = ["NcclError", "SimulatedNccl"]


class NcclError(RuntimeError):
    """As CuPy's."""


_TYPES = {0: np.int8, 1: np.uint8, 2: np.int32, 3: np.uint32, 4: np.int64, 5: np.uint64, 6: np.float16, 7: np.float32}
_TYPES |= {8: np.float64, 9: np.uint16}  # bfloat16 is moved here, not added
_REDUCE = {0: np.add, 1: np.multiply, 2: np.maximum, 3: np.minimum}


class World:
    """What the ranks of one communicator have in common."""

    def __init__(self, size: int):
        self.size, self.failed = size, False
        self.steps: dict[int, list[Any]] = {}
        self.sent: dict[tuple[int, int], list[bytes]] = {}
        self.waiting: dict[tuple[int, int], list[Any]] = {}
        self.splits: dict[int, list[Any]] = {}


class SimulatedNccl:
    """The module."""

    NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_UINT32, NCCL_INT64, NCCL_UINT64 = range(6)
    NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64, NCCL_BFLOAT16 = range(6, 10)
    NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN, NCCL_AVG = range(5)
    NcclError = NcclError

    def __init__(self, driver: Simulated):
        self.driver, self.depth = driver, 0
        self.worlds: dict[bytes, World] = {}
        self._numbers = itertools.count(200)
        self.grouped = 0  # groups that were ended

    def get_unique_id(self) -> bytes:
        return next(self._numbers).to_bytes(128, "big")

    def get_version(self) -> int:
        return 23203

    def groupStart(self) -> None:
        self.depth += 1

    def groupEnd(self) -> None:
        assert self.depth > 0
        self.depth -= 1
        self.grouped += 1

    def NcclCommunicator(self, size: int, identity: bytes, rank: int) -> Communicator:
        assert len(identity) == 128
        world = self.worlds.setdefault(identity, World(size))
        assert world.size == size and 0 <= rank < size
        return Communicator(self, world, rank)


class Communicator:
    """One rank."""

    def __init__(self, module: SimulatedNccl, world: World, rank: int):
        self._module, self._world, self._rank, self._step = module, world, rank, 0
        self._device = module.driver.getDevice()
        self.destroyed = False

    def rank_id(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._world.size

    def destroy(self) -> None:
        assert not self.destroyed
        self.destroyed = True

    def abort(self) -> None:
        self._world.failed = True

    def check_async_error(self) -> None:
        if self._world.failed:
            raise NcclError("NCCL_ERROR_INTERNAL_ERROR: aborted")

    def _memory(self, address: int, count: int, kind: int) -> Any:
        driver, dtype = self._module.driver, np.dtype(_TYPES[kind])
        if driver._find(address, count * dtype.itemsize) != self._device:
            raise SimulatedError(1, f"{address:#x} is not of device {self._device}")
        return np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(address), dtype)

    def _ready(self, stream: int) -> None:
        """Work of the stream so far is done, and it alone."""
        driver = self._module.driver
        assert driver.getDevice() == self._device, "the communicator's device is not current"
        queue = driver._stream(stream)
        assert queue.device == self._device
        queue.run()

    def _meet(self, what: tuple[Any, ...], entry: Any) -> list[Any] | None:
        """All ranks' entries where this one is the last to come."""
        step, self._step = self._step, self._step + 1
        here = self._world.steps.setdefault(step, [what])
        if here[0] != what:
            raise NcclError(f"the ranks disagree: {here[0]} and {what}")
        here.append((self._rank, entry))
        return sorted(self._world.steps.pop(step)[1:]) if len(here) > self._world.size else None

    def _reduced(self, entries: list[Any], op: int) -> Any:
        values = [entry[0] for _, entry in entries]
        total = values[0].copy()
        for value in values[1:]:
            total = _REDUCE[0 if op == 4 else op](total, value)
        return (total / len(values)).astype(total.dtype) if op == 4 else total

    def allReduce(self, send: int, recv: int, count: int, kind: int, op: int, stream: int) -> None:
        self._ready(stream)
        entry = self._memory(send, count, kind), self._memory(recv, count, kind)
        if entries := self._meet(("allReduce", count, kind, op), entry):
            total = self._reduced(entries, op)
            for _, (_, out) in entries:
                out[:] = total

    def reduce(self, send: int, recv: int, count: int, kind: int, op: int, root: int, stream: int) -> None:
        self._ready(stream)
        entry = self._memory(send, count, kind), recv
        if entries := self._meet(("reduce", count, kind, op, root), entry):
            out = self._memory_of(entries[root], count, kind)
            out[:] = self._reduced(entries, op)

    def _memory_of(self, entry: Any, count: int, kind: int) -> Any:
        dtype = np.dtype(_TYPES[kind])
        return np.frombuffer((ctypes.c_ubyte * (count * dtype.itemsize)).from_address(entry[1][1]), dtype)

    def broadcast(self, send: int, recv: int, count: int, kind: int, root: int, stream: int) -> None:
        self._ready(stream)
        source = self._memory(send, count, kind) if self._rank == root else None
        if entries := self._meet(("broadcast", count, kind, root), (source, self._memory(recv, count, kind))):
            values = entries[root][1][0].copy()
            for _, (_, out) in entries:
                out[:] = values

    def allGather(self, send: int, recv: int, count: int, kind: int, stream: int) -> None:
        self._ready(stream)
        entry = self._memory(send, count, kind), self._memory(recv, count * self._world.size, kind)
        if entries := self._meet(("allGather", count, kind), entry):
            values = np.concatenate([given for _, (given, _) in entries])
            for _, (_, out) in entries:
                out[:] = values

    def reduceScatter(self, send: int, recv: int, count: int, kind: int, op: int, stream: int) -> None:
        self._ready(stream)
        entry = self._memory(send, count * self._world.size, kind), self._memory(recv, count, kind)
        if entries := self._meet(("reduceScatter", count, kind, op), entry):
            total = self._reduced(entries, op)
            for rank, (_, out) in entries:
                out[:] = total[rank * count : (rank + 1) * count]

    def send(self, buffer: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._ready(stream)
        values, key = bytes(self._memory(buffer, count, kind)), (self._rank, peer)
        if waiting := self._world.waiting.get(key):
            out = waiting.pop(0)
            assert out.nbytes == len(values)
            out.view(np.uint8)[:] = np.frombuffer(values, np.uint8)
        else:
            self._world.sent.setdefault(key, []).append(values)

    def recv(self, buffer: int, count: int, kind: int, peer: int, stream: int) -> None:
        self._ready(stream)
        out, key = self._memory(buffer, count, kind), (peer, self._rank)
        if sent := self._world.sent.get(key):
            values = sent.pop(0)
            assert out.nbytes == len(values)
            out.view(np.uint8)[:] = np.frombuffer(values, np.uint8)
        else:
            assert peer != self._rank or self._module.depth, "a receive from oneself outside a group waits for ever"
            self._world.waiting.setdefault(key, []).append(out)

    def commSplit(self, color: int, key: int, config: Any = None) -> Any:
        made = Communicator(self._module, World(1), 0)
        here = self._world.splits.setdefault(self._step, [])
        here.append((color, key, self._rank, made))
        if len(here) == self._world.size:
            for one in {c for c, *_ in here if c >= 0}:
                members = sorted(entry[1:] for entry in here if entry[0] == one)
                world = World(len(members))
                for rank, (_, _, member) in enumerate(members):
                    member._world, member._rank = world, rank
        return None if color < 0 else made
