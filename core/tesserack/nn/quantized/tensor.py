"""Tensors of integers with a scale: their dtypes, ``quint8`` and its like, and what makes such tensors and reads them.

Values are rounded as PyTorch rounds them. What functions take quantized tensors is in ``_calls.py``.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack._tensor.printing import add_suffixes
from tesserack._tensor.subclass import as_subclass
from tesserack.nn.quantized._calls import answer

__all__ = [
    "QuantizedTensor",
    "QuantizedType",
    "_make_per_channel_quantized_tensor",
    "_make_per_tensor_quantized_tensor",
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

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # isinstance(torch.quint8, torch.dtype), though no operator takes it for one
        return ts.dtype

    @property
    def is_signed(self) -> bool:
        """Not told, as by PyTorch: a zero point moves the numbers to where they are wanted."""
        raise RuntimeError(f"is_signed: expected a dtype that is not quantized, got {self!r}; ask .storage.is_signed")

    def __repr__(self) -> str:
        return f"{_shown_package()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


class qscheme:
    """How integers stand for numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"{_shown_package()}.{self.name}"

    def __reduce__(self) -> str:
        return self.name


def _shown_package() -> str:
    """Where programs see the names of this module: in ``torch`` under its hook."""
    package = repr(ts.uint8).partition(".")[0]
    return package if package == "torch" else "tesserack.nn.quantized"


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


class QuantizedTensor(Tensor):
    """Integers q that stand for (q - zero point) * scale; one pair of those, or one for each index along ``axis``.

    The memory is the integers'. What functions do with it is in ``_calls.py``; others refuse it.
    """

    is_quantized = True
    _qtype: QuantizedType
    _scale: Any
    _zero_point: Any
    _axis: int | None

    def __new__(
        cls, integers: Tensor, dtype: QuantizedType, scale: Any, zero_point: Any, axis: int | None
    ) -> QuantizedTensor:
        """The integers with what they stand for."""
        made: QuantizedTensor = as_subclass(integers, cls)
        made._qtype, made._scale, made._zero_point, made._axis = dtype, scale, zero_point, axis
        return made

    def __init__(self, *parts: Any) -> None:
        pass

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return answer(func, args, kwargs or {})

    @property
    def dtype(self) -> QuantizedType:  # type: ignore[override]
        """The quantized type."""
        return self._qtype

    @property
    def T(self) -> Tensor:  # type: ignore[override]
        """Dims in reverse."""
        return self.permute(*range(self.dim() - 1, -1, -1))

    def integers(self) -> Tensor:
        """The integers, in this tensor's memory."""
        with DisableTorchFunctionSubclass():
            return as_subclass(self, Tensor)  # type: ignore[no-any-return]

    def like(self, integers: Tensor) -> QuantizedTensor:
        """Other integers of the same scale and zero point."""
        return QuantizedTensor(integers, self._qtype, self._scale, self._zero_point, self._axis)

    def requantized(self, values: Tensor) -> QuantizedTensor:
        """Results by this tensor's scale and zero point. ``RuntimeError`` where there are several."""
        return self.like(_rounded(values, self.q_scale(), self.q_zero_point(), self._qtype, moved_first=True))

    def qscheme(self) -> Any:
        """``per_tensor_affine`` or ``per_channel_affine``."""
        return per_tensor_affine if self._axis is None else per_channel_affine

    def int_repr(self) -> Tensor:
        """The integers, in memory of their own."""
        return self.integers().clone()

    def dequantize(self) -> Tensor:
        """The numbers, as float32."""
        scale, zero_point = self._scale, self._zero_point
        if self._axis is not None:
            along = [1] * self.dim()
            along[self._axis] = -1
            scale, zero_point = scale.to(ts.float32).reshape(along), zero_point.to(ts.float32).reshape(along)
        values: Tensor = (self.integers().to(ts.float32) - zero_point) * scale
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

    def saved(self) -> tuple[Any, ...]:
        """As files name it: the class of its storage, the scheme, scale and zero point, and the axis of several."""
        kind = self._qtype.name.replace("qui", "QUI").replace("qi", "QI") + "Storage"
        parts = (kind, self.qscheme(), self._scale, self._zero_point)
        return parts if self._axis is None else (*parts, self._axis)

    def _refuse(self, *args: Any, **kwargs: Any) -> Any:
        """``TypeError``: integers would be taken for numbers."""
        raise TypeError(f"expected a plain tensor, got one of {self.dtype}; call dequantize() or int_repr() first")

    tolist = item = numpy = __array__ = __bool__ = __float__ = __int__ = __index__ = __dlpack__ = _refuse

    def __setitem__(self, index: Any, value: Any) -> None:
        values = self.dequantize()
        values[index] = value.dequantize() if isinstance(value, QuantizedTensor) else value
        self.integers().copy_(self.requantized(values).integers())

    def __iter__(self) -> Any:
        return iter(self.unbind(0))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return QuantizedTensor, (self.integers(), self._qtype, self._scale, self._zero_point, self._axis)

    def __deepcopy__(self, memo: Any) -> QuantizedTensor:
        made = memo[id(self)] = self.like(self.int_repr())
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        values = repr(self.dequantize()).removesuffix(")")
        ends = [f"size={tuple(self.shape)}", f"dtype={self.dtype}", f"quantization_scheme={self.qscheme()}"]
        ends += [f"scale={self._scale}", f"zero_point={self._zero_point}"]
        ends += [] if self._axis is None else [f"axis={self._axis}"]
        return add_suffixes(values, ends, len("tensor("), False)


