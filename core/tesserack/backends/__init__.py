"""Backends: the plugins that bring devices. Found by entry point, loaded when a device of theirs is first named.

>>> import tesserack as ts
>>> ts.backends.why_unavailable("nosuch") is None
False
"""

from __future__ import annotations

from tesserack import _native
from tesserack.backends._loader import install, installed, load
from tesserack.backends._loader import list_backends as list

__all__ = [
    "fallbacks",
    "get_fallback",
    "install",
    "installed",
    "list",
    "load",
    "properties",
    "reset_fallbacks",
    "set_fallback",
    "why_unavailable",
]

_MODES = ("allow", "warn", "error")


def why_unavailable(name: str) -> str | None:
    """None if a device of this name works; otherwise one line saying what is missing and what to do."""
    try:
        _native.device(name)
    except (RuntimeError, ValueError) as error:
        return " ".join(str(error).split())
    return None


def properties(device: _native.device | str | None = None) -> dict[str, int | str]:
    """What a device says about itself: name, memory, number of compute units."""
    return _native._device_properties(device)


def set_fallback(mode: str) -> None:
    """What happens when a backend lacks a kernel and the cpu must help.

    ``"allow"``, ``"warn"`` (once per operator, the default) or ``"error"``. ``ValueError`` for other modes.
    """
    if mode not in _MODES:
        raise ValueError(f"set_fallback: expected one of {', '.join(map(repr, _MODES))}, got {mode!r}")
    _native._set_fallback(_MODES.index(mode))


def get_fallback() -> str:
    """The mode set by :func:`set_fallback`."""
    return _MODES[_native._fallback_mode()]


def fallbacks() -> dict[str, int]:
    """How often each operator ran on the cpu backend instead of the tensor's own."""
    return dict(_native._fallbacks())


def reset_fallbacks() -> None:
    """Count fallbacks from zero again."""
    _native._reset_fallbacks()
