"""The runtime slots of a backend, called as the core calls them but without the core: no cache, no host pointers.

A native library is opened by itself, its table read as ``tesserack/abi.h`` lays it out; a backend in Python is called
by method.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["NativeSlots", "PythonSlots", "Slots", "open_slots"]

_P, _I, _L, _S = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t
_STATUS = ctypes.c_int
_OUT_OF_MEMORY = 3
_GUARD = 64  # bytes behind what a copy to the host is asked for


def _read(target: bytearray, nbytes: int) -> bytes:
    """What was copied, unless more was."""
    behind = [k for k, byte in enumerate(target[nbytes:]) if byte != 0xA5]
    if behind:
        raise RuntimeError(f"copy_to_host: wrote up to {behind[-1] + 1} bytes past the {nbytes} bytes asked for")
    return bytes(target[:nbytes])


class Slots(Protocol):
    """What both kinds of backend offer. Handles are opaque."""

    def alloc(self, nbytes: int) -> Any:
        """A new block. ``MemoryError`` when there is no more."""

    def free(self, handle: Any, nbytes: int) -> None:
        """The block goes back."""

    def write(self, handle: Any, offset: int, data: bytearray | memoryview) -> None:
        """copy_from_host."""

    def read(self, handle: Any, offset: int, nbytes: int) -> bytes:
        """copy_to_host, after which the bytes may still be on their way: waits."""

    def copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> None:
        """copy_within."""

    def record_copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> Callable[[], None] | None:
        """copy_within, written down by a capture instead of done: what does it and waits. None: no captures."""

    def wait(self) -> None:
        """synchronize, of the default stream."""

    def host_pointer(self, handle: Any) -> int | None:
        """Where the host sees the block, if it does."""

    def free_memory(self) -> int:
        """As properties tells; 0 unknown."""

    def alignment(self) -> int:
        """As properties tells; 0 any."""


class PythonSlots:
    """Of a :class:`tesserack.backends.Backend`."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        if backend.open is not None:
            backend.open(0)

    def alloc(self, nbytes: int) -> Any:
        return self.backend.alloc(0, nbytes, None)

    def free(self, handle: Any, nbytes: int) -> None:
        if self.backend.free is not None:
            self.backend.free(0, handle, nbytes, None)

    def write(self, handle: Any, offset: int, data: bytearray | memoryview) -> None:
        self.backend.copy_from_host(0, handle, offset, memoryview(data), None)

    def read(self, handle: Any, offset: int, nbytes: int) -> bytes:
        data = bytearray(nbytes) + bytearray([0xA5]) * _GUARD
        self.backend.copy_to_host(0, memoryview(data)[:nbytes], handle, offset, None)
        self.wait()
        return _read(data, nbytes)

    def copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> None:
        self.backend.copy_within(0, target, to, source, start, nbytes, None)

    def record_copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> Callable[[], None] | None:
        backend = self.backend
        if backend.capture_begin is None:
            return None
        stream = None if backend.stream_create is None else backend.stream_create(0, 0)
        backend.capture_begin(0, stream)
        backend.copy_within(0, target, to, source, start, nbytes, stream)
        recording = backend.capture_end(0, stream)
        backend.synchronize(0, stream)

        def replay() -> None:
            backend.capture_replay(0, recording, stream)
            backend.synchronize(0, stream)

        return replay

    def wait(self) -> None:
        self.backend.synchronize(0, None)

    def host_pointer(self, handle: Any) -> int | None:
        return None if self.backend.host_pointer is None else self.backend.host_pointer(0, handle)

    def free_memory(self) -> int:
        return int(self.backend.properties(0).get("free_memory", 0))

    def alignment(self) -> int:
        return int(self.backend.properties(0).get("alignment", 0))


class _Host(ctypes.Structure):
    _fields_ = (
        ("struct_size", _S),
        ("abi_major", _I),
        ("abi_minor", _I),
        ("set_error", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
        ("interrupted", ctypes.CFUNCTYPE(ctypes.c_int)),
        ("log", ctypes.CFUNCTYPE(None, _I, ctypes.c_char_p)),
    )


class _Properties(ctypes.Structure):
    _fields_ = (
        ("struct_size", _S),
        ("name", ctypes.c_char * 128),
        ("total_memory", ctypes.c_uint64),
        ("free_memory", ctypes.c_uint64),
        ("dtypes", ctypes.c_uint64),
        ("max_ndim", _I),
        ("compute_units", _I),
        ("max_allocation", ctypes.c_uint64),
        ("alignment", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    )


class _Table(ctypes.Structure):
    """The head of ts_backend, up to the last slot used here."""

    _fields_ = (
        ("struct_size", _S),
        ("abi_major", _I),
        ("abi_minor_needed", _I),
        ("name", ctypes.c_char_p),
        ("vendor", ctypes.c_char_p),
        ("version", ctypes.c_char_p),
        ("ctx", _P),
        ("probe", ctypes.CFUNCTYPE(_STATUS, _P, ctypes.POINTER(_I), ctypes.c_char_p, _S)),
        ("properties", ctypes.CFUNCTYPE(_STATUS, _P, _I, ctypes.POINTER(_Properties))),
        ("alloc", ctypes.CFUNCTYPE(_STATUS, _P, _I, _S, _P, ctypes.POINTER(_P))),
        ("free", ctypes.CFUNCTYPE(None, _P, _I, _P, _S, _P)),
        ("copy_from_host", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P, _L, _P, _S, _P)),
        ("copy_to_host", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P, _P, _L, _S, _P)),
        ("copy_within", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P, _L, _P, _L, _S, _P)),
        ("synchronize", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P)),
        ("get_kernel", _P),
        ("host_pointer", _P),
        ("copy_peer", _P),
        ("stream_create", _P),
        ("between", _P * 15),  # stream_destroy to stream_query
        ("open", _P),
        ("pinned", _P * 4),
        ("capture", _P),
    )


