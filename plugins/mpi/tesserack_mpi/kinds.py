"""Dtypes and reductions, as MPI names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tesserack as ts
from tesserack import _native
from tesserack.distributed._reduce_op import RedOpType

from tesserack_mpi.world import MPI

__all__ = ["memory", "operation", "summable"]

_KINDS: dict[ts.dtype, MPI.Datatype] = {
    ts.bool: MPI.UINT8_T,
    ts.uint8: MPI.UINT8_T,
    ts.int8: MPI.INT8_T,
    ts.int16: MPI.INT16_T,
    ts.uint16: MPI.UINT16_T,
    ts.int32: MPI.INT32_T,
    ts.uint32: MPI.UINT32_T,
    ts.int64: MPI.INT64_T,
    ts.uint64: MPI.UINT64_T,
    ts.float32: MPI.FLOAT,
    ts.float64: MPI.DOUBLE,
    ts.complex64: MPI.C_FLOAT_COMPLEX,
    ts.complex128: MPI.C_DOUBLE_COMPLEX,
}
_HALVES = (ts.float16, ts.bfloat16)


def _of_floats(combine: Callable[..., Any]) -> MPI.Op:
    """MPI's own order of NaN is nobody's promise: here one on any rank comes out."""

    def run(given: Any, held: Any, kind: MPI.Datatype) -> None:
        dtype = np.float32 if kind.Get_size() == 4 else np.float64
        to = np.frombuffer(held, dtype)
        combine(to, np.frombuffer(given, dtype), out=to)

    return MPI.Op.Create(run, commute=True)


_floats: dict[RedOpType, MPI.Op] = {}


def operation(op: str, dtype: ts.dtype, code: int) -> MPI.Op:
    """The reduction of a number that :class:`ReduceOp` gives; an average is a sum here. Raises what has no meaning."""
    _native._check_reduction(op, dtype, code)
    kind = RedOpType(code)
    if dtype is ts.bool:  # truth values stay 0 and 1
        any_ = kind in (RedOpType.SUM, RedOpType.MAX, RedOpType.BOR)
        return MPI.BXOR if kind is RedOpType.BXOR else MPI.BOR if any_ else MPI.BAND
    if kind in (RedOpType.MIN, RedOpType.MAX) and dtype.is_floating_point:
        if kind not in _floats:
            _floats[kind] = _of_floats(np.minimum if kind is RedOpType.MIN else np.maximum)
        return _floats[kind]
    return {
        RedOpType.SUM: MPI.SUM,
        RedOpType.AVG: MPI.SUM,
        RedOpType.PRODUCT: MPI.PROD,
        RedOpType.MIN: MPI.MIN,
        RedOpType.MAX: MPI.MAX,
        RedOpType.BAND: MPI.BAND,
        RedOpType.BOR: MPI.BOR,
        RedOpType.BXOR: MPI.BXOR,
    }[kind]


def summable(tensor: ts.Tensor) -> ts.Tensor:
    """A tensor whose elements MPI can combine: of half types a copy in float32."""
    return tensor.float() if tensor.dtype in _HALVES else tensor


def memory(tensor: ts.Tensor, raw: bool = True) -> Any:
    """A dense tensor's memory as mpi4py takes it: bytes, or elements of MPI's dtype."""
    size = tensor.numel() * tensor.element_size()
    place = MPI.buffer.fromaddress(tensor.data_ptr(), size) if size else MPI.buffer.allocate(0)
    return [place, size, MPI.BYTE] if raw else [place, tensor.numel(), _KINDS[tensor.dtype]]
