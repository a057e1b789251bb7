"""The protocol's datatypes: their size, and how their values are written as JSON's."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Any

from tesserack_serving.protocol.errors import ServingError

__all__ = ["DTYPES", "NAMES", "SIZES", "pack", "unpack"]

# Name: (dtype of Tesserack, bytes, struct's letter). BYTES has values of any length.
_TABLE = {
    "BOOL": ("bool", 1, "?"),
    "UINT8": ("uint8", 1, "B"),
    "UINT16": ("uint16", 2, "H"),
    "UINT32": ("uint32", 4, "I"),
    "UINT64": ("uint64", 8, "Q"),
    "INT8": ("int8", 1, "b"),
    "INT16": ("int16", 2, "h"),
    "INT32": ("int32", 4, "i"),
    "INT64": ("int64", 8, "q"),
    "FP16": ("float16", 2, "e"),
    "BF16": ("bfloat16", 2, ""),
    "FP32": ("float32", 4, "f"),
    "FP64": ("float64", 8, "d"),
}
DTYPES = {name: dtype for name, (dtype, _, _) in _TABLE.items()}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SIZES = {name: size for name, (_, size, _) in _TABLE.items()}
_FLOATS = {"FP16", "FP32", "FP64", "BF16"}


def pack(datatype: str, values: Sequence[Any], name: str) -> bytes:
    """Values of JSON as little-endian bytes.

    Raises:
        ServingError: a value is not of the datatype, or out of its range.

    >>> pack("INT16", [1, -1], "x")
    b'\\x01\\x00\\xff\\xff'
    """
    if datatype == "BOOL":
        if not all(value is True or value is False for value in values):
            raise ServingError(f"input {name!r}: expected true and false for BOOL")
        return bytes(values)
    wanted = (int, float) if datatype in _FLOATS else (int,)
    kinds = {*map(type, values)}
    if not kinds <= {*wanted}:
        words = "numbers" if datatype in _FLOATS else "whole numbers"
        raise ServingError(f"input {name!r}: expected {words} for {datatype}")
    try:
        if datatype == "BF16":
            return _bfloat16(values)
        letter = _TABLE[datatype][2]
        if datatype == "FP16":
            return struct.pack(f"<{len(values)}e", *values)
        return array(letter, values).tobytes()
    except (OverflowError, struct.error) as error:
        raise ServingError(f"input {name!r}: a value is out of the range of {datatype}") from error


def unpack(datatype: str, data: bytes) -> list[Any]:
    """Bytes as values of JSON.

    >>> unpack("FP32", pack("FP32", [0.5, 2], "x"))
    [0.5, 2.0]
    """
    if datatype == "BF16":
        halves = memoryview(data).cast("H")
        return memoryview(array("I", [half << 16 for half in halves])).cast("B").cast("f").tolist()
    if datatype == "FP16":
        return [*struct.unpack(f"<{len(data) // 2}e", data)]
    if datatype == "BOOL":
        return [*map(bool, data)]
    return [*array(_TABLE[datatype][2], data)]


def _bfloat16(values: Sequence[Any]) -> bytes:
    """Rounded to the nearest, ties to even; what is no number stays so."""
    words = memoryview(array("f", values)).cast("B").cast("I")
    return array("H", [_round(word) for word in words]).tobytes()


def _round(word: int) -> int:
    if word & 0x7FFFFFFF > 0x7F800000:
        return (word >> 16) | 0x40
    return (word + 0x7FFF + ((word >> 16) & 1)) >> 16
