"""Where the bytes of a file go, and where they come from: whole, in order, and at once or not at all."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO

__all__ = ["Sink", "Window", "destination", "read_exactly", "read_into", "replacing"]

_MOST = 1 << 30  # bytes of one call: the system moves at most 2 GiB - 4 KiB
_CHUNK = 1 << 24
Path = str | os.PathLike[str]


class Sink:
    """A file being written: takes all of what it is given, however little its ``write`` does, and never seeks."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.at = 0  # bytes so far
        # What is no stream of Python's may expect bytes; a raw one that takes nothing says None.
        self._foreign, self._raw = not isinstance(file, io.IOBase), isinstance(file, io.RawIOBase)

    def write(self, data: Any) -> int:
        """Write all of the bytes. ``BlockingIOError`` where the file would have to be waited for."""
        view = memoryview(data).cast("B")
        size, most = len(view), _CHUNK if self._foreign else _MOST
        while len(view):
            part = view[:most]
            taken = self._file.write(bytes(part) if self._foreign else part)
            if taken is None and self._raw:
                raise BlockingIOError(errno.EAGAIN, "save: the file takes no more at present; make it blocking")
            view = view[taken if isinstance(taken, int) and 0 <= taken <= len(part) else len(part) :]
            if taken == 0 and len(part):
                raise OSError(errno.EIO, "save: the file takes no bytes")
        self.at += size
        return size


def read_into(file: Any, view: memoryview) -> int:
    """Fill memory from a file, however little it gives at once; returns the bytes that there were."""
    done, whole = 0, hasattr(file, "readinto")
    while done < len(view):
        part = view[done : done + (_MOST if whole else _CHUNK)]
        if whole:
            count = file.readinto(part) or 0
        else:
            content = file.read(len(part))
            count = len(content)
            part[:count] = content
        if not count:
            break
        done += count
    return done


def read_exactly(file: Any, size: int) -> bytes:
    """The next bytes of a file, fewer only at its end."""
    parts, left = [], size
    while left and (part := file.read(min(left, _MOST))):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Window(io.RawIOBase):
    """Some bytes of a file as a file."""

    def __init__(self, file: Any, start: int, end: int) -> None:
        self._file, self._start, self._end, self._at = file, start, end, 0

    def seekable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """The position in the window."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a position in the window."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end - self._start}[whence]
        if base + offset < 0:
            raise ValueError(f"expected a position that is not negative, got {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, view: Any) -> int:
        """Read from the position on."""
        target = memoryview(view).cast("B")[: max(0, self._end - self._start - self._at)]
        self._file.seek(self._start + self._at)
        count = read_into(self._file, target)
        self._at += count
        return count


@contextlib.contextmanager
def destination(f: Any) -> Iterator[Sink]:
    """What is written to ``f``: a file that is open for writing, or a path. That is replaced once all is written, but
    for devices and pipes, and for files in folders that may not be changed, which are written to."""
    if not isinstance(f, (str, os.PathLike)):
        if not hasattr(f, "write"):
            raise AttributeError(f"save: expected a path or a file with a method write, got {type(f).__name__}")
        yield Sink(f)
    elif _is_special(f):
        with open(f, "wb") as file:
            yield Sink(file)
    else:
        with replacing(f) as file:
            yield Sink(file)


def _is_special(path: Path) -> bool:
    """Whether something other than a file or folder is there, such as a device or a pipe."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` at the end, with the mode that was there, or is gone if writing fails."""
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"save: the folder {folder!r} does not exist")
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    before = os.stat(target) if os.path.exists(target) else None
    if before is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
    try:
        made = _New(folder)
    except PermissionError:
        if before is None:
            raise
        with _written_in_place(target, before) as file:
            yield file
        return
    try:
        with made.file as file:
            yield file
            file.flush()
            made.become(target, before)
    except BaseException:
        made.forget()
        raise


class _New:
    """A file in a folder, without a name where the system has such: what is killed then leaves nothing behind."""

    def __init__(self, folder: str) -> None:
        self._name = os.path.join(folder, f".{os.urandom(8).hex()}.part")
        self._named = False
        nameless = getattr(os, "O_TMPFILE", None)
        fd = None
        if nameless is not None and os.path.isdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # not every file system has them
                fd = os.open(folder, nameless | os.O_RDWR | os.O_CLOEXEC, 0o666)
        if fd is None:
            fd = os.open(self._name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            self._named = True
        self.file: BinaryIO = os.fdopen(fd, "wb")

    def become(self, target: str, before: os.stat_result | None) -> None:
        """Take the place of ``target``."""
        fd = self.file.fileno()
        if before is not None:
            with contextlib.suppress(PermissionError):
                os.fchown(fd, before.st_uid, before.st_gid)
            os.fchmod(fd, stat.S_IMODE(before.st_mode))
        os.fsync(fd)
        if not self._named:
            self._take_name(fd)
        os.replace(self._name, target)
        self._named = False

    def _take_name(self, fd: int) -> None:
        self._named = True
        try:
            os.link(f"/proc/self/fd/{fd}", self._name, src_dir_fd=fd)  # with a folder given, links are followed
        except OSError:  # where the system does not give such files names
            with open(f"/proc/self/fd/{fd}", "rb") as content, open(self._name, "xb") as copy:
                shutil.copyfileobj(content, copy)
                shutil.copymode(f"/proc/self/fd/{fd}", self._name)
                os.fsync(copy.fileno())

    def forget(self) -> None:
        """Leave nothing behind."""
        if self._named:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._name)


@contextlib.contextmanager
def _written_in_place(target: str, before: os.stat_result) -> Iterator[BinaryIO]:
    if _is_mapped(before):
        raise OSError(
            errno.ETXTBSY,
            "save: tensors that were loaded with mmap=True lie in the file, and its folder takes no other one in its "
            "place; save to another path, or load without mmap",
            target,
        )
    with open(target, "r+b") as file:
        yield file
        file.truncate()


def _is_mapped(file: os.stat_result) -> bool:
    """Whether this process sees a file as memory, where the system tells."""
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x} {file.st_ino} "
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(place in line for line in maps)
    except OSError:
        return False
