"""Backends in Python with one planted fault each, made from the reference backend."""

from __future__ import annotations

import ctypes
import itertools
import os
import queue
import signal
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from tesserack.backends import Operand
from tesserack_reference import DTYPES, Array, Reference, places, read, view, write
from tesserack_reference import backend as reference


class Mutant(Reference):
    """The reference backend under another name, until something in it is replaced."""

    def __init__(self, name: str) -> None:
        self.name, self.vendor = name, f"org.tesserack.tests.{name}"
        super().__init__()
        self._kernels.update(reference._kernels)


healthy = Mutant("healthy")
strides = Mutant("strides")
gradient = Mutant("gradient")
misspelt = Mutant("misspelt")


@strides.kernel("gather")
def gather(out: Operand, x: Operand, index: Operand, dim: int) -> None:
    """Reads the operand as if it had no gaps, where its memory is large enough for that to go unnoticed."""
    try:
        values = np.ndarray(x.shape, DTYPES[x.dtype], x.handle, x.byte_offset)
    except TypeError:
        values = view(x)
    view(out)[...] = values[places(index, dim, values.shape[dim])]


@gradient.kernel("softmax_backward")
def softmax_backward(out: Operand, grad: Operand, result: Operand, dim: int) -> None:
    """Forgets to subtract the mean."""
    write(out, read(grad) * read(result))


@misspelt.kernel("sofmax", "permute", "other::operator")
def sofmax(out: Operand, x: Operand, dim: int) -> None:
    """Never called, under any of its names so far."""
    raise AssertionError


