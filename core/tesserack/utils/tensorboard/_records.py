"""Event files as TensorBoard reads them: protobuf messages in records with checksums, both written here.

A record is the length, its masked CRC-32C, the message and its masked CRC-32C. Messages are those of
tensorboard's event.proto and summary.proto; only the fields that are used here are known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

__all__ = ["event", "field_bytes", "field_double", "field_float", "field_int", "record"]
__all__ += ["packed_doubles", "packed_floats", "packed_ints"]


def _crc_table() -> list[int]:
    table = []
    for k in range(256):
        value = k
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)  # Castagnoli's polynomial, reflected
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """The CRC-32C of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    value = 0xFFFFFFFF
    for byte in data:
        value = _TABLE[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    rotated = (crc >> 15 | crc << 17) & 0xFFFFFFFF
    return struct.pack("<I", (rotated + 0xA282EAD8) & 0xFFFFFFFF)


def record(message: bytes) -> bytes:
    """A message as one record of a file."""
    length = struct.pack("<Q", len(message))
    return length + _masked(length) + message + _masked(message)


# --- protobuf --------------------------------------------------------------------------------------------------------


def _varint(value: int) -> bytes:
    out = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_int(number: int, value: int) -> bytes:
    """An integer field."""
    return _varint(number << 3) + _varint(value)


def field_double(number: int, value: float) -> bytes:
    """A field of 64 bits."""
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def field_float(number: int, value: float) -> bytes:
    """A field of 32 bits."""
    return _varint(number << 3 | 5) + struct.pack("<f", value)


def field_bytes(number: int, value: bytes | str) -> bytes:
    """A field of bytes, text or a message."""
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def packed_doubles(number: int, values: Iterable[float]) -> bytes:
    """A field of several doubles."""
    numbers = [*values]
    return field_bytes(number, struct.pack(f"<{len(numbers)}d", *numbers))


def packed_floats(number: int, values: Iterable[float]) -> bytes:
    """A field of several floats of 32 bits."""
    numbers = [*values]
    return field_bytes(number, struct.pack(f"<{len(numbers)}f", *numbers))


def packed_ints(number: int, values: Iterable[int]) -> bytes:
    """A field of several integers."""
    return field_bytes(number, b"".join(_varint(int(value)) for value in values))


def event(
    wall_time: float,
    step: int | None,
    *,
    version: str | None = None,
    summary: bytes | None = None,
    graph: bytes | None = None,
    session: bytes | None = None,
) -> bytes:
    """An Event message with a summary, a graph or a note on the session, or with the version that begins a file."""
    out = field_double(1, wall_time)
    if step is not None:
        out += field_int(2, step)
    if version is not None:
        out += field_bytes(3, version)
    for number, message in ((4, graph), (5, summary), (7, session)):
        if message is not None:
            out += field_bytes(number, message)
    return out
