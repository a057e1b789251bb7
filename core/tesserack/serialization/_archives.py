"""``PyTorchFileReader`` and ``PyTorchFileWriter``: archives of ``torch.save`` by their records, and what opens them."""

from __future__ import annotations

import contextlib
import os
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack.serialization._files import Sink
from tesserack.serialization._zip import ArchiveWriter
from tesserack.storage import TypedStorage, UntypedStorage

__all__ = ["PyTorchFileReader", "PyTorchFileWriter"]

_BEGIN = b"PK\x03\x04"


def _is_path(name_or_buffer: Any) -> bool:
    return isinstance(name_or_buffer, (str, os.PathLike))


class PyTorchFileWriter:
    """Writes records to a file or a path, in a folder of the file's name, and ``version`` at the end."""

    def __init__(self, name_or_buffer: Any, compute_crc32: bool = True, storage_alignment: int = 64) -> None:
        named = _is_path(name_or_buffer)
        self._folder = pathlib.PurePath(name_or_buffer).stem if named else "archive"
        self._own: Any = open(name_or_buffer, "wb") if named else None  # noqa: SIM115  # closed at the end of the file
        self._archive = ArchiveWriter(Sink(self._own if named else name_or_buffer))
        self._written: list[str] = []

    def write_record(self, name: str, data: Any, size: int) -> None:
        """The first ``size`` bytes of bytes or of a storage. ``RuntimeError`` for a name that there is, or too few."""
        if name in self._written:
            raise RuntimeError(f"write_record: expected a new name, got {name!r}, which has been written")
        if isinstance(data, int):
            raise TypeError("write_record: expected bytes or a storage, got an int; addresses are not taken")
        if isinstance(data, TypedStorage):
            data = data.untyped()
        if isinstance(data, UntypedStorage):
            data = data.cpu()._whole(ts.uint8).numpy()
        content = memoryview(data).cast("B")
        if not 0 <= size <= len(content):
            raise RuntimeError(f"write_record: expected at most the {len(content)} bytes of {name!r}, got size {size}")
        self._archive.add(f"{self._folder}/{name}", content[:size])
        self._written.append(name)

    def write_end_of_file(self) -> None:
        """What an archive ends with."""
        if "version" not in self._written:
            self.write_record("version", b"3\n", 2)
        self._archive.close()
        self.close()

    def close(self) -> None:
        """Closes a file that was opened here, whatever has been written."""
        if self._own is not None:
            self._own.close()

    def get_all_written_records(self) -> list[str]:
        """The names of the records so far."""
        return [*self._written]

    def archive_name(self) -> str:
        """The folder in the archive."""
        return self._folder


class PyTorchFileReader:
    """The records of an archive in a file or at a path. ``RuntimeError`` where there is none."""

    def __init__(self, name_or_buffer: Any) -> None:
        try:
            self._zip = zipfile.ZipFile(name_or_buffer)
        except zipfile.BadZipFile as error:
            raise RuntimeError(f"PyTorchFileReader: failed to find a zip archive: {error}") from error
        names = self._zip.namelist()
        self._folder = names[0].partition("/")[0] + "/" if names else ""

    def has_record(self, name: str) -> bool:
        """Whether there is a record of the name."""
        return self._folder + name in self._zip.NameToInfo

    def _found(self, op: str, name: str) -> zipfile.ZipInfo:
        if not self.has_record(name):
            raise RuntimeError(f"{op}: expected one of {self.get_all_records()}, got {name!r}")
        return self._zip.getinfo(self._folder + name)

    def get_record(self, name: str) -> bytes:
        """The bytes of a record. ``RuntimeError`` if there is none."""
        return self._zip.read(self._found("get_record", name))

    def get_record_size(self, name: str) -> int:
        """How many bytes a record has. ``RuntimeError`` if there is none."""
        return self._found("get_record_size", name).file_size

    def get_all_records(self) -> list[str]:
        """The names of the records."""
        return [name.removeprefix(self._folder) for name in self._zip.namelist()]

    def get_storage_from_record(self, name: str, numel: int, dtype: Any) -> Any:
        """A record as a tensor of ``numel`` elements."""
        content = bytearray(self.get_record(name)[: numel * dtype.itemsize])
        return ts.frombuffer(content, dtype=dtype) if numel else ts.empty(0, dtype=dtype, device="cpu")


@contextlib.contextmanager
def open_writer(name_or_buffer: Any) -> Iterator[PyTorchFileWriter]:
    """An archive to be written, complete at the end of the context."""
    writer = PyTorchFileWriter(name_or_buffer)
    with contextlib.closing(writer):
        yield writer
        writer.write_end_of_file()
    if not _is_path(name_or_buffer) and hasattr(name_or_buffer, "flush"):
        name_or_buffer.flush()


@contextlib.contextmanager
def open_reader(name_or_buffer: Any) -> Iterator[PyTorchFileReader]:
    """An archive to be read."""
    yield PyTorchFileReader(name_or_buffer)


def is_zipfile(file: Any) -> bool:
    """Whether an archive begins where the file stands."""
    start = file.tell()
    found = file.read(len(_BEGIN))
    file.seek(start)
    return bool(found == _BEGIN)
