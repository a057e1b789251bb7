"""Tensors of integers with a scale: ``torch.quint8`` and its like, and what makes such tensors and reads them.

This is the seam at which quantized operators will stand. Values are rounded as PyTorch rounds them; no operator takes
them but :meth:`QuantizedTensor.dequantize`.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = [
    "QuantizedTensor",
    "QuantizedType",
    "dequantize",
    "per_channel_affine",
    "per_channel_affine_float_qparams",
    "per_channel_symmetric",
    "per_tensor_affine",
    "per_tensor_symmetric",
    "qint8",
    "qint32",
    "qscheme",
    "quantize_per_channel",
    "quantize_per_tensor",
    "quint2x4",
    "quint4x2",
    "quint8",
]


class QuantizedType:
    """The dtype of a quantized tensor; ``storage`` is that of its integers."""

    is_floating_point = is_complex = False

    def __init__(self, name: str, storage: ts.dtype, per_byte: int = 1) -> None:
        self.name = name
        self.storage = storage
        self.per_byte = per_byte
        self.itemsize = storage.itemsize

    @property
    def is_signed(self) -> bool:
        """Not told, as by PyTorch: a zero point moves the numbers to where they are wanted."""
        raise RuntimeError(f"is_signed: expected a dtype that is not quantized, got {self!r}; ask .storage.is_signed")

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class qscheme:
    """How integers stand for numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name


quint8 = QuantizedType("quint8", ts.uint8)
qint8 = QuantizedType("qint8", ts.int8)
qint32 = QuantizedType("qint32", ts.int32)
quint4x2 = QuantizedType("quint4x2", ts.uint8, 2)
quint2x4 = QuantizedType("quint2x4", ts.uint8, 4)
per_tensor_affine = qscheme("per_tensor_affine")
per_channel_affine = qscheme("per_channel_affine")
per_tensor_symmetric = qscheme("per_tensor_symmetric")
per_channel_symmetric = qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")


class QuantizedTensor:
    """Integers q that stand for (q - zero point) * scale; one pair of those, or one for each index along ``axis``."""

    is_quantized = True
    requires_grad = False

    def __init__(self, integers: Tensor, dtype: QuantizedType, scale: Any, zero_point: Any, axis: int | None) -> None:
        self._integers, self.dtype = integers, dtype
        self._scale, self._zero_point, self._axis = scale, zero_point, axis
        self.shape, self.device = integers.shape, integers.device

    def qscheme(self) -> Any:
        """``per_tensor_affine`` or ``per_channel_affine``."""
        return per_tensor_affine if self._axis is None else per_channel_affine

    def int_repr(self) -> Tensor:
        """The integers, in memory of their own."""
        return self._integers.clone()

    def dequantize(self) -> Tensor:
        """The numbers, as float32."""
        scale, zero_point = self._scale, self._zero_point
        if self._axis is not None:
            along = [1] * self._integers.dim()
            along[self._axis] = -1
            scale, zero_point = scale.to(ts.float32).reshape(along), zero_point.to(ts.float32).reshape(along)
        values: Tensor = (self._integers.to(ts.float32) - zero_point) * scale
        return values

    def _one(self, what: str) -> None:
        if self._axis is not None:
            raise RuntimeError(f"{what}: expected a tensor of per_tensor_affine, got per_channel_affine")

    def _several(self, what: str) -> None:
        if self._axis is None:
            raise RuntimeError(f"{what}: expected a tensor of per_channel_affine, got per_tensor_affine")

    def q_scale(self) -> float:
        """The scale. ``RuntimeError`` where there are several."""
        self._one("q_scale")
        return float(self._scale)

    def q_zero_point(self) -> int:
        """The zero point. ``RuntimeError`` where there are several."""
        self._one("q_zero_point")
        return int(self._zero_point)

    def q_per_channel_scales(self) -> Tensor:
        """The scales. ``RuntimeError`` where there is one."""
        self._several("q_per_channel_scales")
        return self._scale  # type: ignore[no-any-return]

    def q_per_channel_zero_points(self) -> Tensor:
        """The zero points. ``RuntimeError`` where there is one."""
        self._several("q_per_channel_zero_points")
        return self._zero_point  # type: ignore[no-any-return]

    def q_per_channel_axis(self) -> int:
        """The dim along which there is a scale for each index. ``RuntimeError`` where there is one scale."""
        self._several("q_per_channel_axis")
        return int(self._axis or 0)

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its size along a dim."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self) -> int:
        """The number of dims."""
        return len(self.shape)

    def numel(self) -> int:
        """The number of elements."""
        return int(self._integers.numel())

    def clone(self) -> QuantizedTensor:
        """The same in memory of its own."""
        return QuantizedTensor(self._integers.clone(), self.dtype, self._scale, self._zero_point, self._axis)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(Tensor, name):
            raise AttributeError(f"'QuantizedTensor' object has no attribute {name!r}")
        raise NotImplementedError(f"{name}: quantized tensors have no operators yet; call dequantize() first")

    def __repr__(self) -> str:
        values = repr(self.dequantize()).removesuffix(")")
        if self._axis is None:
            where = f"scale={self._scale}, zero_point={self._zero_point}"
        else:
            where = f"scale={self._scale}, zero_point={self._zero_point}, axis={self._axis}"
        return f"{values}, size={tuple(self.shape)}, dtype={self.dtype}, quantization_scheme={self.qscheme()}, {where})"


