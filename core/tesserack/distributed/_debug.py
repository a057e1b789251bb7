"""How much is said and checked, by the names of PyTorch: ``TORCH_DISTRIBUTED_DEBUG``.

Here messages name parameters, ranks and lines on every level, and ``local`` always checks calls against each other.
"""

from __future__ import annotations

import os
from enum import Enum

__all__ = ["DebugLevel", "get_debug_level", "set_debug_level", "set_debug_level_from_env"]

VARIABLE = "TORCH_DISTRIBUTED_DEBUG"


class DebugLevel(Enum):
    """From nothing to everything."""

    OFF = 0
    INFO = 1
    DETAIL = 2


_level: DebugLevel | None = None  # None: as the environment says, not looked at yet


def _told() -> DebugLevel:
    name = os.environ.get(VARIABLE) or "OFF"
    try:
        return DebugLevel[name.upper()]
    except KeyError:
        raise RuntimeError(f"{VARIABLE}: expected OFF, INFO or DETAIL, got {name!r}") from None


def get_debug_level() -> DebugLevel:
    """What was set, or what ``TORCH_DISTRIBUTED_DEBUG`` says: OFF where it says nothing."""
    if _level is None:
        set_debug_level_from_env()
    assert _level is not None
    return _level


def set_debug_level(level: DebugLevel) -> None:
    """Set it for this process. ``TypeError`` for what is no :class:`DebugLevel`.

    >>> set_debug_level(DebugLevel.INFO)
    >>> get_debug_level()
    <DebugLevel.INFO: 1>
    >>> set_debug_level(DebugLevel.OFF)
    """
    global _level
    if not isinstance(level, DebugLevel):
        raise TypeError(f"set_debug_level: expected a DebugLevel, got {level!r}")
    _level = level


def set_debug_level_from_env() -> None:
    """Set what ``TORCH_DISTRIBUTED_DEBUG`` says now. ``RuntimeError`` where it says something else."""
    set_debug_level(_told())
