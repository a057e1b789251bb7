"""What the namespace can do, by the standard's inspection functions."""

from __future__ import annotations

from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.array_api._shapes import _KINDS


class FloatInfo(NamedTuple):
    """What ``finfo`` tells: of complex dtypes, about their parts."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


class IntInfo(NamedTuple):
    """What ``iinfo`` tells."""

    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> FloatInfo:
    """The limits of a floating or complex dtype, or of that of an array.

    >>> import tesserack as ts
    >>> ts.array_api.finfo(ts.ones(2)).bits
    32
    """
    dtype = type.dtype if isinstance(type, Tensor) else type
    limits = ts.finfo(dtype)
    real = dtype.to_real() if dtype.is_complex else dtype
    return FloatInfo(limits.bits, limits.eps, limits.max, limits.min, limits.smallest_normal, real)


def iinfo(type: Any, /) -> IntInfo:
    """The limits of an integer dtype, or of that of an array.

    >>> import tesserack as ts
    >>> ts.array_api.iinfo(ts.int8).max
    127
    """
    dtype = type.dtype if isinstance(type, Tensor) else type
    limits = ts.iinfo(dtype)
    return IntInfo(limits.bits, limits.max, limits.min, dtype)


class Info:
    """Devices, dtypes and capabilities, for libraries that adapt to them."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indexing and shapes that depend on data work; axes are limited to 64."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device of new arrays."""
        return ts.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of new arrays by kind."""
        real = ts.get_default_dtype()
        return {
            "real floating": real,
            "complex floating": real.to_complex(),
            "integral": ts.int64,
            "indexing": ts.int64,
        }

    def devices(self) -> list[Any]:
        """The devices that are there."""
        ready = [b for b in map(ts.backends.get, ts.backends.list()) if b.status == "ready"]
        return [ts.device(b.name, k) for b in ready for k in range(b.device_count or 0)]

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The standard's dtypes by name, those of a kind, or of several."""
        kinds = ("bool", "numeric") if kind is None else kind if isinstance(kind, tuple) else (kind,)
        if unknown := [k for k in kinds if k not in _KINDS]:
            raise ValueError(f"dtypes: expected kinds of {sorted(_KINDS)}, got {unknown}")
        return {name: getattr(ts, name) for one in kinds for name in _KINDS[one]}


def __array_namespace_info__() -> Info:
    """The inspection functions."""
    return Info()
