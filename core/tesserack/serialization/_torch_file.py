"""Reads files of ``torch.save``: archives, and the older form. Nothing in them is run: see :mod:`._torch_pickle`.

An archive (zip) holds ``data.pkl``, the structure, and one record per storage. The older form is a row of pickles, with
the storages' bytes at the end. Every size is compared with the file's before memory is taken for it.
"""

from __future__ import annotations

import functools
import os
import struct
import zipfile
from collections.abc import Callable
from typing import Any, BinaryIO

import tesserack as ts
from tesserack import Tensor
from tesserack.serialization._byte_order import default_byte_order
from tesserack.serialization._files import Window, read_into
from tesserack.serialization._torch_names import NameRefused, PickleRefused, Storage, StorageKind
from tesserack.serialization._torch_pickle import end_of, interpret
from tesserack.serialization._zip import archive_end
from tesserack.storage import TypedStorage

__all__ = [
    "DAMAGES", "NameRefused", "PickleRefused", "PlacingFailed", "Storages", "read_archive", "read_archive_with",
    "read_legacy", "read_legacy_with", "rest_of",
]  # fmt: skip

# What reading a damaged file may raise, apart from PickleRefused.
DAMAGES = (
    *(ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError, EOFError, AssertionError),
    *(struct.error, zipfile.BadZipFile, OSError, MemoryError),
)
_MAGIC_SIZE = 15
_PROTOCOL = 1001
_AT_FIRST = 1 << 20  # bytes of an older file that are searched for its pickles
Place = Callable[[Tensor, str], Tensor]
Unpickle = Callable[[bytes, Callable[[Any], Any], int], Any]


class PlacingFailed(Exception):
    """Carries an error of the caller's ``map_location``, which is no fault of the file."""


def _read_identity(identity: Any) -> tuple[Any, ...]:
    """The parts of a persistent id, whose words are bytes where strings of Python 2 stay that."""
    if type(identity) is not tuple or len(identity) not in (5, 6):
        raise PickleRefused("a storage in it is named in no known way")
    words = tuple(part.decode("ascii") if type(part) is bytes else part for part in identity)
    if words[0] != "storage":
        raise PickleRefused("a storage in it is named in no known way")
    return words


def _slice(whole: Any, kind: StorageKind, place: Any) -> Storage:
    """Some elements of a storage as one of their own, as very old versions wrote them: ``(name, begin, count)``."""
    known = type(place) is tuple and len(place) == 3 and isinstance(whole, TypedStorage)
    if not known or not all(type(n) is int and 0 <= n < 2**62 for n in place[1:]):
        raise PickleRefused("a storage in it is a slice of another one in no known way")
    begin, end = place[1], place[1] + place[2]
    if end > whole.elements.numel():
        raise PickleRefused(f"a storage in it ends at element {end} of {whole.elements.numel()}")
    made: Any = Storage.of(kind, whole.elements[begin:end])
    made._untyped = whole.untyped()[begin * kind.dtype.itemsize : end * kind.dtype.itemsize]
    return made  # type: ignore[no-any-return]


