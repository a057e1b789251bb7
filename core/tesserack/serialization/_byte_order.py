"""In which order the bytes of numbers are taken to be where an archive of ``torch.save`` does not say it."""

from __future__ import annotations

import sys
from enum import Enum

__all__ = ["LoadEndianness", "default_byte_order", "get_default_load_endianness", "set_default_load_endianness"]


class LoadEndianness(Enum):
    """Orders of bytes; ``NATIVE`` is this machine's."""

    NATIVE = 1
    LITTLE = 2
    BIG = 3


_asked: list[LoadEndianness | None] = [None]


def set_default_load_endianness(endianness: LoadEndianness | None) -> None:
    """Say what files that do not tell are read as; None for little endian. ``TypeError`` for what is no order.

    >>> set_default_load_endianness(LoadEndianness.BIG)
    >>> default_byte_order()
    b'big'
    >>> set_default_load_endianness(None)
    """
    if endianness is not None and not isinstance(endianness, LoadEndianness):
        raise TypeError("Invalid argument type in function set_default_load_endianness: expected a LoadEndianness or "
                        f"None, got {type(endianness).__name__}")  # fmt: skip
    _asked[0] = endianness


def get_default_load_endianness() -> LoadEndianness | None:
    """What was said; None at first."""
    return _asked[0]


def default_byte_order() -> bytes:
    """The order as archives write it."""
    if _asked[0] is LoadEndianness.NATIVE:
        return sys.byteorder.encode()
    return b"big" if _asked[0] is LoadEndianness.BIG else b"little"
