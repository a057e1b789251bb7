"""Messages between a loader and its worker processes: pickles over a socket, with large arrays in shared memory.

A message is a head, which says of what kind it is and what it answers, a pickle, and the buffers that the pickle leaves
out (the elements of tensors and arrays). Small buffers follow in the socket; large ones lie in an anonymous file, whose
descriptor goes with the head.
"""

from __future__ import annotations

import array
import errno
import io
import itertools
import mmap
import os
import pickle
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from typing import Any

from tesserack import Tensor
from tesserack.utils._descriptors import descriptors_for, too_many_open
from tesserack.utils.data.workers import Failed

__all__ = ["Inbox", "Line", "Message", "Outbox", "Unreadable", "pack"]

# Kind, ticket (two numbers), bytes of the pickle, of all buffers, number of buffers, whether they are in a file.
_HEAD = struct.Struct("<IQQQQII")
_INLINE = 1 << 16
_ALIGNMENT = 64
_FD = struct.calcsize("i")
_ALONE: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # a mapping without its file
_HAS_FILES = hasattr(os, "memfd_create")


@dataclass(frozen=True)
class Message:
    """What came: the ticket is that of the task which it gives or answers."""

    kind: int
    ticket: tuple[int, int]
    content: Any


@dataclass(frozen=True)
class Unreadable:
    """The content of a message that could not be made of what came."""

    error: BaseException

    def told(self, what: str) -> Failed:
        """The error, of its own class and with its traceback; of want of descriptors, what to do about it."""
        if isinstance(self.error, OSError) and self.error.errno == errno.EMFILE:
            return Failed(too_many_open(what, _KEPT), self.error)
        return Failed(self.error)


_KEPT = (
    f"every batch over {_INLINE >> 10} KiB that is kept holds one, as do shared tensors and open files; keep fewer, "
    "copy what is kept (tensor.clone())"
)
_IN_A_WORKER = "the dataset in the worker holds them open, such as files and shared tensors; keep fewer"


class _Pickler(ForkingPickler):
    """Tensors by value, whatever :mod:`tesserack.multiprocessing` has registered for them."""

    def reducer_override(self, value: Any) -> Any:
        """Tensors reduce themselves; a graph cannot come along."""
        if not isinstance(value, Tensor):
            return NotImplemented
        if value.requires_grad and not value.is_leaf:
            raise RuntimeError(
                "expected batches of leaf tensors, got the result of recorded operations, whose graph does not cross "
                "processes; use tensor.detach()"
            )
        return value.__reduce_ex__(5)


