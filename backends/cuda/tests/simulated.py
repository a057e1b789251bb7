"""A CUDA driver that is not there: the functions of CuPy's bindings that the backend calls, over memory of the host.

As unfriendly as the real one may be: nothing that is queued happens before somebody waits for it. Kernels are the
generator's text, compiled as C++. Errors carry CUDA's numbers.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from host_dialect import has_barrier, translate
from simulated_errors import INVALID_HANDLE, INVALID_VALUE, NOT_READY, OUT_OF_MEMORY, SimulatedError
from simulated_graphs import Capture, Graphs
from simulated_pool import Pool
from tesserack_cuda.driver import Driver

__all__ = ["NAME", "Simulated", "SimulatedError"]

NAME = "simulatedcuda"  # of the device, in tests

_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_SET_CONTEXT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class NVRTCError(RuntimeError):
    """As NVRTC's."""


class Stream:
    """What is queued, in order; ``ran`` counts what was done. While it is captured, operations go to the graph."""

    def __init__(self, device: int):
        self.device, self.queue, self.queued, self.ran = device, deque[Callable[[], None]](), 0, 0
        self.capture: Capture | None = None
        self.blocking = False  # whether the legacy default stream waits for it

    def put(self, operation: Callable[[], None]) -> int:
        """Queue an operation; how many were queued so far."""
        if self.capture is not None:
            return self.capture.put(self, operation)
        self.queue.append(operation)
        self.queued += 1
        return self.queued

    def run(self, until: int | None = None) -> None:
        """Do what is queued, up to the operation of this number."""
        while self.queue and (until is None or self.ran < until):
            operation = self.queue.popleft()
            operation()
            self.ran += 1


