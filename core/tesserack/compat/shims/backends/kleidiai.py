"""``torch.backends.kleidiai``: Arm's library is not used."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Always False."""
    return False