def _rounded(input: Tensor, scale: Any, zero_point: Any, dtype: QuantizedType, moved_first: bool = False) -> Tensor:
    """The integers. PyTorch rounds what it is given before the zero point is added, and results after that: halves go
    to the even integer of those."""
    if not input.is_floating_point():
        raise RuntimeError(f"quantize: expected a tensor of floats, got {input.dtype}")
    if not isinstance(dtype, QuantizedType) or dtype.per_byte > 1:
        raise RuntimeError(f"quantize: expected the dtype quint8, qint8 or qint32, got {dtype}")
    limits = ts.iinfo(dtype.storage)
    wide = input.detach().to(ts.float32)
    inverse = 1.0 / scale
    steps = wide * inverse
    whole = (steps + zero_point).round() if moved_first else steps.round().to(ts.float64) + zero_point
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


_BY_STORAGE = {kind.storage: kind for kind in (quint8, qint8, qint32)}


def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> QuantizedTensor:
    """Integers as a quantized tensor. ``RuntimeError`` for dtypes that none is made of."""
    return QuantizedTensor(input.clone(), _made_of(input), float(scale), int(zero_point), None)


def _make_per_channel_quantized_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> QuantizedTensor:
    """The same with a scale and a zero point for each index along ``axis``."""
    scales, zero_points = scale.to(ts.float64), zero_point.to(ts.int64)
    return QuantizedTensor(input.clone(), _made_of(input), scales, zero_points, axis % input.dim())


def rebuilt(integers: Tensor, scheme: qscheme, scale: Any, zero_point: Any, axis: int = 0) -> QuantizedTensor:
    """A quantized tensor of what a file holds."""
    if scheme is per_tensor_affine:
        return QuantizedTensor(integers, _made_of(integers), float(scale), int(zero_point), None)
    scales, zero_points = (ts.as_tensor(x).reshape(-1) for x in (scale, zero_point))
    if scheme is not per_channel_affine or not len(scales) == len(zero_points) == integers.shape[axis]:
        raise ValueError(f"expected a scale and a zero point for each index along dim {axis}, by {scheme}")
    made = scales.to(ts.float64), zero_points.to(ts.int64)
    return QuantizedTensor(integers, _made_of(integers), *made, axis % integers.dim())


def _made_of(input: Tensor) -> QuantizedType:
    if input.dtype not in _BY_STORAGE:
        raise RuntimeError(f"make_quantized_tensor: expected integers of uint8, int8 or int32, got {input.dtype}")
    return _BY_STORAGE[input.dtype]


def dequantize(tensor: Any) -> Any:
    """The numbers of a quantized tensor; of several, of each."""
    if isinstance(tensor, (list, tuple)):
        return tuple(each.dequantize() for each in tensor)
    return tensor.dequantize() if isinstance(tensor, QuantizedTensor) else tensor


_NAMED: tuple[Any, ...] = (*_BY_STORAGE.values(), per_tensor_affine, per_channel_affine)
SAVED = {named.name: named for named in _NAMED}  # dtypes and schemes that files name
