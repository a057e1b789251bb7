"""What names of devices mean, where PyTorch's programs give the indices of cards."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import _native
from tesserack.backends._card import CARD

__all__ = ["place_of"]


def place_of(device: Any) -> Any:
    """The device that is meant: an index is that of the default device's kind, or where that is the cpu, of the card of
    PyTorch's programs; a negative one is the default device. An error names the device that is not there."""
    if not isinstance(device, int) or isinstance(device, bool):
        return device
    default = ts.get_default_device()
    if device < 0:
        return default
    return _native._resolve_device(f"{CARD if default.type in ('cpu', 'meta') else default.type}:{device}")
