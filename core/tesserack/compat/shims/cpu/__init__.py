"""``torch.cpu``."""

from __future__ import annotations

import contextlib
from typing import Any

from tesserack.compat.shims.cpu import amp
from tesserack.compat.shims.cpu._capabilities import get_capabilities

__all__ = [
    "amp",
    "current_device",
    "current_stream",
    "device_count",
    "get_capabilities",
    "is_available",
    "set_device",
    "stream",
    "synchronize",
]


def is_available() -> bool:
    """Always True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """``"cpu"``."""
    return "cpu"


def set_device(device: Any) -> None:
    """Nothing: there is one."""


def synchronize(device: Any = None) -> None:
    """Nothing: the cpu is done when a call returns."""


def current_stream(device: Any = None) -> None:
    """None: the cpu has no streams."""


def stream(stream: Any) -> contextlib.AbstractContextManager[None]:
    """A context that changes nothing."""
    return contextlib.nullcontext()
