"""Memory, copies, streams and events of NVIDIA's devices.

Handles are addresses: device pointers, ``cudaStream_t``, ``cudaEvent_t``. The core keeps the pool over ``alloc``, so
that most allocations enter no Python.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from tesserack.backends import Backend

from tesserack_cuda.driver import Driver, load
from tesserack_cuda.staging import Staging

if TYPE_CHECKING:
    from tesserack_cuda.card import CUDACard

__all__ = ["CUDA"]

_NOT_READY, _OUT_OF_MEMORY, _PEER_ALREADY = 600, 2, 704
_STAGED = 1 << 18  # bytes of a piece of pinned memory, through which copies from the host are queued
_DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 2, 3


class CUDA(Backend):
    """The devices of one driver. ``driver`` loads it; ``name`` is what devices are called."""

    vendor, version = "com.nvidia.cuda", "0.1.0"
    raw_handles = True
    card: CUDACard

    def __init__(self, name: str = "cuda", driver: Callable[[], Driver] = load) -> None:
        self.name = name
        super().__init__()
        self._load = driver
        self._lock = threading.RLock()
        self._attributes: dict[int, dict[str, Any]] = {}
        self._faults: dict[int, int] = {}
        self._staging: dict[int, Staging] = {}
        self._peers: set[tuple[int, int]] = set()

    @functools.cached_property
    def driver(self) -> Driver:
        """CUDA's functions."""
        return self._load()

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

    # --- memory ---------------------------------------------------------------------------------------------------

    def alloc(self, device: int, nbytes: int, stream: Any) -> int:
        try:
            return int(self.on(device).malloc(max(nbytes, 1)))
        except Exception as error:
            if getattr(error, "status", None) == _OUT_OF_MEMORY:
                raise MemoryError(f"{self.name}: no {nbytes} bytes on device {device}") from error
            raise

    def free(self, device: int, handle: int, nbytes: int, stream: Any) -> None:
        self.on(device).free(handle)  # waits for work that is under way

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
        return _done(self.on(device).eventQuery, event)

    def event_synchronize(self, device: int, event: int) -> None:
        self.on(device).eventSynchronize(event)

    def event_elapsed(self, device: int, begin: int, end: int) -> float:
        runtime = self.on(device)
        runtime.eventSynchronize(begin)
        runtime.eventSynchronize(end)
        return float(runtime.eventElapsedTime(begin, end))

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