class Simulated(Graphs):
    """Devices of one driver. ``runtime``, ``driver`` and ``nvrtc`` are all this object: no name means two things."""

    NVRTCError = NVRTCError

    def __init__(self, devices: int = 2, memory: int = 1 << 30):
        self.devices, self.memory = devices, memory
        self._lock = threading.RLock()
        self._local = threading.local()
        self._blocks: dict[int, tuple[Any, int, int]] = {}  # address: bytes, size, device; -1 is pinned memory
        self._numbers = itertools.count(0x1000, 0x10)
        self._streams: dict[int, Stream] = {}
        self._default = [Stream(device) for device in range(devices)]
        self._events: dict[int, tuple[Stream, int] | None] = {}
        self._programs: dict[int, list[Any]] = {}
        self._modules: dict[int, tuple[ctypes.CDLL, int, bool]] = {}
        self._functions: dict[int, tuple[Any, list[int], bool, int]] = {}
        self._launch = _LAUNCH(self._launched)
        self._context = _SET_CONTEXT(self._entered)
        self._folder = tempfile.TemporaryDirectory(prefix="simulated-cuda-")
        self._run = self._runner()
        self.launched = 0
        self.pool = Pool(self)
        self.libraries: dict[str, Any] = {}
        self.profiling = 0

    def load(self) -> Driver:
        """What the backend is given."""
        launch, context = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (self._launch, self._context))
        return Driver(
            self,
            self,
            self,
            launch,
            context,
            self.exchange_capture_mode,
            self.pool,
            self.pool.on_stream,
            self.libraries.get,
        )

    @property
    def live(self) -> int:
        """Bytes of device memory that were not given back."""
        return sum(size for _, size, device in self._blocks.values() if device >= 0)

    # --- devices --------------------------------------------------------------------------------------------------

    def getDeviceCount(self) -> int:
        return self.devices

    def setDevice(self, device: int) -> None:
        if not 0 <= device < self.devices:
            raise SimulatedError(101, f"no device {device}")
        self._local.device = device

    def getDevice(self) -> int:
        return getattr(self._local, "device", 0)

    def getDeviceProperties(self, device: int) -> dict[str, Any]:
        found = {"name": b"Simulated", "multiProcessorCount": 4, "major": 9, "minor": 0, "sharedMemPerBlock": 49152}
        placed = {"pciDomainID": 0, "pciBusID": 0x3B + device, "pciDeviceID": 0}
        return {**found, **placed, "uuid": b"simulated GPU " + bytes((48, 48 + device))}

    def memGetInfo(self) -> tuple[int, int]:
        return self.memory - self.live, self.memory

    def profilerStart(self) -> None:
        self.profiling += 1

    def profilerStop(self) -> None:
        self.profiling -= 1

    def deviceCanAccessPeer(self, device: int, other: int) -> int:
        return int(device != other)

    def deviceEnablePeerAccess(self, other: int) -> None:
        if other == self.getDevice():
            raise SimulatedError(INVALID_VALUE, "peer access to itself")

    # --- memory ---------------------------------------------------------------------------------------------------

    def malloc(self, size: int) -> int:
        with self._lock:
            self.unsafe("cudaMalloc")
            if self.live + size > self.memory:
                raise SimulatedError(OUT_OF_MEMORY, "out of memory")
            return self._block(size, self.getDevice())

    def hostAlloc(self, size: int, flags: int) -> int:
        with self._lock:
            self.unsafe("cudaHostAlloc")
            return self._block(size, -1)

    def _block(self, size: int, device: int) -> int:
        data = np.full(size + 256, 0xA5, np.uint8)  # not zeros: nothing may count on them
        address = -(-data.ctypes.data // 256) * 256
        self._blocks[address] = data, size, device
        return address

    def free(self, address: int) -> None:
        with self._lock:
            self.unsafe("cudaFree")
            self._drain()
            if self._blocks.get(address, (0, 0, -1))[2] < 0:
                raise SimulatedError(INVALID_VALUE, f"free of {address:#x}, which is no allocation")
            del self._blocks[address]

    def hostRegister(self, address: int, size: int, flags: int) -> None:
        with self._lock:
            self.unsafe("cudaHostRegister")
            if any(
                start < address + size and address < start + length for start, (_, length, _) in self._blocks.items()
            ):
                raise SimulatedError(INVALID_VALUE, "memory that is registered already")
            self._blocks[address] = None, size, -1

    def hostUnregister(self, address: int) -> None:
        with self._lock:
            del self._blocks[address]

    def freeHost(self, address: int) -> None:
        with self._lock:
            del self._blocks[address]

    def _find(self, address: int, size: int) -> int | None:
        """The device whose memory holds a range, -1 for pinned memory, None for other memory of the host."""
        for start, (_, length, device) in self._blocks.items():
            if start <= address < start + length:
                if address + size > start + length:
                    raise SimulatedError(INVALID_VALUE, f"{size} bytes from {address:#x} reach beyond the allocation")
                return device
        return None

    def memcpyAsync(self, dst: int, src: int, size: int, kind: int, stream: int) -> None:
        with self._lock:
            into, start = self._find(dst, size), self._find(src, size)
            on_device = {1: (True, False), 2: (False, True), 3: (True, True)}[kind]
            told = tuple(place is not None and place >= 0 for place in (into, start))
            if told != on_device:
                raise SimulatedError(INVALID_VALUE, f"a copy of kind {kind} between {into} and {start}")
            queue = self._stream(stream)
            if kind == 1 and start is None:  # pageable memory is read before the call returns
                held = ctypes.string_at(src, size)
                queue.put(lambda: ctypes.memmove(dst, held, size) and None)
                return
            queue.put(lambda: ctypes.memmove(dst, src, size) and None)
            if kind == 2 and into is None:
                queue.run()

    def memcpyPeerAsync(self, dst: int, dst_device: int, src: int, src_device: int, size: int, stream: int) -> None:
        with self._lock:
            if (self._find(dst, size), self._find(src, size)) != (dst_device, src_device):
                raise SimulatedError(INVALID_VALUE, "a copy between other devices than those named")
            self._stream(stream).put(lambda: ctypes.memmove(dst, src, size) and None)

    def memsetAsync(self, address: int, value: int, size: int, stream: int) -> None:
        with self._lock:
            self._find(address, size)
            self._stream(stream).put(lambda: ctypes.memset(address, value, size) and None)

    # --- streams and events ---------------------------------------------------------------------------------------

    def _stream(self, handle: int) -> Stream:
        if not handle:
            self.legacy()
            return self._default[self.getDevice()]
        if handle not in self._streams:
            raise SimulatedError(INVALID_HANDLE, f"no stream {handle:#x}")
        return self._streams[handle]

    def streamCreateWithPriority(self, flags: int, priority: int) -> int:
        with self._lock:
            handle = next(self._numbers)
            self._streams[handle] = Stream(self.getDevice())
            self._streams[handle].blocking = not flags & 1
            return handle

    def streamDestroy(self, handle: int) -> None:
        with self._lock:
            self._waited(handle).run()
            del self._streams[handle]

    def _waited(self, handle: int) -> Stream:
        """A stream that the host asks about, which ends its capture."""
        stream = self._stream(handle)
        if stream.capture is not None:
            raise stream.capture.broken("a wait for a stream that is captured")
        return stream

    def streamSynchronize(self, handle: int) -> None:
        with self._lock:
            self._waited(handle).run()

    def _drain(self) -> None:
        device = self.getDevice()
        for stream in (*self._streams.values(), *self._default):
            if stream.device == device:
                stream.run()

    def deviceSynchronize(self) -> None:
        with self._lock:
            self.unsafe("cudaDeviceSynchronize")
            self._drain()

    def streamQuery(self, handle: int) -> None:
        with self._lock:
            stream = self._waited(handle)
            if stream.queue:
                stream.run(stream.ran + 1)
                raise SimulatedError(NOT_READY, "not ready")

    def streamWaitEvent(self, handle: int, event: int, flags: int = 0) -> None:
        with self._lock:
            recorded = self._event(event)
            if recorded is not None:
                waiting = self._stream(handle)
                if self.joined(waiting, event):
                    return
                stream, number = recorded
                waiting.put(lambda: stream.run(number))

    def _event(self, event: int) -> tuple[Stream, int] | None:
        if event not in self._events:
            raise SimulatedError(INVALID_HANDLE, f"no event {event:#x}")
        return self._events[event]

    def eventCreateWithFlags(self, flags: int) -> int:
        with self._lock:
            handle = next(self._numbers)
            self._events[handle] = None
            return handle

    def eventDestroy(self, event: int) -> None:
        with self._lock:
            self._event(event)
            del self._events[event]

    def eventRecord(self, event: int, stream: int) -> None:
        with self._lock:
            self._event(event)
            queue = self._stream(stream)
            # Of a stream that is captured it is no work, but says what others come behind.
            self._events[event] = queue, 0 if queue.capture is not None else queue.put(lambda: None)
            self.recorded(event, queue)

    def eventQuery(self, event: int) -> None:
        with self._lock:
            self.unsafe("cudaEventQuery")
            recorded = self._outside(event)
            if recorded is not None and recorded[0].ran < recorded[1]:
                recorded[0].run(recorded[0].ran + 1)
                raise SimulatedError(NOT_READY, "not ready")

    def eventSynchronize(self, event: int) -> None:
        with self._lock:
            recorded = self._outside(event)
            if recorded is not None:
                recorded[0].run(recorded[1])

    def eventElapsedTime(self, begin: int, end: int) -> float:
        """Operations between the two stand for milliseconds."""
        first, last = self._event(begin), self._event(end)
        if first is None or last is None:
            raise SimulatedError(INVALID_HANDLE, "an event that was never recorded")
        return float(last[1] - first[1])

    # --- compiling ------------------------------------------------------------------------------------------------

    def getVersion(self) -> tuple[int, int]:
        return 0, 0

    def createProgram(self, source: str, name: str, headers: Any, includes: Any) -> int:
        number = next(self._numbers)
        self._programs[number] = [source, b"", ""]
        return number

    def compileProgram(self, program: int, options: Any) -> None:
        source = self._programs[program][0]
        text, binary = Path(self._folder.name, f"{program}.cpp"), Path(self._folder.name, f"{program}.so")
        text.write_text(translate(source))
        command = [
            "g++",
            "-std=c++17",
            "-O1",
            "-w",
            "-fPIC",
            "-shared",
            "-ffp-contract=off",
            *(f"-fsanitize={checks}" for checks in filter(None, [os.environ.get("SIMULATED_CHECKS")])),
            str(text),
            "-o",
            str(binary),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        self._programs[program][2] = done.stderr
        if done.returncode:
            raise NVRTCError("NVRTC_ERROR_COMPILATION")
        self._programs[program][1] = bytes([has_barrier(source)]) + binary.read_bytes()

    def getCUBIN(self, program: int) -> bytes:
        return bytes(self._programs[program][1])

    def getProgramLog(self, program: int) -> str:
        return str(self._programs[program][2])

    def destroyProgram(self, program: int) -> None:
        del self._programs[program]

    # --- kernels --------------------------------------------------------------------------------------------------

    def _runner(self) -> Any:
        library = Path(self._folder.name, "runner.so")
        source = Path(__file__).with_name("simulated.cpp")
        subprocess.run(["g++", "-std=c++17", "-O1", "-fPIC", "-shared", str(source), "-o", str(library)], check=True)
        return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL).simulated_run

    def moduleLoadData(self, image: bytes) -> int:
        with self._lock:
            self.unsafe("cuModuleLoadData")
            number = next(self._numbers)
            path = Path(self._folder.name, f"module{number}.so")
            path.write_bytes(image[1:])
            self._modules[number] = ctypes.CDLL(str(path)), self.getDevice(), bool(image[0])
            return number

    def moduleGetFunction(self, module: int, name: str) -> int:
        library, device, barriers = self._modules[module]
        sizes = list(itertools.takewhile(bool, (ctypes.c_size_t * 300).in_dll(library, f"{name}_sizes")))
        number = next(self._numbers)
        self._functions[number] = getattr(library, f"{name}_entry"), sizes, barriers, device
        return number

    def ctxGetCurrent(self) -> int:
        return self.getDevice() + 1

    def _entered(self, context: int | None) -> int:
        if not context or context > self.devices:
            return INVALID_VALUE
        self._local.device = context - 1
        return 0

    def _launched(self, function: int, *rest: Any) -> int:
        gx, gy, gz, bx, by, bz, _, stream, arguments, _ = rest
        with self._lock:
            entry, sizes, barriers, device = self._functions[function]
            try:
                queue = self._stream(stream or 0)
            except SimulatedError as error:
                return error.status
            if queue.device != device or self.getDevice() != device:
                return INVALID_HANDLE
            if bx * by * bz > 1024 or min(gx, gy, gz) < 1 or max(gy, gz) > 65535:
                return INVALID_VALUE
            pointers = (ctypes.c_void_p * len(sizes)).from_address(arguments)
            held = [
                ctypes.create_string_buffer(ctypes.string_at(p, n), n) for p, n in zip(pointers, sizes, strict=True)
            ]
            given = (ctypes.c_void_p * len(sizes))(*[ctypes.addressof(b) for b in held])
            groups, size = (ctypes.c_int * 3)(gx, gy, gz), (ctypes.c_int * 3)(bx, by, bz)
            try:
                queue.put(lambda: self._run(entry, given, groups, size, int(barriers)) and held and None)
            except SimulatedError as error:  # of a capture that is invalid
                return error.status
            self.launched += 1
            return 0
