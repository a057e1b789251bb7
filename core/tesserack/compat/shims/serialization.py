"""``torch.serialization``: what programs declare about files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import IO, Any

from tesserack import Tensor
from tesserack.compat.shims._object_files import load, save

__all__ = [
    "add_safe_globals",
    "clear_safe_globals",
    "get_default_load_endianness",
    "get_safe_globals",
    "load",
    "register_package",
    "safe_globals",
    "save",
    "set_default_load_endianness",
]

MAP_LOCATION = Callable[[Any, str], Any] | Tensor | str | dict[str, str] | None
FILE_LIKE = str | os.PathLike[str] | IO[bytes]
DEFAULT_PROTOCOL = 2
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


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Kept for programs that call it: devices are restored by their names."""


def set_default_load_endianness(endianness: Any) -> None:
    """Kept for programs that call it."""


def get_default_load_endianness() -> None:
    """None: files say it themselves."""
