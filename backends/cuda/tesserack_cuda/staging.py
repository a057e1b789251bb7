"""Pinned host memory for copies to a device: the caller's bytes are free again at once, while the copy is queued."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Staging"]

_HOST_TO_DEVICE, _PORTABLE, _WITHOUT_TIMES = 1, 1, 2
_PIECES = 32


class Staging:
    """A ring of pieces of pinned memory, each for one copy under way, on the current device. One thread at a time."""

    def __init__(self, runtime: Any, piece: int):
        self._runtime, self._piece, self._next = runtime, piece, 0
        self._memory = int(runtime.hostAlloc(piece * _PIECES, _PORTABLE))
        data = (ctypes.c_uint8 * (piece * _PIECES)).from_address(self._memory)
        self._bytes = np.ctypeslib.as_array(data)
        self._events = [int(runtime.eventCreateWithFlags(_WITHOUT_TIMES)) for _ in range(_PIECES)]

    def send(self, target: int, source: NDArray[np.uint8], stream: int) -> None:
        """Queue a copy of at most one piece. Waits where all pieces are under way."""
        start = self._next * self._piece
        self._runtime.eventSynchronize(self._events[self._next])  # one that was never recorded is done
        self._bytes[start : start + source.nbytes] = source
        self._runtime.memcpyAsync(target, self._memory + start, source.nbytes, _HOST_TO_DEVICE, stream)
        self._runtime.eventRecord(self._events[self._next], stream)
        self._next = (self._next + 1) % _PIECES

    def release(self) -> None:
        """Give the memory back."""
        for event in self._events:
            self._runtime.eventDestroy(event)
        self._runtime.freeHost(self._memory)
