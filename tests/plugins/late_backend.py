"""A device whose streams run late, in an order that chance decides where none is promised.

Memory is poison until written and after it is freed, and errors are told at the next wait. Its kernels are those of the
reference backend, and it records what a stream is given, to do it again.
"""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tesserack.backends import Backend

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "plugins" / "reference"))

POISON = 0xFF  # a NaN, or a number nobody expects


class Scheduler:
    """Does the work of all streams on one thread: that of a stream in its order, of which stream is up to chance.

    One that ``holds`` does nothing until the host waits or asks, so that no test hangs on who is quicker.
    """

    def __init__(self, holds: bool = False) -> None:
        self.holds, self.waits, self.asked = holds, 0, 0
        self.changed = threading.Condition()
        self.streams: list[Stream] = []
        self.random = random.Random(0)
        threading.Thread(target=self._run, daemon=True).start()

    @contextlib.contextmanager
    def awaited(self) -> Iterator[None]:
        """Within, the host waits: work is done."""
        with self.changed:
            self.waits += 1
            self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self.waits -= 1

    def ask(self) -> None:
        """Whoever asks again and again sees work go on, a piece for each time."""
        with self.changed:
            self.asked += 1
            self.changed.notify_all()

    def _pick(self) -> Stream | None:
        if self.holds and not self.waits and not self.asked:
            return None
        ready = [s for s in self.streams if s.items and s.go.is_set() and s.items[0][0]()]
        if ready and not self.waits:
            self.asked -= 1 if self.asked else 0
        return self.random.choice(ready) if ready else None

    def _run(self) -> None:
        while True:
            with self.changed:
                while (stream := self._pick()) is None:
                    self.changed.wait(0.002)  # what is waited for may come from elsewhere
                work = stream.items[0][1]
            if not self.holds and self.random.random() < 0.01:
                time.sleep(0.001)
            try:
                work()
            except Exception as error:  # told by the next wait
                stream.errors.append(error)
            with self.changed:
                stream.items.popleft()
                self.changed.notify_all()


