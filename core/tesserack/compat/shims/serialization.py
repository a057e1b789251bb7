"""``torch.serialization``: what programs declare about files."""

from __future__ import annotations

import contextlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from typing import IO, Any

from tesserack import Tensor
from tesserack.serialization import _archives
from tesserack.serialization._byte_order import (
    LoadEndianness,
    get_default_load_endianness,
    set_default_load_endianness,
)
from tesserack.serialization._objects import get_unsafe_globals_in_checkpoint, load, save
from tesserack.serialization._safe import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals

__all__ = [
    "LoadEndianness",
    "SourceChangeWarning",
    "add_safe_globals",
    "check_module_version_greater_or_equal",
    "clear_safe_globals",
    "get_crc32_options",
    "get_default_load_endianness",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "load",
    "mkdtemp",
    "normalize_storage_type",
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


class SourceChangeWarning(Warning):
    """For programs that name it to be quiet about it: no file holds sources that could have changed."""


@contextlib.contextmanager
def mkdtemp() -> Iterator[str]:
    """A new folder, that is gone afterwards with what is in it."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether a module's ``__version__`` is at least the one given, part by part, each read as what is asked for.

    ``RuntimeError`` for a version that cannot be read so, or a warning and True.
    """
    parts = str(module.__version__).split(".")
    try:
        return tuple(type(want)(parts[k]) for k, want in enumerate(req_version_tuple)) >= req_version_tuple
    except (ValueError, IndexError, TypeError) as error:
        told = (f"check_module_version_greater_or_equal: the version {module.__version__!r} of {module.__name__!r} "
                f"cannot be compared with {req_version_tuple}")  # fmt: skip
        if error_if_malformed:
            raise RuntimeError(told) from error
        warnings.warn(f"{told}; it is taken to be enough", stacklevel=2)
        return True


def normalize_storage_type(storage_type: type) -> type:
    """The cpu's class of storages of the same numbers."""
    from tesserack.storage import _typed

    found: type = getattr(_typed, storage_type.__name__)
    return found


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Kept for programs that call it: devices are restored by their names."""


_crc32 = [True]


def set_crc32_options(compute_crc32: bool) -> None:
    """Kept, and told by :func:`get_crc32_options`: the sums that zip archives hold are always written."""
    _crc32[0] = bool(compute_crc32)


def get_crc32_options() -> bool:
    """What was asked for; True at first."""
    return _crc32[0]
