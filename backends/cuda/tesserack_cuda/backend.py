"""Memory, copies, streams and events of NVIDIA's devices.

Handles are addresses: device pointers, ``cudaStream_t``, ``cudaEvent_t``, ``cudaGraphExec_t``. Memory is of CuPy's
pool, see ``memory.py``.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from tesserack import DeviceLostError
from tesserack.backends import Backend

from tesserack_cuda import memory
from tesserack_cuda.driver import Driver, load
from tesserack_cuda.graphs import CAPTURE_MODES, Recorded
from tesserack_cuda.staging import Staging

if TYPE_CHECKING:
    from tesserack_cuda.card import CUDACard

__all__ = ["CUDA"]

_NOT_READY, _PEER_ALREADY = 600, 704
# What CUDA says again of every call until the process ends; as in kernelgen's launcher.
_LOST = frozenset((46, 700, 709, 710, *range(714, 720)))
_STAGED = 1 << 18  # bytes of a piece of pinned memory, through which copies from the host are queued
_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3
_PORTABLE = 1


class CUDA(Backend):
    """The devices of one driver. ``driver`` loads it; ``name`` is what devices are called."""

    vendor, version = "com.nvidia.cuda", "0.1.0"
    raw_handles = True
    capture_streams = True  # streams that wait for an event of a captured one are captured with it
    card: CUDACard
    communicator: Any  # of which the core has the address

    def __init__(self, name: str = "cuda", driver: Callable[[], Driver] = load) -> None:
        self.name = name
        super().__init__()
        self._load = driver
        self._lock = threading.RLock()
        self._attributes: dict[int, dict[str, Any]] = {}
        self._faults: dict[int, int] = {}
        self._staging: dict[int, Staging] = {}
        self._peers: set[tuple[int, int]] = set()
        self.memory = memory.Memory(self)
        self._captures = 0  # under way
        self.begun_by = 0  # the process that loaded the driver
        self.capture_settings = threading.local()  # ``mode``, ``keep`` for a thread's captures; ``made`` by the last
        self._graphs: dict[int, Recorded] = {}
        self._graph_numbers = itertools.count(1)

    @functools.cached_property
    def driver(self) -> Driver:
        """CUDA's functions."""
        loaded = self._load()
        self.begun_by = os.getpid()
        return loaded

    def probed(self) -> bool:
        """Whether there is a device."""
        answer = self.probe()
        return not isinstance(answer, tuple) and answer > 0

    def on(self, device: int) -> Any:
        """The runtime, with a device current in this thread."""
        runtime = self.driver.runtime
        runtime.setDevice(device)
        return runtime

    # --- devices --------------------------------------------------------------------------------------------------

    def probe(self) -> int | tuple[int, str]:
        try:
            count = int(self.driver.runtime.getDeviceCount())
        except OSError:
            return 0, "no NVIDIA driver (libcuda.so.1 is not there); install one, 580 or newer for CUDA 13"
        except Exception as error:  # of the bindings, which have a class for each library
            return 0, f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return count if count else (0, "the NVIDIA driver shows no device; CUDA_VISIBLE_DEVICES may hide them")

    def open(self, device: int) -> None:
        self.fault_buffer(device)  # now, since a capture may be under way when the first kernel is made

    def attributes(self, device: int) -> dict[str, Any]:
        """What CUDA tells of a device."""
        if device not in self._attributes:
            self._attributes[device] = dict(self.driver.runtime.getDeviceProperties(device))
        return self._attributes[device]

    def properties(self, device: int) -> dict[str, Any]:
        told = self.attributes(device)
        free, total = self.on(device).memGetInfo()
        return {
            "name": told["name"].decode() if isinstance(told["name"], bytes) else told["name"],
            "total_memory": int(total),
            "free_memory": int(free),
            "compute_units": int(told["multiProcessorCount"]),
            "atomics": True,
            "asynchronous": True,
        }

    def identify(self, device: int) -> dict[str, Any]:
        told = self.attributes(device)
        found: dict[str, Any] = {}
        if isinstance(uuid := told.get("uuid"), bytes) and len(uuid) == 16:
            found["uuid"] = uuid
        if "pciBusID" in told:
            domain, bus, slot = (int(told[f"pci{part}ID"]) for part in ("Domain", "Bus", "Device"))
            found["bus"] = f"{domain:04x}:{bus:02x}:{slot:02x}.0"
        return found

    def link(self, device: int, peer: int) -> dict[str, Any]:
        return {"direct": device != peer and bool(self.driver.runtime.deviceCanAccessPeer(device, peer))}

    # --- memory ---------------------------------------------------------------------------------------------------

    def alloc(self, device: int, nbytes: int, stream: Any) -> int:
        return self.memory.take(device, nbytes, stream or 0)

    def free(self, device: int, handle: int, nbytes: int, stream: Any) -> None:
        self.memory.give(device, handle, stream or 0)

    def trim(self, device: int) -> None:
        self.memory.trim(device)

    def relaxed(self) -> contextlib.AbstractContextManager[None]:
        """A context for calls that CUDA refuses while some stream is captured, though they do it no harm."""
        return memory.relaxed(self.driver.exchange_capture_mode) if self._captures else contextlib.nullcontext()

    def host_alloc(self, nbytes: int) -> int:
        with self.relaxed():
            return int(self.driver.runtime.hostAlloc(max(nbytes, 1), _PORTABLE))

    def host_free(self, address: int, nbytes: int) -> None:
        with self.relaxed():
            self.driver.runtime.freeHost(address)

    def host_register(self, address: int, nbytes: int) -> None:
        with self.relaxed():
            self.driver.runtime.hostRegister(address, nbytes, _PORTABLE)

    def host_unregister(self, address: int, nbytes: int) -> None:
        with self.relaxed():
            self.driver.runtime.hostUnregister(address)

    def copy_from_pinned(self, device: int, dst: int, offset: int, address: int, nbytes: int, stream: Any) -> None:
        self.on(device).memcpyAsync(dst + offset, address, nbytes, _HOST_TO_DEVICE, stream or 0)

    def copy_to_pinned(self, device: int, address: int, src: int, offset: int, nbytes: int, stream: Any) -> None:
        self.on(device).memcpyAsync(address, src + offset, nbytes, _DEVICE_TO_HOST, stream or 0)

    def copy_from_host(self, device: int, dst: int, dst_offset: int, src: memoryview, stream: Any) -> None:
        self.on(device)
        given = np.frombuffer(src, np.uint8)
        with self._lock:  # waits only where all pieces of the ring are under way
            staging = self.staging(device)
            for start in range(0, src.nbytes, _STAGED):
                staging.send(dst + dst_offset + start, given[start : start + _STAGED], stream or 0)

    def staging(self, device: int) -> Staging:
        """The pinned memory that small copies to a device pass through."""
        if device not in self._staging:
            self._staging[device] = Staging(self.driver.runtime, _STAGED)
        return self._staging[device]

    def copy_to_host(self, device: int, dst: memoryview, src: int, src_offset: int, stream: Any) -> None:
        target = np.frombuffer(dst, np.uint8)
        runtime = self.on(device)
        runtime.memcpyAsync(target.ctypes.data, src + src_offset, dst.nbytes, _DEVICE_TO_HOST, stream or 0)
        self.synchronize(device, stream)

    def copy_within(
        self, device: int, dst: int, dst_offset: int, src: int, start: int, nbytes: int, stream: Any
    ) -> None:
        runtime = self.on(device)
        runtime.memcpyAsync(dst + dst_offset, src + start, nbytes, _DEVICE_TO_DEVICE, stream or 0)

    def copy_peer(
        self,
        device: int,
        dst: int,
        dst_offset: int,
        src_backend: str,
        src_device: int,
        src: int,
        src_offset: int,
        nbytes: int,
        stream: Any,
    ) -> Any:
        """From another device of this backend, directly where the two reach one another."""
        if src_backend != self.name:
            return NotImplemented
        self.on(src_device).deviceSynchronize()  # the source's work may be on any stream there
        runtime = self.on(device)
        self._connect(device, src_device)
        runtime.memcpyPeerAsync(dst + dst_offset, device, src + src_offset, src_device, nbytes, stream or 0)
        return None

    def _connect(self, device: int, other: int) -> None:
        pair = (device, other)
        if device == other or pair in self._peers:
            return
        self._peers.add(pair)
        runtime = self.driver.runtime
        if runtime.deviceCanAccessPeer(device, other):
            try:
                runtime.deviceEnablePeerAccess(other)
            except Exception as error:
                if getattr(error, "status", None) != _PEER_ALREADY:
                    raise

    def synchronize(self, device: int, stream: Any) -> None:
        try:
            self._wait(device, stream)
        except Exception as error:
            if getattr(error, "status", None) in _LOST:
                raise DeviceLostError(f"{self.name}:{device}: {error}") from error
            raise

    def _wait(self, device: int, stream: Any) -> None:
        runtime = self.on(device)
        faults = self._faults.get(device)
        if faults is None:
            runtime.streamSynchronize(stream or 0)
            return
        words = np.zeros(4, np.uint32)
        runtime.memcpyAsync(words.ctypes.data, faults, 16, _DEVICE_TO_HOST, stream or 0)
        runtime.streamSynchronize(stream or 0)
        if words[0]:
            runtime.memsetAsync(faults, 0, 16, stream or 0)
            raise self.card.fault_error(tuple(int(word) for word in words))

    def fault_buffer(self, device: int) -> int:
        """The memory where kernels of a device write what is wrong with their data."""
        with self._lock:
            if device not in self._faults:
                runtime = self.on(device)
                handle = int(runtime.malloc(16))
                runtime.memsetAsync(handle, 0, 16, 0)
                runtime.streamSynchronize(0)
                self._faults[device] = handle
            return self._faults[device]

    # --- streams and events ---------------------------------------------------------------------------------------

    def stream_create(self, device: int, priority: int) -> int:
        return int(self.on(device).streamCreateWithPriority(1, priority))  # 1: does not wait for the default stream

    def stream_destroy(self, device: int, stream: int) -> None:
        self.on(device).streamDestroy(stream)

    def stream_query(self, device: int, stream: Any) -> bool:
        return _done(self.on(device).streamQuery, stream or 0)

    def stream_wait_event(self, device: int, stream: Any, event: int) -> None:
        self.on(device).streamWaitEvent(stream or 0, event)

    def event_create(self, device: int, timing: bool) -> int:
        return int(self.on(device).eventCreateWithFlags(0 if timing else 2))  # 2: without times

    def event_destroy(self, device: int, event: int) -> None:
        self.on(device).eventDestroy(event)

    def event_record(self, device: int, event: int, stream: Any) -> None:
        self.on(device).eventRecord(event, stream or 0)

    def event_query(self, device: int, event: int) -> bool:
        with self.relaxed():
            return _done(self.on(device).eventQuery, event)

    def event_synchronize(self, device: int, event: int) -> None:
        self.on(device).eventSynchronize(event)

    def event_elapsed(self, device: int, begin: int, end: int) -> float:
        runtime = self.on(device)
        runtime.eventSynchronize(begin)
        runtime.eventSynchronize(end)
        return float(runtime.eventElapsedTime(begin, end))

    # --- graphs ---------------------------------------------------------------------------------------------------

    def capture_begin(self, device: int, stream: Any) -> None:
        if not stream:
            raise RuntimeError(
                "capture: CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to "
                "replay them on the default stream.)"
            )
        # Other threads know nothing of what the core records by itself: no call of theirs fails for it, or ends it.
        mode = getattr(self.capture_settings, "mode", "thread_local")
        self.capture_settings.mode = "thread_local"
        self.on(device).streamBeginCapture(stream, CAPTURE_MODES[mode])
        with self._lock:
            self._captures += 1

    def capture_end(self, device: int, stream: int) -> int:
        runtime, settings = self.on(device), self.capture_settings
        with self._lock:
            self._captures -= 1
        recorded = Recorded(int(runtime.streamEndCapture(stream)))
        if not getattr(settings, "keep", False):
            try:
                self.instantiate(recorded)
            finally:
                runtime.graphDestroy(recorded.graph)
                recorded.graph = 0
        number = next(self._graph_numbers)
        self._graphs[number] = settings.made = recorded
        settings.keep = False
        return number

    def instantiate(self, recorded: Recorded) -> None:
        """Make a captured graph executable."""
        runtime = self.driver.runtime
        with self.relaxed():
            if recorded.executable:
                runtime.graphExecDestroy(recorded.executable)
            recorded.executable = 0
            recorded.executable = int(runtime.graphInstantiate(recorded.graph))

    def capture_replay(self, device: int, recording: int, stream: Any) -> None:
        recorded = self._graphs[recording]
        if not recorded.executable:
            self.instantiate(recorded)
        self.on(device).graphLaunch(recorded.executable, stream or 0)

    def capture_destroy(self, device: int, recording: int) -> None:
        recorded, runtime = self._graphs.pop(recording), self.on(device)
        with self.relaxed():
            if recorded.executable:
                runtime.graphExecDestroy(recorded.executable)
            if recorded.graph:
                runtime.graphDestroy(recorded.graph)

    def shutdown(self) -> None:
        for staging in self._staging.values():
            staging.release()


def _done(query: Callable[[int], Any], handle: int) -> bool:
    try:
        return int(query(handle) or 0) == 0
    except Exception as error:
        if getattr(error, "status", None) == _NOT_READY:
            return False
        raise
