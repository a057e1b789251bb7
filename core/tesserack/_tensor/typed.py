"""The tensor types of one dtype each, which older programs construct and test for: ``FloatTensor`` and its kin."""

from __future__ import annotations

from typing import Any

from tesserack import _native
from tesserack._native import Size, Tensor

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class _TypedMeta(type):
    dtype: _native.dtype
    device: str  # of the types of a card's tensors; the others are the cpu's

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if bases:
            raise TypeError(f"type '{bases[0].__name__}' is not an acceptable base type; derive from Tensor")
        return super().__new__(cls, name, bases, body)

    def __call__(cls, *args: Any, device: Any = None) -> Tensor:
        from tesserack import empty, tensor

        if len(args) != 1 or isinstance(args[0], (int, Size)):
            sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args or (0,)
            return empty(sizes, dtype=cls.dtype, device=device)
        if hasattr(args[0], "_storage_numbers"):  # a storage: the same memory
            return tensor([], dtype=cls.dtype, device=args[0].device if device is None else device).set_(args[0])
        if not isinstance(args[0], Tensor):
            return tensor(args[0], dtype=cls.dtype, device=device)
        if args[0].dtype != cls.dtype:
            raise TypeError(
                f"{cls.__name__}: expected a tensor of {cls.dtype}, got {args[0].dtype}; convert it with to()"
            )
        return args[0].detach() if device is None else args[0].detach().to(device)

    def __instancecheck__(cls, instance: Any) -> bool:
        place = getattr(cls, "device", "cpu")
        return isinstance(instance, Tensor) and instance.dtype == cls.dtype and instance.device.type == place


class FloatTensor(metaclass=_TypedMeta):
    """Tensors of float32: ``FloatTensor(2, 3)`` is not initialised, ``FloatTensor([1, 2])`` holds the data.

    What comes back is a plain ``Tensor``; ``isinstance(x, FloatTensor)`` asks for dtype and cpu. Prefer ``tensor(data,
    dtype=...)`` and ``x.dtype``. Raises ``TypeError`` for a tensor of another dtype.

    >>> import tesserack as ts
    >>> ts.FloatTensor([1, 2]), isinstance(ts.arange(2), ts.FloatTensor)
    (tensor([1., 2.]), False)
    """

    dtype = _native.float32


class BFloat16Tensor(metaclass=_TypedMeta):
    """Tensors of bfloat16; see :class:`FloatTensor`."""

    dtype = _native.bfloat16


class BoolTensor(metaclass=_TypedMeta):
    """Tensors of bool; see :class:`FloatTensor`."""

    dtype = _native.bool


class ByteTensor(metaclass=_TypedMeta):
    """Tensors of uint8; see :class:`FloatTensor`."""

    dtype = _native.uint8


class CharTensor(metaclass=_TypedMeta):
    """Tensors of int8; see :class:`FloatTensor`."""

    dtype = _native.int8


class DoubleTensor(metaclass=_TypedMeta):
    """Tensors of float64; see :class:`FloatTensor`."""

    dtype = _native.float64


class HalfTensor(metaclass=_TypedMeta):
    """Tensors of float16; see :class:`FloatTensor`."""

    dtype = _native.float16


class IntTensor(metaclass=_TypedMeta):
    """Tensors of int32; see :class:`FloatTensor`."""

    dtype = _native.int32


class LongTensor(metaclass=_TypedMeta):
    """Tensors of int64; see :class:`FloatTensor`."""

    dtype = _native.int64


class ShortTensor(metaclass=_TypedMeta):
    """Tensors of int16; see :class:`FloatTensor`."""

    dtype = _native.int16
