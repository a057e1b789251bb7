"""Launch plans: how a kernel in Python tells the core to repeat its launches without entering Python again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["WORKSPACE", "Block", "Buffer", "Launch", "LaunchPlan", "Patch"]

#: The operand that stands for the scratch memory of a plan.
WORKSPACE = -1


class Patch(NamedTuple):
    """A number of the call that is written into a :class:`Block` before every launch.

    ``kind`` is ``"offset"`` (byte offset of operand ``source`` in its storage), ``"scalar"`` (the value of operand
    ``source``, a tensor without storage) or ``"param"`` (the number ``source`` among the call's parameters, which the
    kernel's registration names as changing). ``format`` is a character of ``struct``: ``b B h H i I q Q f d``. An
    offset that does not fit is a ``RuntimeError`` of the call; other integers wrap, floats are cut to integers.
    """

    position: int
    kind: str
    source: int
    format: str


class Buffer(NamedTuple):
    """An argument: the storage handle of an operand. Outputs count first, inputs after them."""

    operand: int


class Block(NamedTuple):
    """An argument: bytes passed by value, with numbers of the call patched in."""

    data: bytes
    patches: Sequence[Patch] = ()


class Launch(NamedTuple):
    """One launch of a compiled kernel.

    ``entry`` is the address of a ``ts_launch_fn`` (``tesserack/launch.h``), ``kernel`` the address it is handed,
    ``groups`` and ``group_size`` are work-groups per axis and work-items per group.
    """

    entry: int
    kernel: int
    groups: tuple[int, int, int]
    group_size: tuple[int, int, int]
    arguments: Sequence[Buffer | Block]
    shared_bytes: int = 0


class LaunchPlan(NamedTuple):
    """What a kernel in Python returns instead of computing: launches in order, and bytes of scratch memory.

    The core runs the plan at once, and again for every later call of the same signature: the same kernel, program,
    opcode, compute dtype, device, parameters (changing ones aside) and, of every operand, dtype, sizes, strides,
    flags and byte offset modulo 16. Values of tensors without storage are not part of it: patch them in. Neither is
    the stream, which a launcher is handed. So nothing that the kernel decides, nor its ``when``, may hang on these.

    A plan needs a backend with ``raw_handles``. ``launches`` None declines every call of the signature. Scratch memory
    is the core's, on the call's stream, and nobody's once the launches are queued. ``keep`` is any object that lives
    as long as the plan, such as the compiled module. The core keeps some thousands of plans per kernel and then drops
    those not used of late.

    >>> from tesserack.backends import Block, Buffer, Launch, LaunchPlan, Patch
    >>> numbers = Block(bytes(16), [Patch(0, "offset", 0, "q"), Patch(8, "param", 0, "d")])
    >>> plan = LaunchPlan([Launch(0x7F00, 0x7F80, (4, 1, 1), (256, 1, 1), [Buffer(0), numbers])])
    >>> plan.workspace
    0
    """

    launches: Sequence[Launch] | None
    workspace: int = 0
    keep: Any = None
