"""Marks for Intel's VTune, which Tesserack does not write: ``is_available()`` says so, and the rest fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

__all__ = ["is_available", "mark", "range", "range_pop", "range_push"]


def is_available() -> bool:
    """False."""
    return False


def _refuse(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("ITT functions not installed. Are you sure you have a ITT build?")


def range_push(msg: str) -> None:
    """``RuntimeError``."""
    _refuse(msg)


def range_pop() -> None:
    """``RuntimeError``."""
    _refuse()


def mark(msg: str) -> None:
    """``RuntimeError``."""
    _refuse(msg)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """``RuntimeError`` when it is entered."""
    range_push(msg.format(*args, **kwargs))
    yield
