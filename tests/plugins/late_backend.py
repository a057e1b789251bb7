"""A device whose streams run late: each is a thread that takes its time, memory is poison until written and after it is
freed, and errors are told at the next wait. Its kernels are the reference backend's."""

from __future__ import annotations

import inspect
import queue
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tesserack.backends import Backend

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "reference"))

POISON = 0xFF  # a NaN, or a number nobody expects


class Stream:
    """Work in order, on a thread of its own, after a pause now and then."""

    def __init__(self) -> None:
        self.items: queue.Queue[Callable[[], None]] = queue.Queue()
        self.go = threading.Event()
        self.go.set()
        self.errors: list[Exception] = []
        self.random = random.Random(id(self))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self.items.get()
            self.go.wait()
            if self.random.random() < 0.02:
                time.sleep(0.001)
            try:
                work()
            except Exception as error:  # told by the next wait
                self.errors.append(error)
            self.items.task_done()

    def wait(self) -> None:
        self.items.join()
        if self.errors:
            raise self.errors.pop(0)


class Late(Backend):
    """The device; ``own`` hands every allocation and freeing to it, where memory is poisoned in the stream's order."""

    vendor = "org.tesserack.tests.late"

    def __init__(self, name: str, own: bool, devices: int = 1) -> None:
        self.name = name
        self.own_allocator = own
        self.default = [Stream() for _ in range(devices)]
        self.streams: list[Stream] = []
        self.allocated: list[int] = []  # addresses
        self.freed: list[tuple[int, Stream | None]] = []
        self.opened: list[int] = []
        self.pinned: dict[int, np.ndarray[Any, Any]] = {}
        super().__init__()
        from tesserack_reference import backend as reference

        for op, record in reference._kernels.items():
            self._kernels[op] = (self._later(record[0]), None, *self._fields(record[2]), *record[3:])

    @staticmethod
    def _fields(fields: tuple[str, ...]) -> tuple[tuple[str, ...]]:
        return ((*fields, *(name for name in ("stream", "device") if name not in fields)),)

    def _later(self, function: Callable[..., None]) -> Callable[..., None]:
        wanted = {p.name for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}

        def kernel(*args: Any, stream: Stream | None, device: int, **fields: Any) -> None:
            fields = {name: value for name, value in fields.items() if name in wanted}
            self.queue(device, stream, lambda: function(*args, **fields))

        return kernel

    def stream(self, device: int, stream: Stream | None) -> Stream:
        return stream or self.default[device]

    def queue(self, device: int, stream: Stream | None, work: Callable[[], None]) -> None:
        assert device in self.opened, "used before open()"
        self.stream(device, stream).items.put(work)

    # --- the table ----------------------------------------------------------------------------------------------------

    def probe(self) -> int:
        return len(self.default)

    def properties(self, device: int) -> dict[str, Any]:
        return {"name": f"late {device}", "asynchronous": True, "simulated": True}

    def open(self, device: int) -> None:
        time.sleep(0.01)
        assert device not in self.opened
        self.opened.append(device)

    def alloc(self, device: int, nbytes: int, stream: Any) -> Any:
        memory = np.full(nbytes, POISON, np.uint8)
        self.allocated.append(memory.ctypes.data)
        return memory

    def free(self, device: int, handle: Any, nbytes: int, stream: Any) -> None:
        self.freed.append((handle.ctypes.data, stream))
        self.queue(device, stream, lambda: handle.fill(POISON))

    def copy_from_host(self, device: int, dst: Any, dst_offset: int, src: memoryview, stream: Any) -> None:
        data = np.frombuffer(bytes(src), np.uint8)
        self.queue(device, stream, lambda: dst.__setitem__(slice(dst_offset, dst_offset + data.size), data))

    def copy_to_host(self, device: int, dst: memoryview, src: Any, src_offset: int, stream: Any) -> None:
        self.stream(device, stream).wait()
        np.frombuffer(dst, np.uint8)[:] = src[src_offset : src_offset + dst.nbytes]

    def copy_within(
        self, device: int, dst: Any, dst_offset: int, src: Any, src_offset: int, nbytes: int, stream: Any
    ) -> None:
        def copy() -> None:
            dst[dst_offset : dst_offset + nbytes] = src[src_offset : src_offset + nbytes]

        self.queue(device, stream, copy)

    def copy_peer(
        self,
        device: int,
        dst: Any,
        dst_offset: int,
        src_backend: str,
        src_device: int,
        src: Any,
        src_offset: int,
        nbytes: int,
        stream: Any,
    ) -> Any:
        if src_backend != self.name:
            return NotImplemented
        return self.copy_within(device, dst, dst_offset, src, src_offset, nbytes, stream)

    def synchronize(self, device: int, stream: Any) -> None:
        self.stream(device, stream).wait()

    def stream_create(self, device: int, priority: int) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def stream_query(self, device: int, stream: Any) -> bool:
        return self.stream(device, stream).items.unfinished_tasks == 0

    def stream_wait_event(self, device: int, stream: Any, event: Any) -> None:
        self.queue(device, stream, event["done"].wait)

    def event_create(self, device: int, timing: bool) -> dict[str, threading.Event]:
        return {"done": threading.Event()}

    def event_record(self, device: int, event: Any, stream: Any) -> None:
        done = event["done"] = threading.Event()
        self.queue(device, stream, done.set)

    def event_query(self, device: int, event: Any) -> bool:
        return bool(event["done"].is_set())

    def event_synchronize(self, device: int, event: Any) -> None:
        event["done"].wait()

    # --- pinned memory ------------------------------------------------------------------------------------------------

    def host_alloc(self, nbytes: int) -> int:
        memory = np.full(nbytes, POISON, np.uint8)
        self.pinned[memory.ctypes.data] = memory
        return int(memory.ctypes.data)

    def host_free(self, address: int, nbytes: int) -> None:
        memory = self.pinned.pop(address)
        assert memory.size == nbytes
        memory.fill(POISON)

    def _at(self, address: int, nbytes: int) -> Any:
        for start, memory in self.pinned.items():
            if start <= address and address + nbytes <= start + memory.size:
                return memory[address - start : address - start + nbytes]
        raise AssertionError("not pinned memory")

    def copy_from_pinned(self, device: int, dst: Any, dst_offset: int, address: int, nbytes: int, stream: Any) -> None:
        src = self._at(address, nbytes)
        self.queue(device, stream, lambda: dst.__setitem__(slice(dst_offset, dst_offset + nbytes), src))

    def copy_to_pinned(self, device: int, address: int, src: Any, src_offset: int, nbytes: int, stream: Any) -> None:
        dst = self._at(address, nbytes)
        self.queue(device, stream, lambda: dst.__setitem__(..., src[src_offset : src_offset + nbytes]))
