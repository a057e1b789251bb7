"""Two simulated devices whose memory is no array: blocks that know their device, and refuse to be used on another.

Few kernels are there, and some of them decline: the rest is the core's to decompose or to have computed on the cpu.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tesserack as ts
from tesserack.backends import Backend, Operand, Program

DTYPES = {
    ts.float32: np.float32,
    ts.float64: np.float64,
    ts.int64: np.int64,
    ts.int32: np.int32,
    ts.uint8: np.uint8,
    ts.bool: np.bool_,
}


class Block:
    """Memory of one device."""

    def __init__(self, device: int, nbytes: int) -> None:
        self.device, self.data = device, bytearray(nbytes)

    def bytes(self, device: int, offset: int, count: int) -> memoryview:
        """A part of it, for whom it belongs to."""
        assert device == self.device, f"a block of acme:{self.device} was used on acme:{device}"
        assert 0 <= offset <= len(self.data) - count, "outside of the block"
        return memoryview(self.data)[offset : offset + count]


class Acme(Backend):
    """Two devices, 64 MiB each."""

    name, vendor, version = "acme", "com.acme.simulated", "2.3.1"
    limit = 64 << 20

    def __init__(self) -> None:
        super().__init__()
        self.used = [0, 0]

    def probe(self) -> tuple[int, str]:
        return len(self.used), ""

    def properties(self, device: int) -> dict[str, Any]:
        free = self.limit - self.used[device]
        memory = {"total_memory": self.limit, "free_memory": free}
        return {"name": f"Acme {device}", "dtypes": DTYPES, "simulated": True, **memory}

    def alloc(self, device: int, nbytes: int, stream: Any) -> Block:
        if self.used[device] + nbytes > self.limit:
            raise MemoryError(f"acme:{device} has {self.limit - self.used[device]} bytes left")
        self.used[device] += nbytes
        return Block(device, nbytes)

    def free(self, device: int, handle: Block, nbytes: int, stream: Any) -> None:
        assert handle.device == device and len(handle.data) == nbytes
        self.used[device] -= nbytes

    def copy_from_host(self, device: int, dst: Block, dst_offset: int, src: memoryview, stream: Any) -> None:
        dst.bytes(device, dst_offset, src.nbytes)[:] = src

    def copy_to_host(self, device: int, dst: memoryview, src: Block, src_offset: int, stream: Any) -> None:
        dst[:] = src.bytes(device, src_offset, dst.nbytes)

    def copy_within(self, device: int, dst: Block, to: int, src: Block, start: int, nbytes: int, stream: Any) -> None:
        dst.bytes(device, to, nbytes)[:] = bytes(src.bytes(device, start, nbytes))


def view(x: Operand, device: int) -> Any:
    """The elements where they lie."""
    assert x.handle.device == device
    return np.ndarray(x.shape, DTYPES[x.dtype], x.handle.data, x.byte_offset, x.byte_strides)


def value(x: Any, device: int) -> Any:
    """The elements, or a number."""
    return view(x, device) if isinstance(x, Operand) else x


INSTRUCTIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "neg": np.negative}


def make() -> Acme:
    """What the entry point names: called when the device is first used."""
    acme = Acme()

    @acme.kernel("copy_cast", dtypes=DTYPES)
    def copy_cast(out: Operand, x: Any, *, device: int) -> None:
        view(out, device)[...] = value(x, device)

    @acme.kernel("fill", dtypes=DTYPES)
    def fill(out: Operand, number: float, *, device: int) -> None:
        view(out, device)[...] = number

    @acme.kernel("matmul", dtypes=[ts.float32, ts.float64])
    def matmul(out: Operand, a: Operand, b: Operand, addend: Operand | None = None, *, device: int) -> Any:
        if addend is not None:
            return NotImplemented  # the core adds it afterwards
        view(out, device)[...] = view(a, device) @ view(b, device)
        return None

    @acme.kernel("pointwise", dtypes=DTYPES)
    def pointwise(
        *, outputs: tuple[Operand, ...], inputs: tuple[Any, ...], program: Program, compute_dtype: Any, device: int
    ) -> Any:
        if any(name not in INSTRUCTIONS for name, *_ in program.instructions):
            return NotImplemented
        compute = DTYPES[compute_dtype]
        registers = [np.asarray(value(x, device)).astype(compute) for x in (*inputs, *program.constants)]
        for name, *operands in program.instructions:
            registers.append(INSTRUCTIONS[name](*(registers[k] for k in operands)))
        for out, k in zip(outputs, program.outputs, strict=True):
            view(out, device)[...] = registers[k]
        return None

    return acme
