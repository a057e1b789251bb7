"""Sizes given once or for each dimension."""

from __future__ import annotations

from typing import Any


def to_tuple(value: Any, length: int) -> tuple[int, ...]:
    """One number repeated ``length`` times, or the given sequence."""
    if isinstance(value, int):
        return (value,) * length
    return tuple(value)
