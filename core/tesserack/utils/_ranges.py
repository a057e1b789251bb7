"""Ranges of the library's own that a profile shows, as steps of optimizers: a module that loads nothing, so that they
cost one look where nothing is recorded."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["named"]

# How a range is written down by its name; empty unless a profile records.
named: list[Callable[[str], AbstractContextManager[Any]]] = []
