"""A linear layer of 8 bits: its weight times what is quantized in the call."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, nn
from tesserack.nn.quantized import tensor as q
from tesserack.nn.quantized.qconfig import default_dynamic_qconfig

__all__ = ["Linear", "LinearPackedParams"]


class LinearPackedParams(nn.Module):
    """A quantized weight and the bias, as they are saved."""

    _version = 3

    def __init__(self, dtype: Any = q.qint8) -> None:
        super().__init__()
        self.dtype = dtype
        self._packed_params: tuple[Any, Any] = (None, None)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._packed_params

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        self.dtype = _taken(state_dict, prefix + "dtype")
        self._packed_params = _taken(state_dict, prefix + "_packed_params")

    def __repr__(self) -> str:
        return repr(self._packed_params)


class Linear(nn.Module):
    """A linear layer whose weight is quantized; its input is in each call, by its range then (for qint8)."""

    _version = 4

    def __init__(self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = q.qint8) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.scale, self.zero_point = 1.0, 0
        self._packed_params = LinearPackedParams(dtype)
        weight, bias = ts.zeros(out_features, in_features), ts.zeros(out_features) if bias_ else None
        self.set_weight_bias(q.quantize_per_tensor(weight, 1.0, 0, q.qint8) if dtype is q.qint8 else weight, bias)

    def __repr__(self) -> str:
        return f"DynamicQuantizedLinear({self.extra_repr()})"

    def weight(self) -> Any:
        """The quantized weight."""
        return self._packed_params._packed_params[0]

    def bias(self) -> Any:
        """The bias, or None."""
        return self._packed_params._packed_params[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Another weight and bias."""
        self._packed_params._packed_params = (w, b)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Linear:
        """Of a layer whose ``qconfig`` says how its weight is quantized, ``default_dynamic_qconfig`` without one."""
        observer = (getattr(mod, "qconfig", None) or default_dynamic_qconfig).weight()
        weight = mod.weight.detach().to(ts.float32)
        if observer.dtype == ts.float16:
            kept = weight.to(ts.float16).to(ts.float32)
        else:
            observer(weight)
            scale, zero_point = observer.calculate_qparams()
            kept = _quantized(weight, scale, zero_point, getattr(observer, "ch_axis", None))
        made = cls(mod.in_features, mod.out_features, mod.bias is not None, observer.dtype)
        made.set_weight_bias(kept, mod.bias)
        return made.train(mod.training)

    def forward(self, x: Tensor) -> Tensor:
        """The product, in float32."""
        weight, bias = self.weight(), self.bias()
        bias = None if bias is None else bias.detach()
        if self._packed_params.dtype == ts.float16:
            return nn.functional.linear(x, weight, bias)
        scale, zero_point = _range(x)
        steps = (x.to(ts.float32) * (1.0 / scale) + zero_point).round().clamp(0, 255) - zero_point
        out = nn.functional.linear(steps.to(ts.float64), weight.dequantize().to(ts.float64)) * scale
        return (out if bias is None else out + bias).to(ts.float32)

    def extra_repr(self) -> str:
        """Sizes and dtype."""
        text = f"in_features={self.in_features}, out_features={self.out_features}, dtype={self._packed_params.dtype}"
        return text if self._packed_params.dtype == ts.float16 else f"{text}, qscheme={self.weight().qscheme()}"

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = ts.tensor(self.scale)
        destination[prefix + "zero_point"] = ts.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        self.scale = float(_taken(state_dict, prefix + "scale"))
        self.zero_point = int(_taken(state_dict, prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _taken(state_dict: Any, key: str) -> Any:
    """An entry, which the state has no longer then. ``KeyError`` if it is missing, strict or not, as by PyTorch."""
    if key not in state_dict:
        raise KeyError(
            f"load_state_dict: expected the state of a dynamic linear layer with {key!r}, got {[*state_dict]}"
        )
    return state_dict.pop(key)


def _quantized(weight: Tensor, scale: Tensor, zero_point: Tensor, axis: int | None) -> Any:
    if axis is None:
        return q.quantize_per_tensor(weight, float(scale), int(zero_point), q.qint8)
    return q.quantize_per_channel(weight, scale, zero_point, axis, q.qint8)


def _range(x: Tensor) -> tuple[float, int]:
    """The scale and zero point of 7 bits for an input, zero among the numbers."""
    least, greatest = (min(x.min().item(), 0.0), max(x.max().item(), 0.0)) if x.numel() else (0.0, 0.0)
    scale = float(ts.tensor((greatest - least) / 127))
    if scale == 0.0 or 1.0 / scale == float("inf"):
        return 0.1, 0
    below, above = -least / scale, 127 - greatest / scale
    nearer = below if abs(least / scale) < 127 + abs(greatest / scale) else above
    return scale, int(ts.tensor(min(max(nearer, 0.0), 127.0)).round().item())
