"""The ``flags`` context of a library's module."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["flags_of"]


@contextlib.contextmanager
def flags_of(module: str, **values: Any) -> Iterator[None]:
    """Within it, switches of a module have other values."""
    target = sys.modules[module]
    before = {name: getattr(target, name) for name in values}
    try:
        for name, value in values.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)
