"""Memory, streams and events of OpenCL devices.

Handles are addresses of OpenCL's own objects (``cl_mem``, ``cl_command_queue``), so that the core passes them to the
launcher as they are. The PyOpenCL objects behind them are kept here until the core lets go.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl
from tesserack import DeviceLostError
from tesserack.backends import Activity, Backend
from tesserack_kernelgen import launcher

from tesserack_opencl.command_buffers import PROPERTIES, Recordings
from tesserack_opencl.devices import Found, find, identify, recorded, renew
from tesserack_opencl.profile import Profiles

if TYPE_CHECKING:
    from tesserack_opencl.card import OpenCLCard

__all__ = ["OpenCL"]

_OUT_OF_MEMORY = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")
_FORKED = (
    "opencl: the devices of a process are not those of a child that it forked, whose driver would wait for threads "
    "that it does not have; use the start method 'spawn' or 'forkserver' of multiprocessing (of a DataLoader: "
    "multiprocessing_context='spawn'), or give the child tensors of the cpu"
)
_PATIENCE = 2e-4  # seconds that a question about a stream may take
_STAGED = 256 << 20  # bytes of the host that may be copied for writes under way; what is beyond waits


class OpenCL(Backend):
    """The devices of all OpenCL platforms. ``records``: whether drivers record launches; None: where it saves time."""

    vendor, version = "org.tesserack.opencl", "0.1.0"
    raw_handles = True
    card: OpenCLCard

    def __init__(self, name: str = "opencl", records: bool | None = None) -> None:
        self.name = name
        super().__init__()
        self._memory: dict[int, Any] = {}
        self._queues: dict[int, Any] = {}  # streams by address
        self._default: dict[int, Any] = {}  # queues of default streams by device
        self._events: dict[int, Any] = {}  # by number; None until recorded
        self._faults: dict[int, Any] = {}
        self._pending: deque[tuple[Any, Any]] = deque()  # copies under way, with the bytes they read
        self._pending_bytes = 0
        self._pinned: dict[int, Any] = {}  # by address
        self._registered: dict[int, Any] = {}  # by address
        self._next_event = 1
        self._submitted = 0  # copies queued here; the launcher counts kernels
        self._idle: dict[int, tuple[int, int]] = {}  # by queue: the counts when it was last waited for
        self._lock = threading.RLock()
        self._profiles = Profiles(self)
        self._recordings = Recordings(self)
        self._driven = bool(find()[0])
        if recorded(find()[0], records):
            self.capture_begin, self.capture_end = self._recordings.begin, self._recordings.end
            self.capture_replay, self.capture_destroy = self._recordings.replay, self._destroy_recording
        self._forked = False
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def _destroy_recording(self, device: int, recording: int) -> None:
        if not self._forked:
            self._recordings.destroy(recording)

    def _after_fork(self) -> None:
        # A driver that shows no device has no threads to wait for.
        self._forked = self._driven

    def _refuse_forked(self) -> None:
        if self._forked:
            raise RuntimeError(_FORKED)

    # --- devices --------------------------------------------------------------------------------------------------

    def probe(self) -> int | tuple[int, str]:
        found, reason = find()
        return len(found) if found else (0, reason)

    def found(self, device: int) -> Found:
        """The device of a number."""
        return find()[0][device]

    def properties(self, device: int) -> dict[str, Any]:
        found = self.found(device)
        d = found.device
        names = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
        names += ["float16", "bfloat16", "float32"] + ["float64"] * found.fp64
        return {
            "name": d.name.strip(),
            "total_memory": int(d.global_mem_size),
            "max_allocation": int(d.max_mem_alloc_size),
            "dtypes": names,
            "compute_units": int(d.max_compute_units),
            "atomics": True,
            "asynchronous": True,
        }

    def queue(self, device: int, stream: Any) -> Any:
        """The queue of a stream; None is the default stream. ``RuntimeError`` in a forked child."""
        self._refuse_forked()
        if stream:
            return self._queues[stream]
        with self._lock:
            known = self._default.get(device)
            if known is None:
                known = self._default[device] = self._make_queue(device)
            return known

    def _make_queue(self, device: int) -> Any:
        found = self.found(device)
        return cl.CommandQueue(found.context, found.device, properties=PROPERTIES)

    def _unrecorded_queue(self, device: int, stream: Any, what: str) -> Any:
        """The queue of a stream that is given what no recording can hold."""
        queue = self.queue(device, stream)
        self._recordings.refuse(queue, what)
        return queue

    def identify(self, device: int) -> dict[str, Any]:
        return identify(self.found(device))

    def recover(self, device: int) -> None:
        """A context anew. What was of the one before is let go of without a word to its driver."""
        self._refuse_forked()
        before = self.found(device).context
        renew(device)
        with self._lock:
            for queue in (*self._queues.values(), *self._default.values()):
                if queue.context == before:
                    self._recordings.forget(int(queue.int_ptr))
            for held in (self._memory, self._queues):
                for handle in [handle for handle, made in held.items() if made.context == before]:
                    del held[handle]
            for key in (device, ~device):
                self._default.pop(key, None)
            self._faults.pop(device, None)
            self._idle.clear()
            self._pending.clear()
            self._pending_bytes = 0
        self.card.forget(device)

    # --- profiles -------------------------------------------------------------------------------------------------

    def profile_start(self, device: int) -> None:
        self._profiles.start(device)

    def profile_collect(self, device: int) -> list[Activity]:
        return self._profiles.collect(device)

    def profile_stop(self, device: int) -> None:
        self._profiles.stop(device)

    def profile_push(self, device: int, name: str, stream: Any) -> None:
        self._profiles.push(device, name, stream)

    def profile_pop(self, device: int, stream: Any) -> None:
        self._profiles.pop(device, stream)

    # --- memory ---------------------------------------------------------------------------------------------------

    def alloc(self, device: int, nbytes: int, stream: Any) -> int:
        return self._buffer(device, max(nbytes, 1))

    def _buffer(self, device: int, nbytes: int) -> int:
        self._refuse_forked()
        found = self.found(device)
        try:
            memory = cl.Buffer(found.context, cl.mem_flags.READ_WRITE, nbytes)
        except cl.Error as error:
            if any(word in str(error) for word in _OUT_OF_MEMORY):
                raise MemoryError(f"opencl: no {nbytes} bytes on {found.device.name.strip()} ({error})") from error
            raise
        handle = int(memory.int_ptr)
        self._memory[handle] = memory
        return handle

    def free(self, device: int, handle: int, nbytes: int, stream: Any) -> None:
        if not self._forked:
            self._memory.pop(handle).release()  # OpenCL keeps it until queued commands are done

    def copy_from_host(self, device: int, dst: int, dst_offset: int, src: memoryview, stream: Any) -> None:
        queue = self._unrecorded_queue(device, stream, "a copy from the host")
        memory = self._memory[dst]
        self._submitted += 1
        self._drop_finished()
        if self._pending_bytes + src.nbytes > _STAGED:
            source = np.frombuffer(src, np.uint8)
            event = cl.enqueue_copy(queue, memory, source, dst_offset=dst_offset, is_blocking=True)
        else:
            event = self._queue_write(queue, memory, np.frombuffer(src, np.uint8).copy(), dst_offset)
        self._profiles.note_copy(device, "copy_from_host", event, stream, src.nbytes)

    def _queue_write(self, queue: Any, memory: Any, source: Any, offset: int) -> Any:
        """A copy that is under way when this returns; ``source`` is kept until it is done."""
        event = cl.enqueue_copy(queue, memory, source, dst_offset=offset, is_blocking=False)
        with self._lock:
            self._pending.append((event, source))
            self._pending_bytes += source.nbytes
        queue.flush()
        return event

    def _drop_finished(self) -> None:
        with self._lock:
            while self._pending and _finished(self._pending[0][0]):
                _, source = self._pending.popleft()
                self._pending_bytes -= source.nbytes

    # --- pinned memory --------------------------------------------------------------------------------------------

    def host_alloc(self, nbytes: int) -> int:
        """Memory of the host that the driver allocated, for all devices: what it copies by itself."""
        queue = self.queue(0, None)
        memory = cl.Buffer(self.found(0).context, cl.mem_flags.ALLOC_HOST_PTR, nbytes)
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        mapped: Any = cl.enqueue_map_buffer  # its annotations know no plain dtypes
        data, _ = mapped(queue, memory, flags, 0, (nbytes,), np.uint8, is_blocking=True)
        address = int(data.ctypes.data)
        self._pinned[address] = (memory, data)
        return address

    def host_free(self, address: int, nbytes: int) -> None:
        memory, data = self._pinned.pop(address)
        data.base.release(self.queue(0, None))
        memory.release()

    def host_register(self, address: int, nbytes: int) -> None:
        """The driver is shown the memory, so that it may pin it."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
        self._registered[address] = cl.Buffer(self.found(0).context, flags, hostbuf=_bytes(address, nbytes))

    def host_unregister(self, address: int, nbytes: int) -> None:
        self._registered.pop(address).release()

    def copy_from_pinned(self, device: int, dst: int, dst_offset: int, address: int, nbytes: int, stream: Any) -> None:
        self._submitted += 1
        queue = self._unrecorded_queue(device, stream, "a copy from the host")
        source = _bytes(address, nbytes)
        event = cl.enqueue_copy(queue, self._memory[dst], source, dst_offset=dst_offset, is_blocking=False)
        queue.flush()
        self._profiles.note_copy(device, "copy_from_pinned", event, stream, nbytes)

    def copy_to_pinned(self, device: int, address: int, src: int, src_offset: int, nbytes: int, stream: Any) -> None:
        self._submitted += 1
        queue = self._unrecorded_queue(device, stream, "a copy to the host")
        target = _bytes(address, nbytes)
        event = cl.enqueue_copy(queue, target, self._memory[src], src_offset=src_offset, is_blocking=False)
        queue.flush()
        self._profiles.note_copy(device, "copy_to_pinned", event, stream, nbytes)

    def copy_to_host(self, device: int, dst: memoryview, src: int, src_offset: int, stream: Any) -> None:
        queue = self._unrecorded_queue(device, stream, "a copy to the host")
        event = self._read(device, queue, np.frombuffer(dst, np.uint8), self._memory[src], src_offset)
        self._profiles.note_copy(device, "copy_to_host", event, stream, dst.nbytes)

    def copy_within(
        self, device: int, dst: int, dst_offset: int, src: int, start: int, nbytes: int, stream: Any
    ) -> None:
        queue = self.queue(device, stream)
        source, target = self._memory[src], self._memory[dst]
        if self._recordings.copied(queue, source, target, start, dst_offset, nbytes):
            return
        self._submitted += 1
        event = cl.enqueue_copy(queue, target, source, src_offset=start, dst_offset=dst_offset, byte_count=nbytes)
        self._profiles.note_copy(device, "copy_within", event, stream, nbytes)

    def synchronize(self, device: int, stream: Any) -> None:
        queue, counts = self._unrecorded_queue(device, stream, "a wait of the host"), self._counts()
        self._read(device, queue)
        self._idle[int(queue.int_ptr)] = counts
        self._drop_finished()

    def _counts(self) -> tuple[int, int]:
        return launcher.launches(), self._submitted

    # --- faults that kernels find ---------------------------------------------------------------------------------

    def fault_buffer(self, device: int) -> int:
        """The memory where kernels of a device write what is wrong with their data."""
        with self._lock:
            if device not in self._faults:
                handle = self._buffer(device, 16)
                cl.enqueue_copy(self.queue(device, None), self._memory[handle], np.zeros(4, np.uint32))
                self._faults[device] = handle
            return int(self._faults[device])

    def _read(self, device: int, queue: Any, dst: Any = None, memory: Any = None, offset: int = 0) -> Any:
        """Wait for a queue, reading memory if any is given, and raise what its kernels reported.
        The event of reading.
        """
        try:
            return self._wait(queue, dst, memory, offset, self._memory.get(self._faults.get(device, 0)))
        except cl.Error as error:
            if error.code == cl.status_code.DEVICE_NOT_AVAILABLE:
                raise DeviceLostError(f"opencl: {self.found(device).device.name.strip()} is lost ({error})") from error
            raise

    def _wait(self, queue: Any, dst: Any, memory: Any, offset: int, faults: Any) -> Any:
        event = None
        words = np.zeros(4, np.uint32)
        if dst is not None:
            event = cl.enqueue_copy(queue, dst, memory, src_offset=offset, is_blocking=faults is None)
        if faults is None:
            queue.finish()
            return event
        cl.enqueue_copy(queue, words, faults, is_blocking=True)
        if words[0]:
            cl.enqueue_copy(queue, faults, np.zeros(4, np.uint32), is_blocking=True)
            raise self.card.fault_error([int(word) for word in words])
        return event

    # --- streams and events ---------------------------------------------------------------------------------------

    def stream_create(self, device: int, priority: int) -> int:
        queue = self._make_queue(device)
        self._queues[int(queue.int_ptr)] = queue
        return int(queue.int_ptr)

    def stream_destroy(self, device: int, stream: int) -> None:
        queue = self._queues.pop(stream, None)
        if queue is not None:
            self._recordings.forget(stream)
            queue.finish()
            self._idle.pop(stream, None)

    def stream_query(self, device: int, stream: Any) -> bool:
        queue = self.queue(device, stream)
        if self._idle.get(int(queue.int_ptr)) == self._counts():
            return True
        marker = cl.enqueue_marker(queue)  # OpenCL cannot ask a queue; that of an idle one is done in microseconds
        queue.flush()
        deadline = time.monotonic() + _PATIENCE
        while not _finished(marker):
            if time.monotonic() > deadline:
                return False
        return True

    def stream_wait_event(self, device: int, stream: Any, event: int) -> None:
        recorded = self._events.get(event)
        if recorded is not None:
            queue = self._unrecorded_queue(device, stream, "a wait for an event")
            cl.enqueue_barrier(queue, wait_for=[recorded])

    def event_create(self, device: int, timing: bool) -> int:
        with self._lock:
            number = self._next_event
            self._next_event += 1
        self._events[number] = None
        return number

    def event_destroy(self, device: int, event: int) -> None:
        self._events.pop(event, None)

    def event_record(self, device: int, event: int, stream: Any) -> None:
        queue = self._unrecorded_queue(device, stream, "an event")
        self._events[event] = cl.enqueue_marker(queue)
        queue.flush()

    def event_query(self, device: int, event: int) -> bool:
        recorded = self._events.get(event)
        return recorded is None or _finished(recorded)

    def event_synchronize(self, device: int, event: int) -> None:
        recorded = self._events.get(event)
        if recorded is not None:
            recorded.wait()
            self._read(device, self._fault_queue(device))

    def _fault_queue(self, device: int) -> Any:
        """A queue for reading reports alone, which does not wait for others' work."""
        with self._lock:
            key = ~device
            if key not in self._default:
                self._default[key] = self._make_queue(device)
            return self._default[key]

    def event_elapsed(self, device: int, begin: int, end: int) -> float:
        first, last = self._events.get(begin), self._events.get(end)
        if first is None or last is None:
            raise ValueError("elapsed_time: expected two events that were recorded")
        last.wait()
        first.wait()
        return float(last.profile.end - first.profile.end) * 1e-6


def _bytes(address: int, nbytes: int) -> Any:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address))


def _finished(event: Any) -> bool:
    status = event.command_execution_status
    return bool(status == cl.command_execution_status.COMPLETE or status < 0)
