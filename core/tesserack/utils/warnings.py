"""Warnings that would say the same at every call."""

from __future__ import annotations

import warnings

from tesserack import _native

_given: set[str] = set()
_always = False


def set_always(on: bool) -> None:
    """What ``set_warn_always`` says, here and in the core."""
    global _always
    _always = on
    _native._set_warn_always(bool(on))


def is_always() -> bool:
    """What :func:`set_always` set."""
    return _always


def warn_once(message: str, stacklevel: int = 3) -> None:
    """Warn at the first call with this message alone, unless :func:`set_always` was called."""
    if message not in _given or _always:
        _given.add(message)
        warnings.warn(message, stacklevel=stacklevel)