class Overlapping(Mutant):
    """Every few blocks, one that begins in the middle of the one before."""

    def __init__(self) -> None:
        super().__init__("allocator")
        self.count, self.last = 0, np.empty(0, np.uint8)

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        self.count += 1
        if self.count % 7 == 0 and self.last.nbytes == 2 * nbytes:
            return self.last[nbytes // 2 :]
        self.last = np.empty(2 * nbytes, np.uint8)
        return self.last


allocator = Overlapping()


class Seen(Mutant):
    """The host sees the memory, so that the core need not ask for copies."""

    def properties(self, device: int) -> dict[str, Any]:
        return {**super().properties(device), "host_memory": True}

    def host_pointer(self, device: int, handle: Array) -> int:
        return int(handle.ctypes.data)


class Careless(Seen):
    """Forgets where in the storage to begin."""

    def copy_to_host(self, device: int, dst: memoryview, src: Array, src_offset: int, stream: Any) -> None:
        super().copy_to_host(device, dst, src, 0, stream)


class Late(Mutant):
    """Copies from the host when somebody waits."""

    waiting: list[Any]

    def copy_from_host(self, device: int, dst: Array, dst_offset: int, src: memoryview, stream: Any) -> None:
        self.__dict__.setdefault("waiting", []).append((dst, dst_offset, src))

    def synchronize(self, device: int, stream: Any) -> None:
        for dst, offset, src in self.__dict__.pop("waiting", []):
            super().copy_from_host(device, dst, offset, src, stream)

    def copy_to_host(self, device: int, dst: memoryview, src: Array, src_offset: int, stream: Any) -> None:
        self.synchronize(device, stream)
        super().copy_to_host(device, dst, src, src_offset, stream)


class Leaky(Mutant):
    """Never lets go."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.kept: list[Array] = []

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        self.kept.append(super().alloc(device, nbytes, stream))
        return self.kept[-1]


careless = Careless("careless")
late = Late("late")
leaky = Leaky("leaky")


def planted(name: str, kernel: str, wrap: Callable[..., Callable[..., None]]) -> Mutant:
    """A mutant whose kernel of one name is wrapped; its signature stays."""
    mutant = Mutant(name)
    function, *rest = mutant._kernels[kernel]
    mutant._kernels[kernel] = (wrap(function), *rest)
    return mutant


def one_too_many(function: Callable[..., None]) -> Callable[..., None]:
    """Writes one element past the end of the first output, where its storage goes on."""

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        out = next(a for a in (*kwargs.get("outputs", ()), *args) if isinstance(a, Operand))
        size = DTYPES[out.dtype].itemsize
        last = sum(max(0, n - 1) * s for n, s in zip(out.shape, out.byte_strides, strict=True))
        at = out.byte_offset + last + size
        out.handle[at : at + size] = 1

    return run


def sometimes(function: Callable[..., None]) -> Callable[..., None]:
    """Every so many calls the first element is off."""
    calls = itertools.count(1)

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        if next(calls) % 11 == 0:
            view(kwargs["outputs"][0]).flat[0] += 1

    return run


def without_sign(function: Callable[..., None]) -> Callable[..., None]:
    """Computes x + 0."""

    def run(out: Operand, x: Any) -> None:
        function(out, x)
        if DTYPES[out.dtype].kind == "f":
            view(out)[...] += 0

    return run


def flushing(function: Callable[..., None]) -> Callable[..., None]:
    """Has the processor flush denormal numbers to zero, as compilers do who are told to be fast."""
    libm, state = ctypes.CDLL("libm.so.6"), ctypes.create_string_buffer(64)

    def run(*args: Any, **kwargs: Any) -> None:
        function(*args, **kwargs)
        libm.fegetenv(state)
        (mode,) = struct.unpack_from("I", state, 28)
        struct.pack_into("I", state, 28, mode | 0x8040)
        libm.fesetenv(state)

    return run


def forgetful(function: Callable[..., None]) -> Callable[..., None]:
    """Leaves out what comes after three million elements."""

    def run(*, outputs: tuple[Operand, ...], **kwargs: Any) -> None:
        function(outputs=outputs, **kwargs)
        for out in outputs:
            if out.numel > 3_000_000:
                view(out).reshape(-1)[3_000_000:] = 0

    return run


_ENTERED = threading.Condition()
_COUNT = [0]


def another_enters() -> None:
    """Waits until another thread has come here, where there is one: a gate, not luck, has calls overlap."""
    with _ENTERED:
        _COUNT[0] += 1
        mine = _COUNT[0]
        _ENTERED.notify_all()
        _ENTERED.wait_for(lambda: _COUNT[0] > mine, 0.02 if threading.active_count() > 2 else 0)


def one_buffer(function: Callable[..., None]) -> Callable[..., None]:
    """All calls compute in the same memory."""
    shared: dict[str, Any] = {}

    def run(out: Operand, *args: Any, **kwargs: Any) -> None:
        function(out, *args, **kwargs)
        shared["buffer"] = view(out).copy()
        another_enters()
        if shared["buffer"].shape == out.shape:
            view(out)[...] = shared["buffer"]

    return run


def in_two_steps(function: Callable[..., None]) -> Callable[..., None]:
    """Sets the arguments of a kernel that all threads share, then launches it."""
    kernel: dict[str, Any] = {}

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        kernel["inputs"] = inputs
        another_enters()
        alike = [getattr(x, "shape", ()) for x in kernel["inputs"]] == [getattr(x, "shape", ()) for x in inputs]
        given = kernel["inputs"] if alike else inputs
        function(outputs=outputs, inputs=given, program=program, compute_dtype=compute_dtype)

    return run


class Lazy(Mutant):
    """Sets itself up when it is first used, and thinks that it is ready before it is."""

    begun = ready = False

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        if not self.begun:
            self.begun = True
            time.sleep(0.05)
            self.ready = True
        if not self.ready:
            raise RuntimeError("no context")
        return super().alloc(device, nbytes, stream)


class Dying(Mutant):
    """Its driver crashes when asked."""

    def probe(self) -> int:
        os.kill(os.getpid(), signal.SIGSEGV)
        return 1


class Dead(Mutant):
    """Its driver ends the process when it does not like the hardware."""

    def properties(self, device: int) -> dict[str, Any]:
        os._exit(7)


class Chatty(Mutant):
    """Greets on standard output, here and there."""

    def probe(self) -> int:
        print("Chatty runtime 1.0: hello!", flush=True)
        os.write(1, b"and a second greeting\n")
        return 1


def as_signed(function: Callable[..., None]) -> Callable[..., None]:
    """Compares unsigned numbers of 16 bits as signed ones."""

    def run(*, outputs: Any, inputs: Any, program: Any, compute_dtype: Any) -> None:
        function(outputs=outputs, inputs=inputs, program=program, compute_dtype=compute_dtype)
        words = [x for x in inputs if isinstance(x, Operand) and x.dtype is ts.uint16]
        if [name for name, *_ in program.instructions] == ["lt"] and len(words) == 2:
            write(outputs[0], view(words[0]).astype(np.int16) < view(words[1]).astype(np.int16))

    return run


class Boasting(Mutant):
    """Declares what a kernel declines, and blocks larger than it gives."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        gather, *rest = self._kernels["gather"]
        self._kernels["gather"] = (
            lambda out, *args, **kwargs: NotImplemented if out.dtype is ts.uint16 else gather(out, *args, **kwargs),
            *rest,
        )

    def properties(self, device: int) -> dict[str, Any]:
        return {**super().properties(device), "max_allocation": 1 << 20}

    def alloc(self, device: int, nbytes: int, stream: Any) -> Array:
        if nbytes > 1 << 19:
            raise MemoryError
        return super().alloc(device, nbytes, stream)


class Queued(Mutant):
    """Works later, on a thread; its events tell the time on that thread, or wrongly that of the host."""

    def __init__(self, name: str, clock_of_the_host: bool) -> None:
        super().__init__(name)
        self.clock_of_the_host = clock_of_the_host
        self.work: queue.Queue[Callable[[], None]] = queue.Queue()
        for kernel, (function, *rest) in self._kernels.items():
            self._kernels[kernel] = (self.later(function), *rest)

    def later(self, function: Callable[..., None]) -> Callable[..., None]:
        return lambda *args, **kwargs: self.put(lambda: function(*args, **kwargs))

    def put(self, work: Callable[[], None]) -> None:
        if self.work.empty() and not hasattr(self, "thread"):
            self.thread = threading.Thread(target=self.loop, daemon=True)
            self.thread.start()
        self.work.put(work)

    def loop(self) -> None:
        while True:
            self.work.get()()
            self.work.task_done()

    def synchronize(self, device: int, stream: Any) -> None:
        self.work.join()

    def copy_from_host(self, device: int, dst: Array, dst_offset: int, src: memoryview, stream: Any) -> None:
        self.work.join()
        super().copy_from_host(device, dst, dst_offset, src, stream)

    def copy_to_host(self, device: int, dst: memoryview, src: Array, src_offset: int, stream: Any) -> None:
        self.work.join()
        super().copy_to_host(device, dst, src, src_offset, stream)

    def copy_within(self, device: int, dst: Array, to: int, src: Array, start: int, nbytes: int, stream: Any) -> None:
        self.work.join()
        super().copy_within(device, dst, to, src, start, nbytes, stream)

    def event_create(self, device: int, timing: bool) -> dict[str, Any]:
        return {"done": threading.Event()}

    def event_record(self, device: int, event: dict[str, Any], stream: Any) -> None:
        event["done"].clear()
        asked = time.perf_counter()

        def reach() -> None:
            event["time"] = asked if self.clock_of_the_host else time.perf_counter()
            event["done"].set()

        self.put(reach)

    def event_query(self, device: int, event: dict[str, Any]) -> bool:
        return bool(event["done"].is_set())

    def event_synchronize(self, device: int, event: dict[str, Any]) -> None:
        event["done"].wait()

    def event_elapsed(self, device: int, begin: dict[str, Any], end: dict[str, Any]) -> float:
        return float(1e3 * (end["time"] - begin["time"]))


def declined(function: Callable[..., None]) -> Callable[..., None]:
    """Takes nothing."""
    return lambda *args, **kwargs: NotImplemented


dying = Dying("dying")
dead = Dead("dead")
chatty = Chatty("chatty")
lazy = Lazy("lazy")
boasting = Boasting("boasting")
queued = Queued("queued", False)
hosttimes = Queued("hosttimes", True)
signed = planted("signed", "pointwise", as_signed)
declining = planted("declining", "scan", declined)
unsteady = planted("unsteady", "scan", sometimes)
unsigned = planted("unsigned", "copy_cast", without_sign)
denormal = planted("denormal", "reduce", flushing)
large = planted("large", "pointwise", forgetful)
static = planted("static", "reduce", one_buffer)
steps = planted("steps", "pointwise", in_two_steps)

if "PAST_THE_END" in os.environ:
    past = planted("past", os.environ["PAST_THE_END"], one_too_many)
