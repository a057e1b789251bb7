"""One call of a kernel, as templates see it: the card, the device, operands and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tesserack_kernelgen.card import Card
    from tesserack_kernelgen.fused import Slot

__all__ = ["FAULTS", "Call", "Device", "Part"]

#: What a kernel may find wrong with its data; the first of the four words where it is reported.
FAULTS = {"index": 1, "division": 2, "weights": 3}


@dataclass(frozen=True)
class Device:
    """One device, as far as templates choose by it.

    Args:
        index: its number.
        identity: names device and driver in the key of the disk cache.
        group: items per group of plain kernels, a power of two. 1: groups do not work together, and are never asked to.
        compute_units: how many groups run at a time.
        vector_bytes: how much an item loads at once; 4 where neighbouring items are vectorised by the compiler.
        fp64: whether it computes with float64.
        serial: whether items are iterations of a loop on few processors, rather than threads of many.
        int64_atomics: whether ``CAS64`` is there.
        fault: the argument, bytes, by which kernels get the address of four ``u32`` words for faults.
        max_arguments: bytes of arguments a kernel may have.
        local_bytes: local memory of a group.
        simd_bytes: vector registers of a serial device.
        cache_bytes: its last cache; 0 if unknown.
    """

    index: int
    identity: str
    group: int
    compute_units: int
    vector_bytes: int
    fp64: bool
    serial: bool
    int64_atomics: bool
    fault: bytes
    max_arguments: int = 1024
    local_bytes: int = 32768
    simd_bytes: int = 32
    cache_bytes: int = 0


@dataclass(frozen=True)
class Part:
    """What the operands of a call are in a part of a graph.

    Args:
        slots: outputs, then inputs.
        operands: those of the part, outputs and inputs, by their numbers.
    """

    slots: tuple[Slot, ...]
    operands: tuple[Any, ...]


class Call(NamedTuple):
    """One call of a kernel. Inputs without storage are numbers, absent ones None.

    ``epilogue`` and ``prologue`` are there for templates of kernels registered as taking one; ``deterministic`` and
    ``precision`` are what :meth:`tesserack.backends.Backend.kernel` says of them. ``part``: of a graph that is one
    kernel with pointwise programs around it.
    """

    card: Card
    device: Device
    op: str
    opcode: Any
    compute: str | None
    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    params: tuple[Any, ...]
    program: Any
    epilogue: Any = None
    deterministic: bool = False
    precision: str = "highest"
    prologue: Any = None
    part: Part | None = None
