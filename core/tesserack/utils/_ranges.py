"""Ranges of the library's own that a profile shows, as steps of optimizers. They cost one look where nothing is
recorded: ``if named: with around(...)``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["around", "named"]

# How a range is written down by its name; empty unless a profile records.
named: list[Callable[[str], AbstractContextManager[Any]]] = []


def around(name: str) -> AbstractContextManager[Any]:
    """The range, unless another thread has ended the recording since it was looked for."""
    try:
        return named[-1](name)
    except IndexError:
        return contextlib.nullcontext()
