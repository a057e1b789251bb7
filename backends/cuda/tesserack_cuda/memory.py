"""Device memory from CuPy's pool, which programs that use CuPy beside Tesserack share.

The core caches over it, by stream, so that most allocations enter no Python; what the core gives back returns to the
pool, and ``trim`` returns what the pool keeps to the device.
"""

from __future__ import annotations

import contextlib
import threading
import time
import traceback
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tesserack_cuda.driver import RELAXED

if TYPE_CHECKING:
    from tesserack_cuda.backend import CUDA

__all__ = ["Memory"]


class Memory:
    """Blocks of CuPy's pool by address. CuPy's objects live as long as the core holds the addresses."""

    def __init__(self, backend: CUDA):
        self._backend = backend
        # By address: the pool's pointer, the stream it was allocated for, the device and the bytes.
        self._held: dict[int, tuple[Any, int, int, int]] = {}
        self._lock = threading.Lock()
        self._history: deque[tuple[int, dict[str, Any]]] = deque(maxlen=0)  # with the device
        self._with_frames = False

    def take(self, device: int, nbytes: int, stream: int) -> int:
        """The address of a block for use on a stream. ``MemoryError`` with sizes where there is none."""
        driver = self._backend.driver
        self._backend.on(device)
        try:
            with self._backend.relaxed(), driver.on_stream(stream):
                pointer = driver.pool.malloc(max(nbytes, 1))
        except MemoryError as error:
            raise MemoryError(self._refusal(device, nbytes)) from error
        handle = int(pointer.ptr)
        with self._lock:
            self._held[handle] = pointer, stream, device, nbytes
            self._note("segment_alloc", handle)
        return handle

    def _refusal(self, device: int, nbytes: int) -> str:
        free, total = self._backend.on(device).memGetInfo()
        pool = self.statistics(device)
        limit = f", limited to {pool['pool_limit']:,}" if pool["pool_limit"] else ""
        return (
            f"{self._backend.name}: no {nbytes:,} bytes on device {device}, where {free:,} of {total:,} are free; "
            f"CuPy's pool holds {pool['pool_total']:,}, {pool['pool_used']:,} of them in use{limit}"
        )

    def give(self, device: int, handle: int, stream: int) -> None:
        """Return a block that work under way on ``stream`` may use, and no other's."""
        with self._lock:
            _, allocated_for, *_ = self._held[handle]
        if stream != allocated_for:  # the pool will give it to work of the stream that it was allocated for
            self._backend.on(device).streamSynchronize(stream)
        with self._lock:
            self._note("segment_free", handle)
            held = self._held.pop(handle)
        del held  # and the pool has the block

    def trim(self, device: int) -> None:
        """What the pool keeps for reuse goes back to the device."""
        self._backend.on(device)
        with self._backend.relaxed():
            self._backend.driver.pool.free_all_blocks()

    def _note(self, action: str, handle: int) -> None:
        if not self._history.maxlen:
            return
        _, stream, device, nbytes = self._held[handle]
        frames = traceback.extract_stack()[:-2] if self._with_frames else []
        event = {"action": action, "addr": handle, "size": nbytes, "stream": stream, "time_us": time.time_ns() // 1000}
        event["frames"] = [{"filename": f.filename, "line": f.lineno, "name": f.name} for f in reversed(frames)]
        self._history.append((device, event))

    def record(self, entries: int, frames: bool) -> None:
        """Keep the last so many blocks taken and given back, perhaps with Python's frames; 0 ends it."""
        with self._lock:
            self._history, self._with_frames = deque(maxlen=entries), frames

    def snapshot(self, devices: int) -> dict[str, Any]:
        """What is held, and what was recorded, in the arrangement of PyTorch's snapshots."""
        with self._lock:
            segments = [
                {"device": device, "address": handle, "total_size": nbytes, "stream": stream, "segment_type": "large"}
                for handle, (_, stream, device, nbytes) in self._held.items()
            ]
            traces = [[event for device, event in self._history if device == k] for k in range(devices)]
        return {"segments": segments, "device_traces": traces}

    def statistics(self, device: int) -> dict[str, int]:
        """Bytes that the pool of a device holds, those in use, by CuPy's arrays too, and its limit; 0: none."""
        self._backend.on(device)
        pool = self._backend.driver.pool
        return {
            "pool_total": int(pool.total_bytes()),
            "pool_used": int(pool.used_bytes()),
            "pool_limit": int(pool.get_limit()),
        }


@contextlib.contextmanager
def relaxed(exchange: Any) -> Iterator[None]:
    """Within it, this thread may do what a capture of a stream would otherwise be ended by, such as to allocate."""
    before = exchange(RELAXED)
    try:
        yield
    finally:
        exchange(before)
