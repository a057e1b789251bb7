"""Where PyTorch keeps ``autocast``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.amp._autocast import autocast, custom_bwd, custom_fwd, is_autocast_available

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """``func`` within a region, as ``autocast_instance(func)``."""
    return autocast_instance(func)
