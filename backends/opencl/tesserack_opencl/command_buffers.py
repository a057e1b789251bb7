"""Recorded launches by ``cl_khr_command_buffer``, on devices where a trial shows that its driver keeps to it."""

from __future__ import annotations

import ctypes
import functools
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from tesserack import DeviceLostError
from tesserack_kernelgen import command_buffers, launcher
from tesserack_kernelgen.command_buffers import Functions

if TYPE_CHECKING:
    from tesserack_opencl.backend import OpenCL

__all__ = ["PROPERTIES", "Recordings", "address", "examine"]

#: What all queues are made with: a recording is replayed on queues like the one that it was made for.
PROPERTIES = cl.command_queue_properties.PROFILING_ENABLE

_EXTENSION = "cl_khr_command_buffer"
_FIRST, _LAST = (0, 9, 0), (0, 9, 8)  # versions that are known: it is provisional, and functions have changed
_COPY_PROPERTIES = (0, 9, 6)  # from which on commands take properties
_CAPABILITIES, _VERSIONS = 0x12A9, 0x1060  # of clGetDeviceInfo
_SIMULTANEOUS_USE = 4  # of the capabilities

_TRIAL = "__kernel void trial(__global int* x, int add) { x[0] = x[0] * 3 + add; }"


@functools.cache
def address(name: str) -> int:
    """The address of a function of OpenCL, from the loader that PyOpenCL is linked with."""
    return ctypes.cast(getattr(ctypes.CDLL(cl._cl.__file__), name), ctypes.c_void_p).value or 0


# --- what a device has -----------------------------------------------------------------------------------------------


@functools.cache
def examine(context: Any, device: Any) -> tuple[Functions | None, str]:
    """The functions, or None and the reason why a device's work cannot be recorded by its driver."""
    if _EXTENSION not in device.extensions.split():
        return None, f"the driver does not offer {_EXTENSION}"
    version = _version(device)
    if version is None or not _FIRST <= version <= _LAST:
        told = "unknown" if version is None else ".".join(map(str, version))
        return None, f"{_EXTENSION} is of version {told}; known are 0.9.0 to 0.9.8"
    try:
        functions = _functions(device, version)
        _try(context, device, functions)
    except Exception as error:  # a driver may fail in any way; the device is still of use
        lines = str(error).strip().splitlines()
        return None, lines[0] if lines else type(error).__name__
    return functions, ""


def _version(device: Any) -> tuple[int, int, int] | None:
    """The version of the extension, by CL_DEVICE_EXTENSIONS_WITH_VERSION. None: the device does not tell."""
    told = _info(device, _VERSIONS)
    for at in range(0, len(told) - 67, 68):  # cl_name_version: a word, and a name of 64 bytes
        if told[at + 4 : at + 68].split(b"\0")[0] == _EXTENSION.encode():
            word = int.from_bytes(told[at : at + 4], "little")
            return word >> 22, word >> 12 & 0x3FF, word & 0xFFF
    return None


def _info(device: Any, what: int) -> bytes:
    """What clGetDeviceInfo tells, of what PyOpenCL does not ask for; nothing where the driver knows it no better."""
    ask = ctypes.CDLL(cl._cl.__file__).clGetDeviceInfo
    handle, size = ctypes.c_void_p(device.int_ptr), ctypes.c_size_t()
    if ask(handle, ctypes.c_uint32(what), ctypes.c_size_t(), None, ctypes.byref(size)):
        return b""
    told = ctypes.create_string_buffer(size.value)
    return b"" if ask(handle, ctypes.c_uint32(what), size, told, None) else told.raw


def _functions(device: Any, version: tuple[int, int, int]) -> Functions:
    find = ctypes.CDLL(cl._cl.__file__).clGetExtensionFunctionAddressForPlatform
    find.restype = ctypes.c_void_p
    platform, found = ctypes.c_void_p(device.platform.int_ptr), Functions()
    for name in Functions.NAMES:
        known = find(platform, name.encode()) if name.endswith("KHR") else address(name)
        if not known:
            raise RuntimeError(f"{_EXTENSION}: the driver has no {name}")
        setattr(found, name, known)
    found.copy_properties = version >= _COPY_PROPERTIES
    found.simultaneous_use = bool(int.from_bytes(_info(device, _CAPABILITIES), "little") & _SIMULTANEOUS_USE)
    return found


# --- the trial -------------------------------------------------------------------------------------------------------


