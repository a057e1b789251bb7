"""``torch.backends.openmp``: OpenMP runs the threads of kernels."""

from __future__ import annotations

__all__ = ["is_available"]


def is_available() -> bool:
    """Always True."""
    return True
