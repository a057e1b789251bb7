"""The records of a package: in a zip archive as PyTorch's, below one folder, or in a folder where one was unpacked."""

from __future__ import annotations

import contextlib
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tesserack.serialization._files import destination
from tesserack.serialization._safetensors import SerializationError
from tesserack.serialization._zip import ArchiveWriter

__all__ = ["DirectoryReader", "PackageReader", "PackageWriter"]

_ID = ".data/serialization_id"
_VERSION = b"6\n"


class PackageWriter:
    """Writes records to a path, which is replaced at the end, or to a file."""

    def __init__(self, f: Any) -> None:
        self._stack = contextlib.ExitStack()
        self._archive = ArchiveWriter(self._stack.enter_context(destination(f)))
        self._folder = Path(f).stem if isinstance(f, (str, os.PathLike)) else "archive"
        self._names = self._contents = 0

    def write_record(self, name: str, content: Any) -> None:
        """A record of bytes."""
        self._names = zlib.crc32(name.encode(), self._names)
        self._contents = zlib.crc32(content, self._contents)
        self._archive.add(f"{self._folder}/{name}", content)

    def close(self) -> None:
        """All is written."""
        self.write_record(".data/version", _VERSION)
        self.write_record("byteorder", b"little")
        self.write_record(_ID, f"{self._names:020d}{self._contents:020d}".encode())
        self._archive.close()
        self._stack.close()

    def abandon(self, error: BaseException) -> None:
        """Something failed: a path stays as it was, and a file gets its end."""
        self._archive.close()
        self._stack.__exit__(type(error), error, error.__traceback__)


class PackageReader:
    """The records of an archive, by their names below its folder. ``SerializationError`` if it is damaged, or none."""

    def __init__(self, file: Any) -> None:
        self._name = os.fspath(file) if isinstance(file, (str, os.PathLike)) else getattr(file, "name", "a file")
        try:
            self._zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise SerializationError(
                f"PackageImporter: {self._name}: expected a package, which PackageExporter writes, got a file that is "
                f"none or is truncated ({error}); copy or download it again"
            ) from None
        names = self._zip.namelist()
        self._folder = names[0].partition("/")[0] + "/" if names else ""

    def get_all_records(self) -> list[str]:
        """The names."""
        return [name.removeprefix(self._folder) for name in self._zip.namelist() if not name.endswith("/")]

    def has_record(self, name: str) -> bool:
        """Whether there is one of this name."""
        return f"{self._folder}{name}" in self._zip.NameToInfo

    def get_record(self, name: str) -> bytes:
        """Its bytes. ``RuntimeError`` if there is none."""
        if not self.has_record(name):
            raise RuntimeError(f"PackageImporter: file not found: {self._folder}{name}")
        try:
            return self._zip.read(f"{self._folder}{name}")
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise SerializationError(
                f"PackageImporter: {self._name} is damaged: record {name!r} ({error}); copy or download it again"
            ) from None

    def serialization_id(self) -> str:
        """What tells archives of other contents apart."""
        return self.get_record(_ID).decode() if self.has_record(_ID) else ""


class DirectoryReader(PackageReader):
    """The same of a folder. ``FileNotFoundError`` for records that are not there."""

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def get_all_records(self) -> list[str]:
        files = (path for path in Path(self.directory).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.directory).as_posix() for path in files)

    def has_record(self, name: str) -> bool:
        return os.path.isfile(os.path.join(self.directory, name))

    def get_record(self, name: str) -> bytes:
        return Path(self.directory, name).read_bytes()