def _rounded(input: Tensor, scale: Any, zero_point: Any, dtype: QuantizedType) -> Tensor:
    if not input.is_floating_point():
        raise RuntimeError(f"quantize: expected a tensor of floats, got {input.dtype}")
    if not isinstance(dtype, QuantizedType) or dtype.per_byte > 1:
        raise RuntimeError(f"quantize: expected the dtype quint8, qint8 or qint32, got {dtype}")
    limits = ts.iinfo(dtype.storage)
    wide = input.detach().to(ts.float32)
    inverse = 1.0 / scale
    whole = (wide * inverse).round().to(ts.float64) + zero_point
    kept: Tensor = whole.clamp(limits.min, limits.max).to(dtype.storage)
    return kept


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: QuantizedType) -> Any:
    """Floats as integers, round(x / scale) + zero_point, as far as the dtype reaches; of a list of tensors, one each.

    >>> import tesserack as ts
    >>> quantize_per_tensor(ts.tensor([0.0, 0.5, 99.0]), 0.5, 10, quint8).int_repr().tolist()
    [10, 11, 208]
    """
    if isinstance(input, (list, tuple)):
        rows = zip(input, scale, zero_point, strict=True)
        return tuple(quantize_per_tensor(x, s, z, dtype) for x, s, z in rows)
    scale, zero_point = float(scale), int(zero_point)
    return QuantizedTensor(_rounded(input, scale, zero_point, dtype), dtype, scale, zero_point, None)


def quantize_per_channel(
    input: Tensor, scales: Tensor, zero_points: Tensor, axis: int, dtype: QuantizedType
) -> QuantizedTensor:
    """:func:`quantize_per_tensor` with a scale and a zero point for each index along ``axis``. ``RuntimeError`` where
    these are not as many."""
    count = input.shape[axis]
    if scales.shape != (count,) or zero_points.shape != (count,):
        raise RuntimeError(
            f"quantize_per_channel: expected {count} scales and zero points along dim {axis}, got "
            f"{tuple(scales.shape)} and {tuple(zero_points.shape)}"
        )
    along = [1] * input.dim()
    along[axis] = -1
    integers = _rounded(input, scales.to(ts.float32).reshape(along), zero_points.to(ts.float64).reshape(along), dtype)
    return QuantizedTensor(integers, dtype, scales.to(ts.float64), zero_points.to(ts.int64), axis % input.dim())


def dequantize(tensor: Any) -> Any:
    """The numbers of a quantized tensor; of several, of each."""
    if isinstance(tensor, (list, tuple)):
        return tuple(each.dequantize() for each in tensor)
    return tensor.dequantize() if isinstance(tensor, QuantizedTensor) else tensor
