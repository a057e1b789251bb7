"""``torch.utils._mode_utils``: calls past the classes that take them over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack._tensor.subclass import dispatch_off as no_dispatch

__all__ = ["all_same_mode", "no_dispatch"]


def all_same_mode(modes: Sequence[Any]) -> bool:
    """Whether they are one."""
    return all(mode == modes[0] for mode in modes)
