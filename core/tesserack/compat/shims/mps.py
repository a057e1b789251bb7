"""``torch.mps``: the devices that "mps" means, and a sensible answer where there are none."""

from __future__ import annotations

from tesserack import _native
from tesserack.compat.shims._card_functions import functions as _functions

_members = _functions("mps")
globals().update(_members)

Event = _native.Event
Stream = _native.Stream

__all__ = ["Event", "Stream", *_members]


def current_allocated_memory() -> int:
    """Bytes in live tensors."""
    return int(_members["memory_allocated"]())


def driver_allocated_memory() -> int:
    """Bytes held from the device."""
    return int(_members["memory_reserved"]())


def recommended_max_memory() -> int:
    """0: no device says so."""
    return 0
