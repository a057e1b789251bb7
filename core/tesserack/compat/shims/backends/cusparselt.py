"""``torch.backends.cusparselt``: NVIDIA's library of sparse products is not used."""

from __future__ import annotations

__all__ = ["is_available", "version"]


def is_available() -> bool:
    """Always False."""
    return False


def version() -> int | None:
    """None: there is no such library."""
    return None