class Storages:
    """The storages of a file by key; each is read once, so that tensors that shared memory share it again."""

    def __init__(self, read: Callable[[str, int], Tensor], place: Place, big_endian: bool = False) -> None:
        self._read = read
        self._big_endian = big_endian
        self._place = place
        self._raw: dict[str, Tensor] = {}
        self._made: dict[tuple[str, str], Storage] = {}

    def __call__(self, identity: Any) -> Storage:
        """What a persistent id ``("storage", kind, key, location, numel)`` stands for."""
        identity = _read_identity(identity)
        _, kind, key, location, numel = identity[:5]
        known = isinstance(kind, StorageKind) and isinstance(key, str) and isinstance(location, str)
        if not known or type(numel) is not int or not 0 <= numel < 2**62:
            raise PickleRefused("a storage in it is named in no known way")
        if (key, kind.name) not in self._made:
            elements = self._elements(key, kind.dtype, numel)
            try:
                placed = self._place(elements, location)
            except Exception as error:
                raise PlacingFailed(error) from error
            self._made[key, kind.name] = Storage.of(kind, placed)
        whole = self._made[key, kind.name]
        return whole if len(identity) == 5 or identity[5] is None else _slice(whole, kind, identity[5])

    def _elements(self, key: str, dtype: ts.dtype, numel: int) -> Tensor:
        nbytes = numel * dtype.itemsize
        if key not in self._raw:
            self._raw[key] = self._read(key, nbytes)
        raw = self._raw[key]
        if raw.numel() != nbytes:
            raise PickleRefused(f"the storage {key!r} has two sizes")
        if not nbytes:
            return ts.empty(0, dtype=dtype, device="cpu")
        if self._big_endian and dtype.itemsize > 1:
            size = dtype.itemsize // (2 if dtype.is_complex else 1)
            raw = raw.reshape(-1, size).flip(1).reshape(-1)
        return raw != 0 if dtype is ts.bool else raw.view(dtype)


# --- archives ------------------------------------------------------------------------------------------------------


def read_archive(file: BinaryIO, size: int, place: Place, encoding: str | None = None) -> Any:
    """The object in an archive within ``size`` bytes, after which the file stands. Damaged ones raise ``PickleRefused``
    or what ``DAMAGES`` lists. Strings of Python 2 are in ``encoding``, see :func:`interpret`."""
    return read_archive_with(file, size, place, functools.partial(interpret, encoding=encoding))


def read_archive_with(
    file: BinaryIO, size: int, place: Place, unpickle: Callable[[bytes, Callable[[Any], Any]], Any]
) -> Any:
    """The same by another reader of pickles, which gets the pickle and what makes storages of persistent ids."""
    start = file.tell()
    end = archive_end(file, start)
    if end is None:
        raise zipfile.BadZipFile("its end is missing: it is truncated; copy or download it again")
    with zipfile.ZipFile(Window(file, start, end)) as archive:
        records = _records(archive, size)
        pickles = [name for name in records if name == "data.pkl" or name.endswith("/data.pkl")]
        if not pickles:
            raise PickleRefused("it is a zip archive, but no PyTorch file: it has no data.pkl")
        folder = min(pickles, key=len).removesuffix("data.pkl")
        order = records.get(f"{folder}byteorder")
        big = (default_byte_order() if order is None else _content(archive, order)) == b"big"

        def read(key: str, nbytes: int) -> Tensor:
            record = records.get(f"{folder}data/{key}")
            if record is None or record.file_size != nbytes:
                raise PickleRefused(f"its record of the storage {key[:100]!r} is missing, or not of {nbytes} bytes")
            return _tensor_of(archive, record)

        made = unpickle(_content(archive, records[f"{folder}data.pkl"]), Storages(read, place, big))
    file.seek(end)  # where something else may follow
    return made


