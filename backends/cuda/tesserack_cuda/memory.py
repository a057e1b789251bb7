"""Device memory from CuPy's pool, which programs that use CuPy beside Tesserack share.

The core caches over it, by stream, so that most allocations enter no Python; what the core gives back returns to the
pool, and ``trim`` returns what the pool keeps to the device.
"""

from __future__ import annotations

import contextlib
import threading
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
        self._held: dict[int, tuple[Any, int]] = {}  # the pool's pointer, and the stream it was allocated for
        self._lock = threading.Lock()

    def take(self, device: int, nbytes: int, stream: int) -> int:
        """The address of a block for use on a stream. ``MemoryError`` with sizes where there is none."""
        driver = self._backend.driver
        self._backend.on(device)
        try:
            with self._backend.relaxed(), driver.on_stream(stream):
                pointer = driver.pool.malloc(max(nbytes, 1))
        except MemoryError as error:
            raise MemoryError(self._refusal(device, nbytes)) from error
        with self._lock:
            self._held[int(pointer.ptr)] = pointer, stream
        return int(pointer.ptr)

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
            _, allocated_for = self._held[handle]
        if stream != allocated_for:  # the pool will give it to work of the stream that it was allocated for
            self._backend.on(device).streamSynchronize(stream)
        with self._lock:
            pointer, _ = self._held.pop(handle)
        del pointer

    def trim(self, device: int) -> None:
        """What the pool keeps for reuse goes back to the device."""
        self._backend.on(device)
        with self._backend.relaxed():
            self._backend.driver.pool.free_all_blocks()

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
