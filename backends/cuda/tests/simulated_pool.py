"""CuPy's memory pool as its documentation describes it: blocks of 512 bytes and up, kept by device and stream."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from simulated_errors import OUT_OF_MEMORY, SimulatedError

if TYPE_CHECKING:
    from simulated import Simulated

__all__ = ["OutOfMemoryError", "Pool"]

_UNIT = 512


class OutOfMemoryError(MemoryError):
    """As cupy.cuda.memory.OutOfMemoryError, a MemoryError too."""


class _Pointer:
    """As MemoryPointer: the block is free again when nobody holds it."""

    def __init__(self, pool: Pool, ptr: int, size: int, arena: tuple[int, int]):
        self.ptr, self._pool, self._size, self._arena = ptr, pool, size, arena

    def __del__(self) -> None:
        self._pool.used[self._arena[0]] -= self._size
        self._pool.free.setdefault((*self._arena, self._size), []).append(self.ptr)


class Pool:
    """The default pool. Blocks are reused on the stream they were allocated for alone, and not split."""

    def __init__(self, driver: Simulated):
        self._driver = driver
        self.free: dict[tuple[int, int, int], list[int]] = {}  # by device, stream and size
        self.used = dict.fromkeys(range(64), 0)
        self._limit = dict.fromkeys(range(64), 0)
        self._stream = 0

    @contextlib.contextmanager
    def on_stream(self, handle: int) -> Iterator[None]:
        """As ``with stream:`` of CuPy's streams."""
        before, self._stream = self._stream, handle
        try:
            yield
        finally:
            self._stream = before

    def malloc(self, size: int) -> Any:
        device = self._driver.getDevice()
        rounded = -(-size // _UNIT) * _UNIT
        arena = device, self._stream
        kept = self.free.get((*arena, rounded))
        pointer = kept.pop() if kept else self._fresh(rounded)
        self.used[device] += rounded
        return _Pointer(self, pointer, rounded, arena)

    def _fresh(self, size: int) -> int:
        limit = self._limit[self._driver.getDevice()]
        if limit and self.total_bytes() + size > limit:
            raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")
        for _ in range(2):
            try:
                return self._driver.malloc(size)
            except SimulatedError as error:
                if error.status != OUT_OF_MEMORY:
                    raise
                self.free_all_blocks()
        raise OutOfMemoryError(f"Out of memory allocating {size:,} bytes")

    def free_all_blocks(self, stream: Any = None) -> None:
        device = self._driver.getDevice()
        for key in [key for key in self.free if key[0] == device]:
            for pointer in self.free.pop(key):
                self._driver.free(pointer)

    def free_bytes(self) -> int:
        device = self._driver.getDevice()
        return sum(key[2] * len(kept) for key, kept in self.free.items() if key[0] == device)

    def used_bytes(self) -> int:
        return self.used[self._driver.getDevice()]

    def total_bytes(self) -> int:
        return self.used_bytes() + self.free_bytes()

    def get_limit(self) -> int:
        return self._limit[self._driver.getDevice()]

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit[self._driver.getDevice()] = int(size or self._driver.memory * (fraction or 0))
