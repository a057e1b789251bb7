"""Launch plans: how a kernel in Python tells the core to repeat its launches without entering Python again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["WORKSPACE", "Block", "Buffer", "Launch", "LaunchPlan", "Patch"]

#: The operand that stands for the scratch memory of a plan.
WORKSPACE = -1


class Patch(NamedTuple):
    """A number of the call that is written into a :class:`Block` before every launch.

    ``kind`` is ``"offset"`` (byte offset of operand ``index`` in its storage), ``"scalar"`` (the value of operand
    ``index``, a tensor without storage) or ``"param"`` (the number ``index`` among the call's parameters, which the
    kernel's registration names as changing). ``format`` is a character of ``struct``: ``b B h H i I q Q f d``.
    """

    position: int
    kind: str
    index: int
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
    flags and byte offset modulo 16. Values of tensors without storage are not part of it: patch them in.
    """

    launches: Sequence[Launch]
    workspace: int = 0
