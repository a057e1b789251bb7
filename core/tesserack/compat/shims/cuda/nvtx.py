"""``torch.cuda.nvtx``: ranges for NVIDIA's profiler, which is not there to see them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


def range_push(msg: str) -> int:
    """Begin a nested range; returns -1, no depth."""
    return -1


def range_pop() -> int:
    """End the innermost range; returns -1, no depth."""
    return -1


def range_start(msg: str) -> int:
    """Begin a range; returns its number, always 0."""
    return 0


def range_end(range_id: int) -> None:
    """End a range."""


def mark(msg: str) -> None:
    """Mark an instant."""


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A context that is one range."""
    yield
