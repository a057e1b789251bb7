"""Classes and functions that a program declares safe: files that run nothing else may name them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals"]

_safe: list[Any] = []


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Declare classes and functions that files may name."""
    _safe.extend(item for item in safe_globals if item not in _safe)


def clear_safe_globals() -> None:
    """Forget what was declared."""
    _safe.clear()


def get_safe_globals() -> list[Any]:
    """What was declared."""
    return [*_safe]


@contextlib.contextmanager
def safe_globals(items: list[Any]) -> Iterator[None]:
    """Within it, these may be named too."""
    before = [*_safe]
    add_safe_globals(items)
    try:
        yield
    finally:
        _safe[:] = before
