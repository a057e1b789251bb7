"""``torch.mtia``: the devices that "mtia" means, and a sensible answer where there are none."""

from __future__ import annotations

from tesserack import _native
from tesserack.compat.shims._card_functions import functions as _functions

_members = _functions("mtia")
globals().update(_members)

Event = _native.Event
Stream = _native.Stream

__all__ = ["Event", "Stream", *_members]
