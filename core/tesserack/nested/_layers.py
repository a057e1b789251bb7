"""Layers: products with dense weights, normalization, softmax, dropout, embeddings."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._dispatch import is_dense
from tesserack.nested._handlers import handles, unsupported
from tesserack.nested._padding import from_padded, row_mask
from tesserack.nested._pointwise import matches, pads
from tesserack.nested._tensor import NestedTensor, _checked, wrap_like


def _rows(name: str, input: Any) -> NestedTensor:
    """The nested tensor, ragged right after the batch and without gaps, that some functions ask for."""
    if not isinstance(input, NestedTensor) or input._lengths is not None or input._ragged_idx != 1:
        raise ValueError(
            f"NestedTensor {name}(): expected input to be a contiguous jagged layout NestedTensor, got one of shape "
            f"{tuple(input.shape)}; try .contiguous(), or transpose() so that dim 1 is ragged"
        )
    return input


@handles("linear")
def _linear(func: Any, input: NestedTensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    rows = _rows("linear", input)
    if not is_dense(weight) or not (bias is None or is_dense(bias)):
        raise ValueError("NestedTensor linear(): expected weight and bias as dense tensors; try matmul()")
    if input.dim() < 3:
        raise RuntimeError(f"linear(): expected a dimension after the ragged one, got shape {input._size}")
    return wrap_like(func(rows.values(), weight, bias), rows)


def _padded_product(nt: NestedTensor, product: Any) -> NestedTensor:
    return from_padded(product(pads(nt, 0)), nt)


def _nested_dense(func: Any, a: NestedTensor, b: Tensor) -> Any:
    if a._ragged_idx < a.dim() - 1:
        if a.dim() >= 3 and a.dim() == b.dim():
            return _padded_product(a, lambda dense: func(dense, b))
        if b.dim() == 2 and a.dim() > 2:
            return wrap_like(func(a.values(), b), a)
    return None


def _dense_nested(func: Any, a: Tensor, b: NestedTensor) -> Any:
    if b._ragged_idx >= 2:
        if b.dim() >= 3 and b.dim() == a.dim():
            return _padded_product(b, lambda dense: func(a, dense))
        if a.dim() == 2 and b.dim() > 2:
            return wrap_like(func(a, b.values()), b)
    return None


def _nested_nested(func: Any, a: NestedTensor, b: NestedTensor) -> Any:
    if a.dim() > 3 and b.dim() > 3 and a._ragged_idx == b._ragged_idx < a.dim() - 2 and matches(a, b._size):
        return wrap_like(func(a.values(), b.values()), a)
    same = a._size[a._ragged_idx] == b._size[b._ragged_idx]
    if a.dim() == b.dim() == 3 and (a._ragged_idx, b._ragged_idx) == (2, 1) and same:
        return ts.stack([func(x, y) for x, y in zip(a.unbind(), b.unbind(), strict=True)])
    return None


@handles("matmul", "__matmul__", "__rmatmul__", "bmm")
def _matmul(func: Any, input: Any, other: Any = None, mat2: Any = None) -> Any:
    a, b = input, mat2 if other is None else other
    if func.__name__ == "__rmatmul__":
        a, b = b, a
    if func.__name__ == "bmm" and (a.dim() != 3 or b.dim() != 3):
        raise ValueError(f"bmm(): input and mat2 must be 3D, got {a.dim()}D and {b.dim()}D")
    if is_dense(b):
        found = _nested_dense(ts.matmul, a, b)
    elif is_dense(a):
        found = _dense_nested(ts.matmul, a, b)
    else:
        found = _nested_nested(ts.matmul, a, b)
    if found is None:
        raise RuntimeError(
            f"matmul(): not supported between inputs of shapes {tuple(a.shape)} and {tuple(b.shape)}; try "
            "to_padded_tensor()"
        )
    return found


# --- normalization -------------------------------------------------------------------------------------------------


def _normalized(name: str, input: NestedTensor, shape: Any, kind: type[Exception]) -> None:
    """Refuses the batch and the ragged dimension among those that are normalized."""
    count = 1 if isinstance(shape, int) else len(shape)
    if count > input.dim() - input._ragged_idx - 1:
        raise kind(f"{name}(): Normalization over the ragged dim not supported for nested tensors, got "
                         f"normalized_shape {shape} for {input._size}")  # fmt: skip


@handles("layer_norm")
def _layer_norm(func: Any, input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    if input.dim() <= 2:
        raise RuntimeError("layer_norm(): not supported for NestedTensor objects with 2 or fewer dimensions; try "
                           "unsqueeze()")  # fmt: skip
    _normalized("layer_norm", input, normalized_shape, RuntimeError)
    return wrap_like(func(input.values(), normalized_shape, *args, **kwargs), input)


@handles("rms_norm")
def _rms_norm(func: Any, input: NestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    _normalized("rms_norm", input, normalized_shape, ValueError)
    return wrap_like(func(input.values(), normalized_shape, *args, **kwargs), input)


# --- softmax -------------------------------------------------------------------------------------------------------


@handles("softmax", "log_softmax", "softmin")
def _softmax(func: Any, input: NestedTensor, dim: Any = None, *args: Any, dtype: Any = None, **kwargs: Any) -> Any:
    name = func.__name__
    dtype = next((a for a in args if isinstance(a, ts.dtype)), dtype)
    if not isinstance(dim, int):
        raise RuntimeError(f"{name}(): not supported for dimensions of type '{type(dim).__name__}' for NestedTensor")
    at = _checked(name, dim, input.dim())
    if at == 0:
        raise RuntimeError(f"{name}(): not supported when reducing across the batch dimension for NestedTensor")
    if at != input._ragged_idx:
        return wrap_like(func(input.values(), at - 1, dtype=dtype), input)
    if name != "softmax" or input._ragged_idx > 1:
        raise RuntimeError(
            f"{name}(): not supported when reducing along the ragged dimension for NestedTensor, but softmax where it "
            "is dim 1; try to_padded_tensor(float('-inf'))"
        )
    if input._lengths is not None:
        raise RuntimeError("softmax(): not supported where lengths is not None if reducing across the ragged dimension "
                           "for NestedTensor; try .contiguous()")  # fmt: skip
    dense = pads(input, float("-inf"))
    if not dense.shape[1]:
        return wrap_like(input.values().to(dtype=dtype), input)
    empty = ~row_mask(input, dense.shape[1]).any(1).reshape(-1, *(1,) * (dense.dim() - 1))
    return from_padded(func(dense.masked_fill(empty, 0.0), 1, dtype=dtype), input)


# --- the rest ------------------------------------------------------------------------------------------------------


@handles("dropout", "alpha_dropout", "feature_alpha_dropout")
def _dropout(func: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    if func.__name__ != "dropout":
        raise unsupported(func.__name__)
    rows = _rows("dropout", input)
    return wrap_like(func(rows.values(), *args, **kwargs), rows)


@handles("one_hot")
def _one_hot(func: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    return wrap_like(func(input.values(), *args, **kwargs), input)


@handles("embedding")
def _embedding(func: Any, input: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
    """Of (indices, weight), or of (weight, indices) as the function below ``nn.functional`` has it."""
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    indices = _rows("embedding", input if isinstance(input, NestedTensor) else weight)
    first, second = (indices.values(), weight) if indices is input else (input, indices.values())
    return wrap_like(func(first, second, *args, **kwargs), indices)