class _Capture(ctypes.Structure):
    _fields_ = (
        ("struct_size", _S),
        ("begin", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P)),
        ("end", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P, ctypes.POINTER(_P))),
        ("replay", ctypes.CFUNCTYPE(_STATUS, _P, _I, _P, _P)),
        ("destroy", _P),
    )


class NativeSlots:
    """Of a shared library. ``RuntimeError`` with the backend's own message where a slot fails."""

    def __init__(self, library: str) -> None:
        from tesserack import _native

        self.message = ""
        major, minor = _native._abi_version()
        self.host = _Host(ctypes.sizeof(_Host), major, minor)
        self.host.set_error = type(self.host.set_error)(self._set_error)
        self.host.interrupted = type(self.host.interrupted)(lambda: 0)
        self.host.log = type(self.host.log)(lambda level, message: None)
        entry = ctypes.CDLL(library).tesserack_backend
        table = ctypes.POINTER(_Table)()
        self._check("tesserack_backend", entry(ctypes.byref(self.host), ctypes.byref(table)))
        self.table, self.ctx = table.contents, table.contents.ctx
        count, reason = _I(0), ctypes.create_string_buffer(256)
        self._check("probe", self.table.probe(self.ctx, ctypes.byref(count), reason, len(reason)))
        if self._has("open"):
            self._check("open", ctypes.CFUNCTYPE(_STATUS, _P, _I)(self.table.open)(self.ctx, 0))

    def _has(self, slot: str) -> bool:
        """Whether the table, which may be shorter than ours, fills an optional slot."""
        field = getattr(_Table, slot)
        return bool(self.table.struct_size >= field.offset + field.size and getattr(self.table, slot))

    def _set_error(self, message: bytes | None) -> None:
        self.message = (message or b"").decode(errors="replace")

    def _check(self, slot: str, status: int) -> None:
        if status == _OUT_OF_MEMORY:
            raise MemoryError(f"{slot}: {self.message}")
        if status:
            raise RuntimeError(f"{slot} gave status {status}: {self.message or 'no message'}")

    def alloc(self, nbytes: int) -> Any:
        handle = _P()
        self._check("alloc", self.table.alloc(self.ctx, 0, nbytes, None, ctypes.byref(handle)))
        return handle.value

    def free(self, handle: Any, nbytes: int) -> None:
        self.table.free(self.ctx, 0, handle, nbytes, None)

    def write(self, handle: Any, offset: int, data: bytearray | memoryview) -> None:
        source = ctypes.addressof(ctypes.c_char.from_buffer(data))
        status = self.table.copy_from_host(self.ctx, 0, handle, offset, source, len(data), None)
        self._check("copy_from_host", status)

    def read(self, handle: Any, offset: int, nbytes: int) -> bytes:
        data = bytearray(nbytes) + bytearray([0xA5]) * _GUARD
        target = ctypes.addressof(ctypes.c_char.from_buffer(data))
        self._check("copy_to_host", self.table.copy_to_host(self.ctx, 0, target, handle, offset, nbytes, None))
        self.wait()
        return _read(data, nbytes)

    def copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> None:
        status = self.table.copy_within(self.ctx, 0, target, to, source, start, nbytes, None)
        self._check("copy_within", status)

    def record_copy(self, target: Any, to: int, source: Any, start: int, nbytes: int) -> Callable[[], None] | None:
        if not self._has("capture"):
            return None
        capture, stream, recording = _Capture.from_address(self.table.capture), _P(), _P()
        if self._has("stream_create"):
            create = ctypes.CFUNCTYPE(_STATUS, _P, _I, _I, ctypes.POINTER(_P))(self.table.stream_create)
            self._check("stream_create", create(self.ctx, 0, 0, ctypes.byref(stream)))
        self._check("capture.begin", capture.begin(self.ctx, 0, stream))
        status = self.table.copy_within(self.ctx, 0, target, to, source, start, nbytes, stream)
        self._check("capture.end", capture.end(self.ctx, 0, stream, ctypes.byref(recording)))
        self._check("copy_within", status)
        self._check("synchronize", self.table.synchronize(self.ctx, 0, stream))

        def replay() -> None:
            self._check("capture.replay", capture.replay(self.ctx, 0, recording, stream))
            self._check("synchronize", self.table.synchronize(self.ctx, 0, stream))

        return replay

    def wait(self) -> None:
        self._check("synchronize", self.table.synchronize(self.ctx, 0, None))

    def host_pointer(self, handle: Any) -> int | None:
        if not self._has("host_pointer"):
            return None
        slot = ctypes.CFUNCTYPE(_P, _P, _I, _P)(self.table.host_pointer)
        return slot(self.ctx, 0, handle)  # type: ignore[no-any-return]

    def free_memory(self) -> int:
        return int(self._properties().free_memory)

    def alignment(self) -> int:
        return int(self._properties().alignment)

    def _properties(self) -> _Properties:
        found = _Properties(ctypes.sizeof(_Properties))
        self._check("properties", self.table.properties(self.ctx, 0, ctypes.byref(found)))
        return found


def open_slots(name: str) -> Slots:
    """The slots of an installed backend. ``KeyError`` if nothing installed has the name."""
    from tesserack.backends import _loader
    from tesserack.backends._discovery import claims

    entry = _loader._entry(claims()[name][0])
    return NativeSlots(os.fspath(entry)) if isinstance(entry, (str, os.PathLike)) else PythonSlots(entry)
