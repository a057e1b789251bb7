"""``torch.xpu``: the devices that "xpu" means, and a sensible answer where there are none."""

from __future__ import annotations

from tesserack.compat.shims._card_functions import functions as _functions

_members = _functions("xpu")
globals().update(_members)

__all__ = [*_members]
