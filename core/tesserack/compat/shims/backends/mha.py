"""``torch.backends.mha``: the fast path of attention layers."""

from __future__ import annotations

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]

_state = {"enabled": True}


def get_fastpath_enabled() -> bool:
    """What :func:`set_fastpath_enabled` set."""
    return _state["enabled"]


def set_fastpath_enabled(value: bool) -> None:
    """Kept for programs that set it."""
    _state["enabled"] = bool(value)
