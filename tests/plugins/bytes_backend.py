"""A backend for tests: memory as NumPy bytes, counting what happens to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from tesserack.backends import Backend, Operand


class Bytes(Backend):
    """Memory as NumPy bytes, counting what happens to it."""

    vendor = "org.tesserack.tests"

    def __init__(self, name: str) -> None:
        self.name = name
        self.allocated = self.freed = 0
        super().__init__()

    def alloc(self, device: int, nbytes: int, stream: Any) -> Any:
        if nbytes > 2**30:
            raise MemoryError("a gigabyte is all there is")
        self.allocated += 1
        return np.zeros(nbytes, np.uint8)

    def free(self, device: int, handle: Any, nbytes: int, stream: Any) -> None:
        self.freed += 1

    def copy_from_host(self, device: int, dst: Any, dst_offset: int, src: memoryview, stream: Any) -> None:
        dst[dst_offset : dst_offset + src.nbytes] = np.frombuffer(src, np.uint8)

    def copy_to_host(self, device: int, dst: memoryview, src: Any, src_offset: int, stream: Any) -> None:
        np.frombuffer(dst, np.uint8)[:] = src[src_offset : src_offset + dst.nbytes]

    def copy_within(
        self, device: int, dst: Any, dst_offset: int, src: Any, src_offset: int, nbytes: int, stream: Any
    ) -> None:
        dst[dst_offset : dst_offset + nbytes] = src[src_offset : src_offset + nbytes]


def floats(x: Operand) -> Any:
    return np.ndarray(x.shape, np.float32, x.handle, x.byte_offset, x.byte_strides)


def bits(x: Operand) -> Any:
    """The elements of any dtype, as unsigned integers."""
    return np.ndarray(x.shape, f"u{x.itemsize}", x.handle, x.byte_offset, x.byte_strides)
