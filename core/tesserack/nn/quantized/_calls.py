"""What functions do with quantized tensors, by name: their integers moved, compared, or computed with.

Computed with means: the numbers are, and the result is rounded to the scale and zero point of the first argument.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, library
from tesserack._tensor.overrides import DisableTorchFunctionSubclass

__all__ = ["answer"]

# The integers go where the function puts them; with a scale for each channel, those that stay where they are.
_KEPT = {"clone", "contiguous", "detach", "cpu", "empty_like"}
_MOVED = {
    *("to", "__getitem__", "chunk", "expand", "flatten", "flip", "index_select"),
    *("movedim", "narrow", "permute", "reshape", "select", "split", "squeeze", "swapaxes", "t", "transpose"),
    *("unbind", "unflatten", "unsqueeze", "view", "view_as", "reshape_as", "repeat", "repeat_interleave"),
    *("expand_as", "alias", "sort", "topk", "max", "min", "tensor_split", "channel_shuffle"),
    *("max_pool1d", "max_pool2d", "msort", "median"),
}
_COMPARED = {*("eq", "ne", "lt", "le", "gt", "ge"), *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")}
_COMPUTED = {
    *("relu", "relu6", "leaky_relu", "elu", "celu", "hardtanh", "hardswish", "threshold", "prelu", "clamp", "mean"),
    *("avg_pool2d", "avg_pool3d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "interpolate", "upsample"),
    *("masked_fill", "cat", "concat", "stack", "constant_pad_nd", "pad", "clip", "gelu"),
}
_WRITTEN = {"copy_", "fill_", "masked_fill_", "relu_", "clamp_"}
# Of values in a known range: the scale, and the zero points of quint8 and of signed types.
_RANGED = {"sigmoid": (1 / 256, 0, -128), "hardsigmoid": (1 / 256, 0, -128), "tanh": (2 / 256, 128, 0)}
_AS_THEY_ARE = {"as_subclass", "requires_grad_", "__get__", "__set__", "__len__", "size", "dim", "numel", "is_tensor"}


def answer(func: Any, args: Any, kwargs: Any) -> Any:
    """The function's result, or ``NotImplementedError`` where PyTorch's quantized tensors have none here."""
    name = str(getattr(func, "__name__", func))
    first = _first((args, kwargs))
    kernel = _kernel(func)
    if kernel is not None:
        return kernel(*args, **kwargs)
    with DisableTorchFunctionSubclass():
        if name in _AS_THEY_ARE:
            return func(*args, **kwargs)
        if name in _COMPARED or name == "equal":
            return func(*_numbers(args), **_numbers(kwargs))
        if name in _KEPT or (name in _MOVED and first._axis is None and not _changes_dtype(name, args[1:], kwargs)):
            return _results(func(*_integers(args), **_integers(kwargs)), first.like)
        if name in _COMPUTED:
            return _rounded(func(*_numbers(args), **_numbers(kwargs)), first)
        if name in _WRITTEN:
            return _write(func, args, kwargs)
        if name in _RANGED:
            return _ranged(func(*_numbers(args), **_numbers(kwargs)), first, *_RANGED[name])
    raise NotImplementedError(f"{name}: there is none for quantized tensors; call dequantize() first")


def _kernel(func: Any) -> Any:
    """What a program registered for quantized tensors, of an operator of its own."""
    name = str(getattr(func, "_qualified_op_name", getattr(func, "__name__", "")))
    operator = library._operators.get(name.partition(".")[0]) if "::" in name else None
    return operator and operator._kernels.get("QuantizedCPU")


def _changes_dtype(name: str, args: Any, kwargs: Any) -> bool:
    if name not in ("to", "view"):
        return False
    asked = [a.dtype if isinstance(a, Tensor) else a for a in (*args, *kwargs.values())]
    return any(isinstance(a, ts.dtype) for a in asked)


def _mapped(value: Any, change: Any) -> Any:
    """``change`` of every quantized tensor within lists, tuples and dicts."""
    if isinstance(value, dict):
        return {key: _mapped(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, ts.Size):
        return type(value)(_mapped(item, change) for item in value)
    return change(value) if getattr(value, "is_quantized", False) else value


def _first(value: Any) -> Any:
    found: list[Any] = []
    _mapped(value, found.append)
    return found[0]


def _integers(value: Any) -> Any:
    return _mapped(value, lambda q: q.integers())


def _numbers(value: Any) -> Any:
    return _mapped(value, lambda q: q.dequantize())


def _results(value: Any, change: Any) -> Any:
    """``change`` of tensors among results; places, which are int64, stay."""
    if isinstance(value, (list, tuple)):
        changed = [_results(item, change) for item in value]
        return type(value)(changed) if type(value) in (list, tuple) or hasattr(value, "n_fields") else tuple(changed)
    return change(value) if isinstance(value, Tensor) and value.dtype != ts.int64 else value


def _rounded(value: Any, like: Any) -> Any:
    return _results(value, like.requantized)


def _ranged(value: Tensor, like: Any, scale: float, unsigned: int, signed: int) -> Any:
    made = like.like(like.integers())
    made._scale, made._zero_point, made._axis = scale, unsigned if like.dtype.name == "quint8" else signed, None
    return made.requantized(value)


def _write(func: Any, args: Any, kwargs: Any) -> Any:
    """In place: what the numbers become, rounded, as integers into the memory."""
    target = args[0]
    values = target.dequantize()
    func(values, *_numbers(args[1:]), **_numbers(kwargs))
    target.integers().copy_(target.requantized(values).integers())
    return target
