"""Archives of records as they are: written without seeking, and found where they end in a file that goes on."""

from __future__ import annotations

import os
import struct
import zlib
from dataclasses import dataclass
from typing import Any

from tesserack.serialization._files import Sink, read_exactly

__all__ = ["ArchiveWriter", "archive_end"]

# The format is that of APPNOTE.TXT, sections 4.3.7 to 4.3.16.
_LOCAL = struct.Struct("<4sHHHHHIIIHH")
_CENTRAL = struct.Struct("<4sHHHHHHIIIHHHHHII")
_END = struct.Struct("<4sHHHHIIH")
_END_64 = struct.Struct("<4sQHHIIQQQQ")
_LOCATOR = struct.Struct("<4sIQI")
_END_MARK, _END_64_MARK, _LOCATOR_MARK = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_FULL = 0xFFFF_FFFF  # "see the 64-bit field"
_FULL_16 = 0xFFFF
_DAY = (0 << 9) | (1 << 5) | 1  # 1980-01-01: files of the same content are the same
_ALIGNMENT = 64
_CHUNK = 1 << 20


@dataclass(frozen=True)
class _Entry:
    name: bytes
    crc: int
    size: int
    at: int


class ArchiveWriter:
    """Writes one record after the other; their bytes begin at multiples of 64, so that a reader may map them."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._start = sink.at
        self._entries: list[_Entry] = []

    def add(self, name: str, content: Any) -> None:
        """A record of bytes."""
        data = memoryview(content).cast("B")
        entry = _Entry(name.encode(), zlib.crc32(data), len(data), self._sink.at - self._start)
        large = struct.pack("<HHQQ", 1, 16, entry.size, entry.size) if entry.size >= _FULL else b""
        begin = entry.at + _LOCAL.size + len(entry.name) + len(large) + 4
        padding = -begin % _ALIGNMENT
        extra = large + struct.pack("<2sH", b"FB", padding) + b"Z" * padding
        size, version = (_FULL, 45) if large else (entry.size, 20)
        lengths = len(entry.name), len(extra)
        self._sink.write(_LOCAL.pack(b"PK\x03\x04", version, 0, 0, 0, _DAY, entry.crc, size, size, *lengths))
        self._sink.write(entry.name + extra)
        self._sink.write(data)
        self._entries.append(entry)

    def close(self) -> None:
        """The list of the records, with which an archive ends."""
        start = self._sink.at - self._start
        for entry in self._entries:
            self._sink.write(_listed(entry))
        size, count = self._sink.at - self._start - start, len(self._entries)
        if max(start, size) >= _FULL or count >= _FULL_16:
            end = self._sink.at - self._start
            self._sink.write(_END_64.pack(_END_64_MARK, 44, 45, 45, 0, 0, count, count, size, start))
            self._sink.write(_LOCATOR.pack(_LOCATOR_MARK, 0, end, 1))
        few = min(count, _FULL_16)
        self._sink.write(_END.pack(_END_MARK, 0, 0, few, few, min(size, _FULL), min(start, _FULL), 0))


def _listed(entry: _Entry) -> bytes:
    sizes = [entry.size, entry.size] if entry.size >= _FULL else []
    wide = [*sizes, entry.at] if entry.at >= _FULL else sizes
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    size, version = min(entry.size, _FULL), 45 if wide else 20
    head = _CENTRAL.pack(
        *(b"PK\x01\x02", version, version, 0, 0, 0, _DAY, entry.crc, size, size, len(entry.name), len(extra)),
        *(0, 0, 0, 0, min(entry.at, _FULL)),
    )
    return head + entry.name + extra


# --- reading -------------------------------------------------------------------------------------------------------


def archive_end(file: Any, start: int) -> int | None:
    """Where the archive ends that begins at ``start``, whatever follows it in the file; None if no end is found.

    An archive ends with a record that says how long its list is and where that begins, and so where it began itself.
    """
    size = file.seek(0, os.SEEK_END)
    tail = max(start, size - _FULL_16 - _END.size)
    file.seek(tail)
    content = read_exactly(file, size - tail)
    position = content.rfind(_END_MARK)
    while position >= 0:
        if (end := _end_if_of(file, start, tail + position)) is not None:
            return end
        position = content.rfind(_END_MARK, 0, position)
    at, overlap = start, len(_END_MARK) - 1
    while at < size:
        file.seek(at)
        content = read_exactly(file, _CHUNK)
        position = content.find(_END_MARK)
        while position >= 0:
            if (end := _end_if_of(file, start, at + position)) is not None:
                return end
            position = content.find(_END_MARK, position + 1)
        at += max(1, len(content) - overlap)
    return None


def _end_if_of(file: Any, start: int, at: int) -> int | None:
    """The end of an archive whose last record is at ``at``, if that archive begins at ``start``."""
    file.seek(at)
    record = read_exactly(file, _END.size)
    if len(record) < _END.size:
        return None
    *_, listed, offset, comment = _END.unpack(record)
    before = at
    if _FULL in (listed, offset) and at - start >= _LOCATOR.size + _END_64.size:
        before = at - _LOCATOR.size - _END_64.size
        file.seek(before)
        wide = read_exactly(file, _END_64.size)
        if not wide.startswith(_END_64_MARK):
            return None
        *_, listed, offset = _END_64.unpack(wide)
    elif at - start >= _LOCATOR.size + _END_64.size:
        file.seek(at - _LOCATOR.size)  # writers may add the wide records though nothing needs them
        if read_exactly(file, 4) == _LOCATOR_MARK:
            before = at - _LOCATOR.size - _END_64.size
    return at + _END.size + comment if before - listed - offset == start else None
