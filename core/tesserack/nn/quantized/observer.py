"""Observers: modules that watch what passes, and choose scales and zero points."""

from __future__ import annotations

import functools
from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.nn.quantized import tensor as q

__all__ = [
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "UniformQuantizationObserverBase",
    "default_dynamic_quant_observer",
    "default_observer",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_weight_observer",
]

_SYMMETRIC = (q.per_tensor_symmetric, q.per_channel_symmetric)
_LIMITS = {"qint8": (-128, 127), "quint8": (0, 255), "qint32": (-(2**31), 2**31 - 1)}


class _With:
    """A class with arguments for its constructor: calling it makes an instance."""

    def __init__(self, made: functools.partial[Any]) -> None:
        self.p = made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.p(*args, **kwargs)

    def with_args(self, **kwargs: Any) -> _With:
        """With more arguments."""
        return _With(functools.partial(self.p, **kwargs))

    def __repr__(self) -> str:
        return f"{self.p!r}{{}}"


class ObserverBase(nn.Module):
    """What observers have in common: the dtype that they choose for."""

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @classmethod
    def with_args(cls, **kwargs: Any) -> _With:
        """A maker of observers with these arguments."""
        return _With(functools.partial(cls, **kwargs))


class NoopObserver(ObserverBase):
    """It watches nothing."""

    def __init__(self, dtype: Any = ts.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype)

    def forward(self, x: Tensor) -> Tensor:
        """``x``."""
        return x


class PlaceholderObserver(ObserverBase):
    """It says only what dtype is wanted, as for what is quantized when it comes."""

    def __init__(
        self,
        dtype: Any = ts.float32,
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max = quant_min, quant_max
        self.qscheme = q.per_tensor_affine if qscheme is None else qscheme

    def forward(self, x: Tensor) -> Tensor:
        """``x``."""
        return x

    def calculate_qparams(self) -> Any:
        """``RuntimeError``: nothing was watched."""
        raise RuntimeError("calculate_qparams: a PlaceholderObserver watches nothing; use a MinMaxObserver")


class UniformQuantizationObserverBase(ObserverBase):
    """Observers of a least and a greatest value, with equal steps between the integers."""

    min_val: Tensor
    max_val: Tensor
    eps: Tensor

    def __init__(
        self,
        dtype: Any = q.quint8,
        qscheme: Any = q.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = 2.0**-23,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype, is_dynamic, **kwargs)
        if getattr(dtype, "name", "") not in _LIMITS:
            raise AssertionError(f"{type(self).__name__}: expected the dtype quint8, qint8 or qint32, got {dtype}")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        low, high = _LIMITS[dtype.name]
        if quant_min is not None and quant_max is not None:
            low, high = quant_min, quant_max
        elif reduce_range:
            low, high = low // 2, high // 2
        self.quant_min, self.quant_max = low, high
        self.register_buffer("eps", ts.tensor([eps]))

    def _choose(self, least: Tensor, greatest: Tensor) -> tuple[Tensor, Tensor]:
        """The scale and the zero point, where zero itself is one of the numbers."""
        steps = float(self.quant_max - self.quant_min)
        below, above = least.clamp(max=0.0), greatest.clamp(min=0.0)
        if self.qscheme in _SYMMETRIC:
            scale = (ts.maximum(-below, above) / (steps / 2)).maximum(self.eps)
            middle = (self.quant_min + self.quant_max + 1) // 2 if self.dtype is q.quint8 else 0
            return scale, ts.full(scale.shape, middle, dtype=ts.int64)
        scale = ((above - below) / steps).maximum(self.eps)
        zero_point = self.quant_min - (below / scale).round().to(ts.int32)
        return scale, zero_point.clamp(self.quant_min, self.quant_max)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point for what was seen; 1 and 0, with a warning, where nothing was."""
        if self.min_val.numel() == 0 or bool((self.min_val > self.max_val).any()):
            import warnings

            warnings.warn("must run observer before calling calculate_qparams: scale 1, zero point 0", stacklevel=2)
            return ts.ones(1), ts.zeros(1, dtype=ts.int64)
        return self._choose(self.min_val, self.max_val)

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = ts.tensor(float("inf")), ts.tensor(float("-inf"))

    def extra_repr(self) -> str:
        """What was seen."""
        return f"min_val={self.min_val if self.min_val.dim() else self.min_val.item()}, " + (
            f"max_val={self.max_val if self.max_val.dim() else self.max_val.item()}"
        )


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest value of all that passed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("min_val", ts.tensor(float("inf")))
        self.register_buffer("max_val", ts.tensor(float("-inf")))

    def forward(self, x_orig: Tensor) -> Tensor:
        """``x_orig``, once its range is noted."""
        if x_orig.numel():
            x = x_orig.detach().to(self.min_val.dtype)
            self._note(x.amin(), x.amax())
        return x_orig

    def _note(self, least: Tensor, greatest: Tensor) -> None:
        self.min_val.copy_(ts.minimum(least, self.min_val))
        self.max_val.copy_(ts.maximum(greatest, self.max_val))


class _Averages(UniformQuantizationObserverBase):
    averaging_constant: float

    def _note(self, least: Tensor, greatest: Tensor) -> None:
        if self.min_val.numel() and not bool(self.min_val.isinf().any()):
            least = self.min_val + self.averaging_constant * (least - self.min_val)
            greatest = self.max_val + self.averaging_constant * (greatest - self.max_val)
        self.min_val, self.max_val = least, greatest


class MovingAverageMinMaxObserver(_Averages, MinMaxObserver):
    """A moving average of the least and the greatest value of each call."""

    def __init__(self, averaging_constant: float = 0.01, *args: Any, **kwargs: Any) -> None:
        self.averaging_constant = averaging_constant
        super().__init__(*args, **kwargs)


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest value for each index along ``ch_axis``."""

    def __init__(
        self, ch_axis: int = 0, dtype: Any = q.quint8, qscheme: Any = q.per_channel_affine, *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.ch_axis = ch_axis
        self.register_buffer("min_val", ts.tensor([]))
        self.register_buffer("max_val", ts.tensor([]))

    def forward(self, x_orig: Tensor) -> Tensor:
        """``x_orig``, once the range of each channel is noted."""
        if x_orig.numel():
            rows = x_orig.detach().to(self.min_val.dtype).movedim(self.ch_axis, 0).flatten(1)
            self._note(rows.amin(1), rows.amax(1))
        return x_orig

    def _note(self, least: Tensor, greatest: Tensor) -> None:
        seen = self.min_val.numel() > 0
        self.min_val = ts.minimum(least, self.min_val) if seen else least
        self.max_val = ts.maximum(greatest, self.max_val) if seen else greatest

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = ts.tensor([]), ts.tensor([])


class MovingAveragePerChannelMinMaxObserver(_Averages, PerChannelMinMaxObserver):
    """A moving average of the least and the greatest value of each channel."""

    def __init__(self, averaging_constant: float = 0.01, *args: Any, **kwargs: Any) -> None:
        self.averaging_constant = averaging_constant
        super().__init__(*args, **kwargs)


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype=q.qint8, qscheme=q.per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=q.qint8, qscheme=q.per_channel_symmetric)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=q.quint8, quant_min=0, quant_max=255, is_dynamic=True
)
