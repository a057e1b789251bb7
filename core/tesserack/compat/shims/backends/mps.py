"""``torch.backends.mps``."""

from __future__ import annotations

__all__ = ["is_available", "is_built", "is_macos13_or_newer", "is_macos_or_newer"]


def is_built() -> bool:
    """Always False."""
    return False


def is_available() -> bool:
    """Always False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Always False."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """Always False."""
    return False