class Stream:
    """Work in order. While it is recorded, work is kept instead of done."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.items: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()  # when it may begin, and what
        self.go = threading.Event()
        self.go.set()
        self.errors: list[Exception] = []
        self.recording: list[tuple[Callable[[], bool], Callable[[], None]]] | None = None
        self.scheduler = scheduler
        with scheduler.changed:
            scheduler.streams.append(self)

    def put(self, work: Callable[[], None], ready: Callable[[], bool] = lambda: True) -> None:
        if self.recording is not None:
            self.recording.append((ready, work))
            return
        with self.scheduler.changed:
            self.items.append((ready, work))
            self.scheduler.changed.notify_all()

    def wait(self) -> None:
        assert self.recording is None, "a stream that is recorded is not waited for"
        with self.scheduler.awaited(), self.scheduler.changed:
            while self.items:
                self.scheduler.changed.wait()
        if self.errors:
            raise self.errors.pop(0)


class Late(Backend):
    """The device; ``own`` hands every allocation and freeing to it, where memory is poisoned in the stream's order.

    With ``holds`` nothing is done before the host waits or asks.
    """

    vendor = "org.tesserack.tests.late"

    def __init__(self, name: str, own: bool, devices: int = 1, holds: bool = False) -> None:
        self.name = name
        self.own_allocator = own
        self.scheduler = Scheduler(holds)
        self.default = [Stream(self.scheduler) for _ in range(devices)]
        self.streams: list[Stream] = []
        self.allocated: list[int] = []  # addresses
        self.freed: list[tuple[int, Stream | None]] = []
        self.opened: list[int] = []
        self.pinned: dict[int, np.ndarray[Any, Any]] = {}
        super().__init__()
        from tesserack_reference import backend as reference

        for op, record in reference._kernels.items():
            self._kernels[op] = (self._later(record[0]), None, *self._fields(record[2]), *record[3:])
        self.replayed = 0  # calls of capture_replay
        self.fused: list[str] = []  # calls with programs inside, by operator
        self._take_more(reference)

    def _take_more(self, reference: Any) -> None:
        """Kernels that take more than the least: programs inside reductions and products, random state in memory."""
        import tesserack_reference as numpy_kernels

        bits = reference._kernels["random_bits"][0]

        def random_bits(*, outputs: Any, inputs: Any, params: Any, stream: Stream | None, device: int) -> None:
            (out,), (key, offset) = outputs, params

            def work() -> None:
                if inputs:
                    state = numpy_kernels.read(inputs[0])
                    bits(out, int(state[0]), int(state[1]) + offset)
                else:
                    bits(out, key, offset)

            self.queue(device, stream, work)

        def reduce(
            *,
            outputs: Any,
            inputs: Any,
            params: Any,
            opcode: str,
            compute_dtype: Any,
            prologue: Any,
            stream: Stream | None,
            device: int,
        ) -> None:
            kernel = reference._kernels["reduce"][0]
            if prologue is None:
                self.queue(
                    device,
                    stream,
                    lambda: kernel(outputs[0], inputs[0], *params, opcode=opcode, compute_dtype=compute_dtype),
                )
                return
            self.fused.append("reduce")
            assert opcode == "sum"

            def work() -> None:
                values = evaluate(prologue, [numpy_kernels.read(x, compute_dtype) for x in inputs], compute_dtype)
                axes = tuple(range(values.ndim - params[0], values.ndim))
                numpy_kernels.write(outputs[0], np.sum(values, axis=axes))

            self.queue(device, stream, work)

        def matmul(
            *, outputs: Any, inputs: Any, compute_dtype: Any, epilogue: Any, stream: Stream | None, device: int
        ) -> None:
            if epilogue is not None:
                self.fused.append("matmul")

            def work() -> None:
                read: list[Any] = [None if x is None else numpy_kernels.read(x, compute_dtype) for x in inputs]
                with np.errstate(all="ignore"):
                    product = np.matmul(read[0], read[1])
                    if len(read) > 2 and read[2] is not None:
                        product = product + read[2]
                if epilogue is not None:
                    product = evaluate(epilogue, [product, *read[3:]], compute_dtype)
                numpy_kernels.write(outputs[0], product)

            self.queue(device, stream, work)

        self.kernel("random_bits", takes=["device_random"])(random_bits)
        self.kernel("reduce", takes=["prologue"])(reduce)
        self.kernel("matmul", takes=["epilogue"])(matmul)

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
        self.stream(device, stream).put(work)

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
        self.streams.append(Stream(self.scheduler))
        return self.streams[-1]

    def stream_query(self, device: int, stream: Any) -> bool:
        self.scheduler.ask()
        return not self.stream(device, stream).items

    def stream_wait_event(self, device: int, stream: Any, event: Any) -> None:
        self.stream(device, stream).put(lambda: None, event["done"].is_set)

    def event_create(self, device: int, timing: bool) -> dict[str, threading.Event]:
        return {"done": threading.Event()}

    def event_record(self, device: int, event: Any, stream: Any) -> None:
        done = event["done"] = threading.Event()
        self.queue(device, stream, done.set)

    def event_query(self, device: int, event: Any) -> bool:
        self.scheduler.ask()
        return bool(event["done"].is_set())

    def event_synchronize(self, device: int, event: Any) -> None:
        with self.scheduler.awaited():
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

    def host_register(self, address: int, nbytes: int) -> Any:
        if nbytes < 16:
            return NotImplemented
        self.pinned[address] = np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))
        return None

    def host_unregister(self, address: int, nbytes: int) -> None:
        assert self.pinned.pop(address).size == nbytes

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

    # --- recorded launches --------------------------------------------------------------------------------------------

    def capture_begin(self, device: int, stream: Stream | None) -> None:
        chosen = self.stream(device, stream)
        assert chosen.recording is None
        chosen.recording = []

    def capture_end(self, device: int, stream: Stream | None) -> Any:
        chosen = self.stream(device, stream)
        recording, chosen.recording = chosen.recording, None
        return {"work": recording}

    def capture_replay(self, device: int, recording: Any, stream: Stream | None) -> None:
        self.replayed += 1
        for ready, work in recording["work"]:
            self.stream(device, stream).put(work, ready)

    def capture_destroy(self, device: int, recording: Any) -> None:
        recording["work"].clear()


def evaluate(program: Any, inputs: list[Any], compute_dtype: Any) -> Any:
    """A program of NumPy arrays."""
    from tesserack_reference import DTYPES, instruction

    compute = DTYPES[compute_dtype]
    registers = [*inputs, *(np.asarray(c).astype(compute) for c in program.constants)]
    with np.errstate(all="ignore"):
        for name, *operands in program.instructions:
            registers.append(np.asarray(instruction(name)(*(registers[k] for k in operands))).astype(compute))
    return registers[program.outputs[0]]
