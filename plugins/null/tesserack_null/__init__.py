"""A backend whose kernels refuse by name: the smallest thing the core accepts, to copy and fill in.

Memory works, so tensors can be made, moved and looked at; every computation says which kernel is missing, or, if
fallbacks are allowed, runs on the cpu backend and is counted.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tesserack.backends import Backend

REQUIRED = (
    *("copy_cast", "fill", "iota", "pointwise", "reduce", "scan"),
    *("matmul", "gather", "scatter", "sort", "random_bits"),
)


class Null(Backend):
    """One device with memory and no kernels."""

    name, vendor, version = "null", "org.tesserack.null", "0.1.0"

    def properties(self, device: int) -> dict[str, Any]:
        return {"name": "nothing", "simulated": True}

    def alloc(self, device: int, nbytes: int, stream: Any) -> bytearray:
        return bytearray(nbytes)

    def copy_from_host(self, device: int, dst: bytearray, dst_offset: int, src: memoryview, stream: Any) -> None:
        dst[dst_offset : dst_offset + src.nbytes] = src

    def copy_to_host(self, device: int, dst: memoryview, src: bytearray, src_offset: int, stream: Any) -> None:
        dst[:] = src[src_offset : src_offset + dst.nbytes]

    def copy_within(
        self, device: int, dst: bytearray, dst_offset: int, src: bytearray, src_offset: int, nbytes: int, stream: Any
    ) -> None:
        dst[dst_offset : dst_offset + nbytes] = src[src_offset : src_offset + nbytes]


backend = Null()


@backend.kernel(*REQUIRED)
def refuse(*operands: Any, op: str) -> NoReturn:
    """Replace this by kernels, one function per name: what each has to do stands in ``tesserack/abi.h``."""
    raise NotImplementedError(f"backend 'null' has no kernel {op}; write one with @backend.kernel({op!r})")