def _try(context: Any, device: Any, functions: Functions) -> None:
    """Record two launches of one kernel and a copy, and replay them, on another queue too. Raises unless all is done
    when it should be: in order, with the arguments of then.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = cl.Kernel(cl.Program(context, _TRIAL).build(devices=[device]), "trial")
    first, second = (cl.CommandQueue(context, device, properties=PROPERTIES) for _ in range(2))
    x, y = (cl.Buffer(context, cl.mem_flags.READ_WRITE, 4) for _ in range(2))
    for memory in (x, y):
        cl.enqueue_copy(first, memory, np.ones(1, np.int32))
    recording = _trial_recording(functions, kernel, first, x, y)
    try:
        value, expected, seen = 1, [(1, 1)], [_seen(first, x, y)]
        for queue in (first, first, second):
            value = (value * 3 + 1) * 3 + 2
            check(command_buffers.replay(recording, int(queue.int_ptr)), "clEnqueueCommandBufferKHR")
            expected.append((value, value))
            seen.append(_seen(queue, x, y))
    finally:
        command_buffers.release(recording)
    if seen != expected:
        raise RuntimeError(f"{_EXTENSION}: a trial gave {seen}, expected {expected}")


def _trial_recording(functions: Functions, kernel: Any, queue: Any, x: Any, y: Any) -> int:
    set_argument, enqueue = address("clSetKernelArg"), address("clEnqueueNDRangeKernel")
    made = launcher.opencl_kernel(set_argument, enqueue, int(kernel.int_ptr), int(queue.int_ptr))
    check(command_buffers.record(functions, int(queue.int_ptr)), "clCreateCommandBufferKHR")
    statuses = [launcher.opencl_launch(made, ctypes.c_void_p(x.int_ptr), ctypes.c_int32(add)) for add in (1, 2)]
    statuses.append(command_buffers.copy(int(queue.int_ptr), int(x.int_ptr), int(y.int_ptr), 0, 0, 4))
    status, recording = command_buffers.end(int(queue.int_ptr))
    check(status or next(filter(None, statuses), 0), "a command buffer")
    return recording


def _seen(queue: Any, *memories: Any) -> tuple[int, ...]:
    found = np.zeros(len(memories), np.int32)
    for k, memory in enumerate(memories):
        cl.enqueue_copy(queue, found[k : k + 1], memory)
    return tuple(map(int, found))


def check(status: int, what: str) -> None:
    """Raise what a status of OpenCL means, unless it is 0."""
    if status == cl.status_code.DEVICE_NOT_AVAILABLE:
        raise DeviceLostError(f"opencl: the device is lost, {what} gave status {status}")
    if status:
        raise RuntimeError(f"opencl: {what} gave status {status}")


# --- recordings ------------------------------------------------------------------------------------------------------


class Recordings:
    """The four slots of recorded launches, for the streams of a backend."""

    def __init__(self, backend: OpenCL) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._under_way: dict[int, str] = {}  # by queue: what was refused since, if anything

    def begin(self, device: int, stream: Any) -> None:
        found = self._backend.found(device)
        functions, missing = examine(found.context, found.device)
        if functions is None:
            raise RuntimeError(f"opencl: {missing}")
        queue = self._address(device, stream)
        self._backend.fault_buffer(device)  # now: filling it is no part of the work
        with self._lock:
            if queue in self._under_way:
                raise RuntimeError("opencl: the stream is recorded already")
            check(command_buffers.record(functions, queue), "clCreateCommandBufferKHR")
            self._under_way[queue] = ""

    def end(self, device: int, stream: Any) -> int:
        queue = self._address(device, stream)
        with self._lock:
            refused = self._under_way.pop(queue, None)
            if refused is None:
                raise RuntimeError("opencl: the stream is not recorded")
            status, recording = command_buffers.end(queue)
        if refused and recording:
            command_buffers.release(recording)
        if refused:
            raise RuntimeError(refused)
        check(status, "a command buffer")
        return recording

    def replay(self, device: int, recording: int, stream: Any) -> None:
        check(command_buffers.replay(recording, self._address(device, stream)), "clEnqueueCommandBufferKHR")

    def destroy(self, recording: int) -> None:
        command_buffers.release(recording)

    def copied(self, queue: Any, source: Any, target: Any, start: int, offset: int, nbytes: int) -> bool:
        """Write a copy down if the queue is recorded; whether it is."""
        if not self.records(queue):
            return False
        places = int(source.int_ptr), int(target.int_ptr)
        check(command_buffers.copy(int(queue.int_ptr), *places, start, offset, nbytes), "clCommandCopyBufferKHR")
        return True

    def records(self, queue: Any) -> bool:
        """Whether what a queue is given is written down."""
        return bool(self._under_way) and int(queue.int_ptr) in self._under_way

    def refuse(self, queue: Any, what: str) -> None:
        """``RuntimeError`` if the queue is recorded: a replay would leave out what it is given. So does the end."""
        if not self.records(queue):
            return
        key, told = int(queue.int_ptr), f"opencl: {what} cannot be recorded; do it before or after the recording"
        with self._lock:
            if key in self._under_way:  # still
                self._under_way[key] = self._under_way[key] or told
        raise RuntimeError(told)

    def forget(self, queue: int) -> None:
        """A queue is gone."""
        with self._lock:
            if self._under_way.pop(queue, None) is not None:
                command_buffers.forget(queue)

    def _address(self, device: int, stream: Any) -> int:
        return int(self._backend.queue(device, stream).int_ptr)