def _records(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The records by name; they are stored as they are, each once, and together no larger than the file."""
    entries = archive.infolist()
    records = {entry.filename: entry for entry in entries}
    if len(records) != len(entries):
        raise PickleRefused("two of its records have one name")
    if any(entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1 for entry in entries):
        raise PickleRefused("its records are compressed or encrypted, which PyTorch's are not")
    if sum(entry.file_size for entry in entries) > size or any(e.compress_size != e.file_size for e in entries):
        raise PickleRefused("its records are larger than the file")
    return records


def _content(archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> bytes:
    with archive.open(record) as file:
        return file.read()


def _tensor_of(archive: zipfile.ZipFile, record: zipfile.ZipInfo) -> Tensor:
    with archive.open(record) as file:
        return _tensor_from(file, record.file_size, f"record {record.filename[:100]!r}")


def _tensor_from(file: Any, nbytes: int, what: str) -> Tensor:
    """The next bytes of a file, read straight to where they stay."""
    raw = ts.empty(nbytes, dtype=ts.uint8, device="cpu")
    if nbytes and read_into(file, memoryview(raw)) != nbytes:
        raise PickleRefused(f"its {what} ends early")
    return raw


# --- the older form ------------------------------------------------------------------------------------------------


def read_legacy(file: BinaryIO, size: int, place: Place, encoding: str | None = None) -> Any:
    """The object in a file of the older form, which has ``size`` bytes from here on."""
    read = functools.partial(interpret, encoding=encoding)
    return read_legacy_with(file, size, place, read, functools.partial(interpret, outline=True))


def read_legacy_with(file: BinaryIO, size: int, place: Place, unpickle: Unpickle, outline: Unpickle) -> Any:
    """The same by another reader of pickles, which gets the pickle, what makes storages of persistent ids, and where in
    the bytes the pickle begins; and one that only meets those ids, for the storages' bytes come after the pickle."""
    start = file.tell()
    data, positions = _pickles(file, size)

    def refuse(_: Any) -> Any:
        raise PickleRefused("it has a storage where none belongs")

    protocol, system = (interpret(data, refuse, start) for start in positions[:2])
    little = system.get("little_endian") if isinstance(system, dict) else None
    if protocol != _PROTOCOL or not isinstance(little, bool):
        raise PickleRefused(f"it is of protocol {protocol!r}, or does not say in which order its bytes are")
    keys = interpret(data, refuse, positions[3])
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len({*keys}) != len(keys):
        raise PickleRefused("its list of storages is none")
    order = {key: k for k, key in enumerate(keys)}
    sizes = _declared_sizes(data, positions[2], order, outline)
    places, end = _places(keys, sizes, positions[4], size)

    def read(key: str, nbytes: int) -> Tensor:
        if key not in places or sizes[key] != nbytes:
            raise PickleRefused(f"its storage {key[:100]!r} is missing, or not of {nbytes} bytes")
        file.seek(start + places[key])
        return _tensor_from(file, nbytes, f"storage {key[:100]!r}")

    made = unpickle(data, Storages(read, place, not little), positions[2])
    file.seek(start + end)
    return made


def _pickles(file: BinaryIO, size: int) -> tuple[Any, list[int]]:
    """The beginning of a file, as much as holds its pickles, and where they begin and the last ends: what follows is
    read to where it stays."""
    data: Any = bytearray()
    while True:
        had = len(data)
        data += bytes(min(max(had, _AT_FIRST), size - had))
        del data[had + read_into(file, memoryview(data)[had:]) :]
        positions = [_MAGIC_SIZE]
        try:
            for _ in range(4):  # protocol, system, structure, keys
                positions.append(end_of(data, positions[-1]))
            return data, positions
        except DAMAGES:
            if len(data) == had:
                raise


def _places(keys: list[str], sizes: dict[str, int], at: int, size: int) -> tuple[dict[str, int], int]:
    """Where the storages' bytes begin, each after its number of elements, and where the last ends."""
    places: dict[str, int] = {}
    for key in keys:
        if key not in sizes or at + 8 + sizes[key] > size:
            raise PickleRefused("it is truncated, or has a storage that nothing uses")
        places[key] = at + 8
        at += 8 + sizes[key]
    return places, at


def _declared_sizes(data: bytes, start: int, order: dict[str, int], outline: Unpickle) -> dict[str, int]:
    """How many bytes the structure says each storage has, found by reading it with storages that hold nothing."""
    sizes: dict[str, int] = {}

    def note(identity: Any) -> Storage:
        identity = _read_identity(identity)
        if isinstance(identity[1], StorageKind):
            key, numel = identity[2], identity[4]
            if isinstance(key, str) and key in order and type(numel) is int and 0 <= numel < 2**62:
                sizes[key] = numel * identity[1].dtype.itemsize
                return Storage.of(identity[1], ts.empty(numel, dtype=identity[1].dtype, device="meta"))
        raise PickleRefused("a storage in it is named in no known way")

    outline(data, note, start)
    return sizes


def rest_of(file: BinaryIO) -> int:
    """How many bytes follow in a file."""
    here = file.tell()
    end = file.seek(0, os.SEEK_END)
    file.seek(here)
    return end - here
