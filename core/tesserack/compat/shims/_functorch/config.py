"""``torch._functorch.config``: any switch can be set, and changes nothing."""

from __future__ import annotations

from typing import Any

from tesserack.compat.shims._settings import patch_of

__all__ = ["patch"]


def patch(*args: Any, **changes: Any) -> Any:
    """A context, or decorator, with other switches."""
    return patch_of(__name__, *args, **changes)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return None
