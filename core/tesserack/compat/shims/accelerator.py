"""``torch.accelerator``: the default device where it is a card, else what "cuda" means."""

from __future__ import annotations

import contextlib
from typing import Any

from tesserack import _native
from tesserack.backends._card import CARD
from tesserack.compat.shims._card import Card

__all__ = [
    "current_accelerator",
    "current_device_idx",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "is_available",
    "max_memory_allocated",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_idx",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def current_accelerator(check_available: bool = False) -> _native.device | None:
    """The default device without its index; where that is the cpu, "cuda" if it means a device; None without any."""
    name = _native.get_default_device().type
    if name in ("cpu", "meta"):
        name = CARD if Card(CARD).is_available() else ""
    return _native.device(name) if name else None


def is_available() -> bool:
    """Whether there is a card that a program would choose."""
    return current_accelerator() is not None


def _card(what: str) -> Card:
    device = current_accelerator()
    if device is None:
        raise RuntimeError(f"torch.accelerator.{what}: there is no accelerator; run with --device NAME --as-cuda")
    return Card(device.type)


def device_count() -> int:
    """The number of devices; 0 where there is no accelerator."""
    return _card("device_count").device_count() if is_available() else 0


def current_device_index() -> int:
    """The index of the current device."""
    return int(_card("current_device_index").call("current_device"))


def set_device_index(device: Any, /) -> None:
    """Set the current device."""
    _card("set_device_index").call("set_device", device)


def current_stream(device: Any = None, /) -> Any:
    """The stream work goes to."""
    return _card("current_stream").call("current_stream", device)


def set_stream(stream: Any) -> None:
    """Set the stream work goes to."""
    _card("set_stream").call("set_stream", stream)


def synchronize(device: Any = None, /) -> None:
    """Wait for all work; nothing where there is no accelerator."""
    if is_available():
        _card("synchronize").call("synchronize", device)


def device_index(device: int | None, /) -> Any:
    """The context that makes a device current."""
    return contextlib.nullcontext() if device is None else _card("device_index").within(device)


def empty_cache() -> None:
    """Give memory that no live tensor uses back."""
    if is_available():
        _card("empty_cache").call("empty_cache")


def memory_stats(device: Any = None, /) -> dict[str, int]:
    """Bytes allocated and reserved."""
    return dict(_card("memory_stats").call("memory_stats", device))


def memory_allocated(device: Any = None, /) -> int:
    """Bytes in live tensors."""
    return int(_card("memory_allocated").call("memory_allocated", device))


def max_memory_allocated(device: Any = None, /) -> int:
    """The most bytes ever in live tensors."""
    return int(_card("max_memory_allocated").call("max_memory_allocated", device))


def memory_reserved(device: Any = None, /) -> int:
    """Bytes held from the device."""
    return int(_card("memory_reserved").call("memory_reserved", device))


def reset_peak_memory_stats(device: Any = None, /) -> None:
    """Start measuring peaks anew."""
    _card("reset_peak_memory_stats").call("reset_peak_memory_stats", device)


current_device_idx = current_device_index
set_device_idx = set_device_index
