"""``ts_communicator`` in C's layout, over the methods of :class:`tesserack_cuda.communicator.NCCL`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tesserack import _native

from tesserack_cuda.communicator import DTYPES, KINDS, NCCL, Call, Declined

__all__ = ["Collective", "Table", "table"]

_OK, _DECLINED, _ERROR, _OUT_OF_MEMORY, _VALUE_ERROR = 0, 1, 2, 3, 6
_P, _I, _S = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t


class Collective(ctypes.Structure):
    """``ts_collective``."""

    _fields_ = (
        ("struct_size", _S),
        ("host", _P),
        *((name, _I) for name in ("kind", "reduction", "dtype", "peer")),
        ("sequence", ctypes.c_uint64),
        ("count", ctypes.c_int64),
        ("counts", ctypes.POINTER(ctypes.c_int64)),
        ("gotten", ctypes.POINTER(ctypes.c_int64)),
        ("src", _P),
        ("src_offset", ctypes.c_int64),
        ("dst", _P),
        ("dst_offset", ctypes.c_int64),
        ("stream", _P),
    )


_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _P, _I, _P, _S, _I, _I, ctypes.POINTER(_P))
_COLLECTIVE = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, ctypes.POINTER(Collective))
_CLOSE = ctypes.CFUNCTYPE(None, _P, _P)
_UNIQUE_ID = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _S, ctypes.POINTER(_S))
_PLAIN = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P)
_SPLIT = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _I, _I, ctypes.POINTER(_P))


class Table(ctypes.Structure):
    """``ts_communicator``."""

    _fields_ = (
        ("struct_size", _S),
        ("collectives", ctypes.c_uint64),
        ("dtypes", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("open", _OPEN),
        ("collective", _COLLECTIVE),
        ("close", _CLOSE),
        ("unique_id", _UNIQUE_ID),
        ("group_begin", _PLAIN),
        ("group_end", _PLAIN),
        ("split", _SPLIT),
        ("query_error", _PLAIN),
        ("abort", _PLAIN),
    )


class _Host(ctypes.Structure):
    """The beginning of ``ts_host``."""

    _fields_ = (
        ("struct_size", _S),
        ("abi", _I * 2),
        ("set_error", ctypes.CFUNCTYPE(None, ctypes.c_char_p)),
    )


def _status(work: Callable[[], Any]) -> int:
    """Run a slot; the status for what it raises, told with its message."""
    try:
        work()
        return _OK
    except Declined:
        return _DECLINED
    except Exception as error:
        text = str(error) or type(error).__name__
        _Host.from_address(_native._host_table()).set_error(text.encode())
        if isinstance(error, MemoryError):
            return _OUT_OF_MEMORY
        return _VALUE_ERROR if isinstance(error, ValueError) else _ERROR


def _read(given: Collective, size: int) -> Call:
    if not 0 <= given.kind < len(KINDS):
        raise Declined
    if not 0 <= given.dtype < len(DTYPES):
        raise ValueError(f"{KINDS[given.kind]}: expected a dtype of the contract, got number {given.dtype}")
    return Call(
        KINDS[given.kind],
        given.reduction,
        given.dtype,
        given.peer,
        given.sequence,
        given.count,
        given.counts[:size] if given.counts else None,
        given.gotten[:size] if given.gotten else None,
        (given.src or 0) + given.src_offset if given.src else 0,
        (given.dst or 0) + given.dst_offset if given.dst else 0,
        given.stream or 0,
    )


def table(nccl: NCCL) -> Table:
    """The table, which must live as long as the process."""

    def plain(method: Callable[[int], None]) -> Any:
        return _PLAIN(lambda _, comm: _status(lambda: method(comm)))

    def open_(_: Any, device: int, identity: int, nbytes: int, rank: int, size: int, out: Any) -> int:
        def work() -> None:
            out[0] = nccl.open(device, ctypes.string_at(identity, nbytes), rank, size)

        return _status(work)

    def collective(_: Any, comm: int, call: Any) -> int:
        return _status(lambda: nccl.collective(comm, _read(call.contents, nccl.size(comm))))

    def close(_: Any, comm: int) -> None:
        _status(lambda: nccl.close(comm))

    def unique_id(_: Any, out: int, capacity: int, told: Any) -> int:
        def work() -> None:
            made = nccl.unique_id()
            if len(made) > capacity:
                raise ValueError(f"unique_id: expected room for {len(made)} bytes, got {capacity}")
            ctypes.memmove(out, made, len(made))
            told[0] = len(made)

        return _status(work)

    def split(_: Any, comm: int, color: int, key: int, out: Any) -> int:
        def work() -> None:
            out[0] = nccl.split(comm, color, key) or None

        return _status(work)

    return Table(
        ctypes.sizeof(Table),
        (1 << len(KINDS)) - 1,
        (1 << len(DTYPES)) - 1,
        0,
        0,
        _OPEN(open_),
        _COLLECTIVE(collective),
        _CLOSE(close),
        _UNIQUE_ID(unique_id),
        plain(nccl.group_begin),
        plain(nccl.group_end),
        _SPLIT(split),
        plain(nccl.query_error),
        plain(nccl.abort),
    )
