"""Sizes given once or for each dimension."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def to_tuple(value: Any, length: int) -> tuple[int, ...]:
    """One number, also NumPy's, repeated ``length`` times, or the given sequence."""
    if isinstance(value, int) or not isinstance(value, Iterable):
        return (value,) * length
    return tuple(value)
