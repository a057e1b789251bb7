"""Reductions: over all elements, over the ragged dimension, and over dimensions inside the rows."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._handlers import handles
from tesserack.nested._pointwise import elements, pads
from tesserack.nested._tensor import NestedTensor, _checked, wrap_like

_PAIRS = ("max", "min")  # with a dim, these return indices too; with a tensor they are of two operands


def _outermost(dtype: Any, sign: int) -> Any:
    """The largest value of a dtype, or the smallest."""
    if dtype is ts.bool:
        return sign > 0
    if dtype.is_floating_point:
        return sign * math.inf  # rows may hold nothing else
    return ts.iinfo(dtype).max if sign > 0 else ts.iinfo(dtype).min


def _identity(name: str, dtype: Any) -> Any:
    if name in ("sum", "any", "nansum"):
        return 0
    if name in ("prod", "all"):
        return 1
    return _outermost(dtype, 1 if name.endswith("min") else -1)


def inner_dim(dim: int, ragged: int) -> int:
    """The dimension of the values that holds one of the nested tensor's."""
    return ragged - 1 if dim == 0 else dim - 1


def _mapped(result: Any, change: Any) -> Any:
    if isinstance(result, Tensor):
        return change(result)
    parts = [change(part) for part in result]
    return type(result)(parts) if hasattr(result, "_fields") or type(result) is not tuple else tuple(parts)


def _over_ragged(func: Any, name: str, input: NestedTensor, dim: Any, options: dict[str, Any]) -> Any:
    if name == "mean":
        total = pads(input, 0).sum(dim=input._ragged_idx, keepdim=True, dtype=options.get("dtype"))
        count = input._row_lengths().reshape(-1, *(1,) * (total.dim() - 1))
        found = total / count
        return found if options.get("keepdim") else found.squeeze(input._ragged_idx)
    dense = pads(input, _identity(name, input.dtype))
    if input._row_lengths().numel() and not input._longest():
        raise RuntimeError(f"{name}(): expected rows with elements in the ragged dimension, got none")
    made = func(dense, dim=[input._ragged_idx] if isinstance(dim, (list, tuple)) else input._ragged_idx, **options)
    return _mapped(made, lambda o: _finite_of_empty(name, o, input))


def _finite_of_empty(name: str, found: Tensor, input: NestedTensor) -> Tensor:
    """Extremes of rows of no elements are the dtype's last numbers, as in PyTorch."""
    if name not in ("max", "min", "amax", "amin") or not found.is_floating_point():
        return found
    limit = ts.finfo(found.dtype).max if name.endswith("min") else ts.finfo(found.dtype).min
    empty = (input._row_lengths() == 0).reshape(-1, *(1,) * (found.dim() - 1))
    return ts.where(empty, ts.full_like(found, limit), found)


def _over(func: Any, name: str, input: NestedTensor, dim: Any, options: dict[str, Any]) -> Any:
    dims = [_checked(name, d, input.dim()) for d in (dim if isinstance(dim, (list, tuple)) else [dim])]
    ragged = input._ragged_idx
    batch, along, inside = 0 in dims, ragged in dims, any(d not in (0, ragged) for d in dims)
    if along and input._lengths is not None:
        raise RuntimeError(f"{name}(): reducing across the ragged dimension is not supported for non-contiguous nested "
                           "tensors with holes; try .contiguous()")  # fmt: skip
    if along and not batch:
        if inside:
            raise RuntimeError(f"{name}(): reducing along a ragged and non-batch dimension is not supported for nested "
                               "tensors; try one after the other")  # fmt: skip
        return _over_ragged(func, name, input, dim, options)
    if batch and not along:
        raise RuntimeError(f"{name}(): reducing along the batch dimension but not the ragged dimension is not "
                           "supported for nested tensors; try to_padded_tensor()")  # fmt: skip
    within = list(dict.fromkeys(inner_dim(d, ragged) for d in dims))
    result = func(input.values(), dim=within if isinstance(dim, (list, tuple)) else within[0], **options)
    keepdim = options.get("keepdim", False)
    if along:
        return _mapped(result, lambda o: o.unsqueeze(0)) if keepdim else result
    moved = 0 if keepdim else sum(d < ragged - 1 for d in within)
    return _mapped(result, lambda o: wrap_like(o, input, ragged - moved))


@handles("sum", "mean", "prod", "any", "all", "amax", "amin", "argmax", "argmin", "max", "min")
def _reduce(func: Any, input: NestedTensor, dim: Any = None, keepdim: Any = None, **options: Any) -> Any:
    name = func.__name__
    options = {key: value for key, value in options.items() if value is not None}
    other = options.get("other", dim)
    if name in _PAIRS and isinstance(other, Tensor):
        return elements(func, input, other)
    if keepdim is not None:
        options["keepdim"] = keepdim
    if dim is None or (isinstance(dim, (list, tuple)) and not len(dim)):
        # What is in the gaps does not count.
        values = (input if input._lengths is None else input.contiguous()).values()
        options.pop("keepdim", None)
        found = func(values, **options)
        return found.reshape((1,) * input.dim()) if keepdim else found
    return _over(func, name, input, dim, options)