class Packed:
    """A message ready to send: bytes for the socket, and perhaps a descriptor, which :meth:`close` gives up."""

    def __init__(self, parts: list[Any], fd: int | None = None) -> None:
        self.parts = parts
        self.fd = fd

    def close(self) -> None:
        """Close the descriptor, once sent."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def pack(kind: int, ticket: tuple[int, int], content: Any) -> Packed:
    """Pickle a message. ``RuntimeError`` where shared memory has no room for it."""
    file, buffers = io.BytesIO(), []
    _Pickler(file, 5, True, lambda buffer: buffers.append(buffer.raw())).dump(content)
    text = file.getbuffer()
    sizes = array.array("Q", [len(buffer) for buffer in buffers])
    total = sum(map(_aligned, sizes))
    in_file = total > _INLINE and _HAS_FILES
    head = _HEAD.pack(kind, *ticket, len(text), total, len(buffers), in_file) + sizes.tobytes()
    if not in_file:
        padded = [part for b in buffers for part in (b, bytes(_aligned(len(b)) - len(b)))]
        return Packed([head, text, *padded])
    return Packed([head, text], _to_file(buffers, total))


def _to_file(buffers: Sequence[memoryview], total: int) -> int:
    """An anonymous file with the buffers. They are written, not mapped, so that want of memory is an error."""
    with descriptors_for("a batch", _IN_A_WORKER):
        fd = os.memfd_create("tesserack-batch", os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, total)
        at = 0
        for buffer in buffers:
            done = 0
            while done < len(buffer):
                done += os.pwrite(fd, buffer[done:], at + done)
            at += _aligned(len(buffer))
        return fd
    except OSError as error:
        os.close(fd)
        raise RuntimeError(
            f"no room in shared memory for a batch of {total} bytes ({error.strerror}); try smaller batches, a smaller "
            "prefetch_factor, or worker_type='thread'"
        ) from error
    except BaseException:
        os.close(fd)
        raise


class Inbox:
    """Takes messages from a socket as its bytes arrive."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fds: deque[int] = deque()
        self._start()

    def _start(self) -> None:
        self._want, self._stage = bytearray(_HEAD.size), 0
        self._view, self._got = memoryview(self._want), 0

    def _next_stage(self, size: int) -> None:
        self._want, self._stage = bytearray(size), self._stage + 1
        self._view, self._got = memoryview(self._want), 0

    def receive(self) -> Message | None:
        """The next whole message unpickled; None if more has to arrive. ``EOFError`` at the end."""
        while True:
            while self._got < len(self._want):
                try:
                    n = self._read()
                except BlockingIOError:
                    return None
                if not n:
                    raise EOFError
                self._got += n
            if self._stage == 0:
                kind, epoch, number, self._text, self._total, self._count, self._in_file = _HEAD.unpack(self._want)
                self._of = kind, (epoch, number)
                self._next_stage(8 * self._count)
            elif self._stage == 1:
                self._sizes = array.array("Q", bytes(self._want))
                self._next_stage(self._text + (0 if self._in_file else self._total))
            else:
                try:
                    content = self._finish()
                except BaseException as error:  # of a class of the user's, or for want of descriptors
                    content = Unreadable(error)
                self._start()
                return Message(*self._of, content)

    def _read(self) -> int:
        view = self._view[self._got :]
        if self._stage or self._got:
            return self._socket.recv_into(view)
        n, ancillary, _, _ = self._socket.recvmsg_into([view], socket.CMSG_SPACE(_FD))
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._fds.extend(array.array("i", data[: len(data) - len(data) % _FD]))
        return n

    def _finish(self) -> Any:
        text = self._view[: self._text]
        if self._in_file:
            if not self._fds:  # the system drops those for which there is no room
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            fd = self._fds.popleft()
            try:
                flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
                room: Any = memoryview(mmap.mmap(fd, self._total, flags, **_ALONE))
            finally:
                os.close(fd)
        else:
            room = bytearray(self._view[self._text :])  # where it is aligned
        at, buffers = 0, []
        for size in self._sizes:
            buffers.append(memoryview(room)[at : at + size])
            at += _aligned(size)
        return pickle.loads(text, buffers=buffers)

    def close(self) -> None:
        """Forget descriptors of messages that were not received whole."""
        while self._fds:
            os.close(self._fds.popleft())


class Outbox:
    """Sends messages through a socket that may not take them at once."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._parts: deque[memoryview] = deque()

    def post(self, packed: Packed) -> None:
        """Send, as far as the socket takes it now; the rest waits for :meth:`flush`. Of messages without a file."""
        self._parts.extend(memoryview(part).cast("B") for part in packed.parts if len(part))
        self.flush()

    def flush(self) -> bool:
        """Send more; whether all is sent."""
        while self._parts:
            try:
                _forget(self._parts, self._socket.sendmsg(_several(self._parts)))
            except BlockingIOError:
                return False
        return True


def _several(parts: deque[memoryview]) -> list[memoryview]:
    """As many as one call takes: a message should wake its reader once."""
    return [*itertools.islice(parts, 64)]


def _forget(parts: deque[memoryview], sent: int) -> None:
    """Take away the bytes that were sent."""
    while sent:
        if sent < len(parts[0]):
            parts[0] = parts[0][sent:]
            return
        sent -= len(parts.popleft())


class Line:
    """A worker's end: waits for messages and sends them whole. ``alive()`` is asked every few seconds meanwhile."""

    def __init__(self, sock: socket.socket, alive: Callable[[], bool], seconds: float = 5) -> None:
        sock.settimeout(seconds)
        self._socket = sock
        self._alive = alive
        self._inbox = Inbox(sock)

    def _again(self) -> None:
        if not self._alive():
            raise EOFError

    def receive(self) -> Message:
        """The next message. ``EOFError`` if the other side is gone."""
        while True:
            try:
                message = self._inbox.receive()
            except TimeoutError:
                self._again()
                continue
            if message is not None:
                return message

    def send(self, packed: Packed) -> None:
        """Send a message. ``OSError`` if the other side is gone."""
        try:
            left = deque(memoryview(part).cast("B") for part in packed.parts if len(part))
            rights = (
                [] if packed.fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [packed.fd]))]
            )
            while left:
                try:
                    _forget(left, self._socket.sendmsg(_several(left), rights))
                    rights = []
                except TimeoutError:
                    self._again()
        finally:
            packed.close()
