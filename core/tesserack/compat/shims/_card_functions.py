"""What every module of a device has in PyTorch, made for one name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.backends import _device_streams
from tesserack.backends.streams import stream
from tesserack.compat.shims._card import Card

__all__ = ["functions"]

# Functions of the backend's module, which fail without a device.
_NEEDED = (
    *("current_device", "set_device", "get_device_properties", "get_device_name", "initial_seed", "get_rng_state"),
    *("set_rng_state", "mem_get_info", "current_stream", "default_stream", "set_stream"),
)
# Those that have an answer without one.
_QUIET: dict[str, Any] = {
    "synchronize": None,
    "empty_cache": None,
    "manual_seed": None,
    "manual_seed_all": None,
    "memory_allocated": 0,
    "max_memory_allocated": 0,
    "memory_reserved": 0,
    "max_memory_reserved": 0,
    "reset_peak_memory_stats": None,
    "is_bf16_supported": False,
    "is_initialized": False,
}


def _collect_shared() -> None:
    from tesserack.multiprocessing import _on_device

    _on_device.collect()


def functions(name: str) -> dict[str, Any]:
    """The members of ``torch.<name>`` as a dict."""
    card = Card(name)

    def needed(what: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: card.call(what, *args, **kwargs)

    def quiet(what: str, default: Any) -> Callable[..., Any]:
        return lambda *args, **kwargs: card.quiet(what, default, *args, **kwargs)

    found: dict[str, Any] = {what: needed(what) for what in _NEEDED}
    found.update((what, quiet(what, default)) for what, default in _QUIET.items())
    found |= {
        "is_available": card.is_available,
        "device_count": card.device_count,
        "init": lambda: card.require("init") and None,
        "device": card.within,
        "memory_stats": quiet("memory_stats", {}),
        "memory_cached": quiet("memory_reserved", 0),
        "max_memory_cached": quiet("max_memory_reserved", 0),
        "reset_max_memory_allocated": quiet("reset_peak_memory_stats", None),
        "reset_max_memory_cached": quiet("reset_peak_memory_stats", None),
        "reset_accumulated_memory_stats": lambda device=None: None,
        "memory_summary": lambda device=None, abbreviated=False: _summary(card, device),
        "ipc_collect": _collect_shared,
        "seed": lambda: _seed(card),
        "seed_all": lambda: _seed(card),
        "Stream": _device_streams.bind("Stream", name),
        "Event": _device_streams.bind("Event", name),
        "StreamContext": stream,
        "stream": stream,
        "get_rng_state_all": lambda: [card.call("get_rng_state", k) for k in range(card.device_count())],
        "set_rng_state_all": lambda states: [card.call("set_rng_state", s, k) for k, s in enumerate(states)] and None,
    }
    for what, function in found.items():
        if callable(function) and getattr(function, "__name__", "") == "<lambda>":
            function.__name__ = function.__qualname__ = what
            function.__module__ = f"torch.{name}"
    return found


def _seed(card: Card) -> None:
    import secrets

    card.quiet("manual_seed_all", None, secrets.randbits(63))


def _summary(card: Card, device: Any) -> str:
    stats = card.quiet("memory_stats", {}, device)
    return "\n".join(f"{key}: {value}" for key, value in stats.items())
