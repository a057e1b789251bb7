"""Host memory that processes share: anonymous files passed as descriptors, or named ones."""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from typing import Any

from tesserack import _native
from tesserack._native import Tensor
from tesserack._tensor.pending import physical
from tesserack.utils._descriptors import descriptors_for

__all__ = [
    "Segment",
    "attach",
    "bytes_of",
    "get_sharing_strategy",
    "is_shared",
    "segment_of",
    "set_sharing_strategy",
    "share",
]

HELD = "each shared tensor holds descriptors for as long as it lives; keep fewer"  # an answer to want of them
STRATEGIES = ("file_descriptor", "file_system")
_FOLDER = "/dev/shm"
_strategy = "file_descriptor" if hasattr(os, "memfd_create") else "file_system"

_segments: weakref.WeakValueDictionary[int, Segment] = weakref.WeakValueDictionary()  # by address
_by_file: weakref.WeakValueDictionary[tuple[int, int], Segment] = weakref.WeakValueDictionary()


class Segment(mmap.mmap):
    """One shared block and the descriptor of its file. It lives as long as any storage over it."""

    fd: int
    path: str | None  # its name, in the process that made it, by the strategy "file_system"
    before: Any  # memory that the storage had before, where something may still look at it
    owner: int  # the process that made it

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)
        if self.path is not None and self.owner == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self.path)


def set_sharing_strategy(new_strategy: str) -> None:
    """How tensors go to other processes: ``"file_descriptor"`` (nothing is left over, but a process may hold only so
    many descriptors) or ``"file_system"`` (names in ``/dev/shm``). ``ValueError`` for another.
    """
    global _strategy
    if new_strategy not in STRATEGIES:
        raise ValueError(f"set_sharing_strategy: expected one of {', '.join(STRATEGIES)}, got {new_strategy!r}")
    _strategy = new_strategy


def get_sharing_strategy() -> str:
    """The strategy that :func:`set_sharing_strategy` set."""
    return _strategy


def name_in_shared_memory() -> str:
    """A fresh path among the shared files."""
    return os.path.join(_FOLDER, f"tesserack-{os.getpid()}-{os.urandom(8).hex()}")


def _new_file(nbytes: int) -> tuple[int, str | None]:
    """A descriptor of a file of this size whose memory is there: running short later would end the process."""
    path = None
    if _strategy == "file_descriptor":
        fd = os.memfd_create("tesserack", os.MFD_CLOEXEC)
    else:
        path = name_in_shared_memory()
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        os.close(fd)
        if path is not None:
            os.unlink(path)
        raise RuntimeError(f"share_memory_: no room in shared memory for {nbytes} bytes: {error.strerror}") from error
    return fd, path


def attach(fd: int, path: str | None = None) -> Segment:
    """The mapping of a file; one for each file, so that tensors sent together share memory here too. Takes ``fd``."""
    found = os.fstat(fd)
    known = _by_file.get((found.st_dev, found.st_ino))
    if known is not None:
        if known.fd != fd:
            os.close(fd)
        return known
    try:
        segment = Segment(fd, found.st_size)
    except BaseException:
        os.close(fd)
        raise
    segment.fd, segment.path, segment.before, segment.owner = fd, path, None, os.getpid()
    _by_file[found.st_dev, found.st_ino] = segment
    _segments[whole(segment)._storage_ptr()] = segment
    return segment


def whole(segment: Segment, dtype: _native.dtype = _native.uint8) -> Tensor:
    """All of a segment as a tensor, which keeps it."""
    return _native._from_buffer(segment, dtype, len(segment) // dtype.itemsize, 0)


def segment_of(tensor: Tensor) -> Segment | None:
    """The segment that a tensor's storage lies in."""
    return _segments.get(tensor._storage_ptr()) if tensor.numel() else None


def is_shared(tensor: Tensor) -> bool:
    """``Tensor.is_shared``."""
    return segment_of(tensor) is not None


def bytes_of(tensor: Tensor, nbytes: int) -> Tensor:
    """The whole storage of a tensor."""
    return physical(tensor.detach()).as_strided((1,), (1,), 0).view(_native.uint8).as_strided((nbytes,), (1,), 0)


def share(tensor: Tensor) -> Tensor:
    """``Tensor.share_memory_``."""
    if tensor.device.type != _native._declared_default():
        raise RuntimeError(
            f"share_memory_: expected a tensor in the host's memory, got one on {tensor.device}; use tensor.cpu()"
        )
    nbytes = tensor._storage_nbytes()
    if is_shared(tensor) or not nbytes:
        return tensor
    with descriptors_for("a shared tensor", HELD):
        segment = attach(*_new_file(nbytes))
    fresh = whole(segment)
    fresh.copy_(bytes_of(tensor, nbytes))
    if tensor._swap_storage(fresh):
        segment.before = fresh  # which has the old memory now
    return tensor
