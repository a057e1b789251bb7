"""``torch.serialization``: what programs declare about files."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO, Any

from tesserack import Tensor
from tesserack.compat.shims import _archives
from tesserack.serialization._byte_order import (
    LoadEndianness,
    get_default_load_endianness,
    set_default_load_endianness,
)
from tesserack.serialization._objects import get_unsafe_globals_in_checkpoint, load, save
from tesserack.serialization._safe import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

__all__ = [
    "LoadEndianness",
    "add_safe_globals",
    "clear_safe_globals",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "register_package",
    "safe_globals",
    "save",
    "set_crc32_options",
    "set_default_load_endianness",
]

MAP_LOCATION = Callable[[Any, str], Any] | Tensor | str | dict[str, str] | None
FILE_LIKE = str | os.PathLike[str] | IO[bytes]
DEFAULT_PROTOCOL = 2
_open_zipfile_reader = _archives.open_reader
_open_zipfile_writer = _archives.open_writer
_is_zipfile = _archives.is_zipfile


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Kept for programs that call it: devices are restored by their names."""


_crc32 = [True]


def set_crc32_options(compute_crc32: bool) -> None:
    """Kept, and told by :func:`get_crc32_options`: the sums that zip archives hold are always written."""
    _crc32[0] = bool(compute_crc32)


def get_crc32_options() -> bool:
    """What was asked for; True at first."""
    return _crc32[0]
