"""``ts_communicator`` of ``tesserack/abi.h`` in C's layout: what a backend's own communicator is called by."""

from __future__ import annotations

import ctypes

__all__ = ["AVERAGE", "CLOSE", "COLLECTIVE", "DECLINED", "KINDS", "OPEN", "Collective", "Table"]

_P, _I, _L, _S = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_size_t

KINDS = (
    *("broadcast", "all_reduce", "reduce", "all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"),
    *("send", "recv", "barrier"),
)
AVERAGE = 100
DECLINED = 1


class Collective(ctypes.Structure):
    """``ts_collective``."""

    _fields_ = (
        ("struct_size", _S),
        ("host", _P),
        *((name, _I) for name in ("kind", "reduction", "dtype", "peer")),
        ("sequence", ctypes.c_uint64),
        ("count", _L),
        ("counts", ctypes.POINTER(_L)),
        ("gotten", ctypes.POINTER(_L)),
        ("src", _P),
        ("src_offset", _L),
        ("dst", _P),
        ("dst_offset", _L),
        ("stream", _P),
    )


_PLAIN = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P)
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, _P, _I, _P, _S, _I, _I, ctypes.POINTER(_P))
COLLECTIVE = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, ctypes.POINTER(Collective))
CLOSE = ctypes.CFUNCTYPE(None, _P, _P)
UNIQUE_ID = ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _S, ctypes.POINTER(_S))


class Table(ctypes.Structure):
    """``ts_communicator``; :meth:`has` tells of slots that may be missing."""

    _fields_ = (
        ("struct_size", _S),
        ("collectives", ctypes.c_uint64),
        ("dtypes", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("open", OPEN),
        ("collective", COLLECTIVE),
        ("close", CLOSE),
        ("unique_id", UNIQUE_ID),
        ("group_begin", _PLAIN),
        ("group_end", _PLAIN),
        ("split", ctypes.CFUNCTYPE(ctypes.c_int, _P, _P, _I, _I, ctypes.POINTER(_P))),
        ("query_error", _PLAIN),
        ("abort", _PLAIN),
    )

    def has(self, slot: str) -> bool:
        """Whether a slot is there, in a table that may be an older, shorter one."""
        field = getattr(Table, slot)
        return bool(self.struct_size >= field.offset + field.size and getattr(self, slot))
