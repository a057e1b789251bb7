"""What a module gave, in short: the shapes of its results, and sizes in bytes as people read them."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor

__all__ = ["shapes_of", "size_text"]


def shapes_of(result: Any) -> Any:
    """The shapes of a result, in its structure."""
    if isinstance(result, Tensor):
        return tuple(result.shape)
    if isinstance(result, (tuple, list)):
        return [shapes_of(item) for item in result]
    if isinstance(result, dict):
        return {key: shapes_of(value) for key, value in result.items()}
    return type(result).__name__


def size_text(count: int) -> str:
    """Bytes in the largest unit that leaves a number of at least one.

    >>> size_text(3 * 2**30 // 2)
    '1.5 GiB'
    """
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
