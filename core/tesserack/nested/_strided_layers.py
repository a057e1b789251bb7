"""Functions of elements and layers for nested tensors of the strided layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._handlers import row_handles, unsupported
from tesserack.nested._misc import _CONVERSIONS, _FILLS, _LIKE
from tesserack.nested._pointwise import ELEMENTWISE, IN_PLACE
from tesserack.nested._strided import StridedNestedTensor, from_rows, packed, wrap_like_rows, wrap_rows
from tesserack.nested._strided_dispatch import each_row, in_place, is_rows, joined, on_buffers, whole
from tesserack.nested._strided_shape import inside


@row_handles(*ELEMENTWISE, "where", "one_hot")
def _elements(func: Any, *args: Any, **kwargs: Any) -> Any:
    return on_buffers(func, args, kwargs)


@row_handles(*IN_PLACE, *_FILLS)
def _written(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    return in_place(func, input, *args, **kwargs)


@row_handles("copy_")
def _copy(func: Any, input: Any, src: Any, non_blocking: bool = False) -> Any:
    if not is_rows(input) or not is_rows(src) or not input.is_same_size(src):
        raise RuntimeError("copy_: expected two nested tensors with rows of the same sizes; try copying row by row")
    return in_place(func, input, src)


@row_handles(*_CONVERSIONS)
def _convert(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    values = input.values() if is_rows(input) else input
    changed = func(values, *[a.values() if is_rows(a) else a for a in args], **kwargs)
    if not isinstance(changed, Tensor) or not is_rows(input):
        return changed
    return input if changed is values else wrap_like_rows(changed, input)


@row_handles(*_LIKE)
def _like(func: Any, input: StridedNestedTensor, *args: Any, layout: Any = None, **kwargs: Any) -> Any:
    if layout not in (None, ts.strided):
        raise unsupported(func.__name__, f"layout {layout}")
    packed_one = whole(wrap_like_rows(input._plain(), input))
    made = func(packed_one.values(), *args, **kwargs)
    return wrap_like_rows(made.detach(), packed_one).requires_grad_(made.requires_grad)


@row_handles("detach")
def _detach(func: Any, input: StridedNestedTensor) -> Any:
    return wrap_like_rows(input.values().detach(), input)


@row_handles("bernoulli", "dropout", "alpha_dropout")
def _random(func: Any, input: StridedNestedTensor, *args: Any, **kwargs: Any) -> Any:
    rows = whole(input)
    return wrap_like_rows(func(rows.values(), *args, **kwargs), rows)


@row_handles("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor")
def _new(func: Any, input: StridedNestedTensor, *args: Any, **kwargs: Any) -> Any:
    return func(input._plain(), *args, **kwargs)


# --- what looks at the last dimension --------------------------------------------------------------------------------


def _by_last(name: str, input: StridedNestedTensor, change: Callable[[Tensor], Tensor]) -> Any:
    """A function of (..., width) on all rows at once; ``RuntimeError`` if their widths differ."""
    if not len(input):
        return input
    if not input._row_dims:
        raise RuntimeError(f"{name}: expected rows of one dim at least, got scalars")
    widths = {place.size[-1] for place in input._places}
    if len(widths) > 1:
        raise RuntimeError(f"{name}: Expected all tensors in nested tensor to have the same trailing dimension, got "
                           f"{sorted(widths)}")  # fmt: skip
    rows = whole(input)
    width = widths.pop()
    count = sum(ts.Size(place.size[:-1]).numel() for place in rows._places)
    made = change(rows.values().view(count, width))
    sizes = [(*place.size[:-1], made.shape[-1]) for place in rows._places]
    return wrap_rows(made.reshape(-1), packed(sizes), input._row_dims)


@row_handles("linear")
def _linear(func: Any, input: Any, weight: Tensor, bias: Tensor | None = None) -> Any:
    if not is_rows(input) or is_rows(weight) or is_rows(bias):
        raise RuntimeError("linear: expected weight and bias as dense tensors; try matmul()")
    return _by_last("linear", input, lambda dense: func(dense, weight, bias))


@row_handles("layer_norm", "rms_norm")
def _normalized(func: Any, input: StridedNestedTensor, normalized_shape: Any, *args: Any, **kwargs: Any) -> Any:
    shape = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    if len(shape) == 1:
        return _by_last(func.__name__, input, lambda dense: func(dense, shape, *args, **kwargs))
    return joined([func(row, shape, *args, **kwargs) for row in input.rows()])


@row_handles("softmax", "log_softmax", "softmin")
def _softmax(func: Any, input: StridedNestedTensor, dim: Any = None, *args: Any, **kwargs: Any) -> Any:
    if not isinstance(dim, int):
        raise RuntimeError(f"{func.__name__}: expected a dim for a nested tensor, got {dim}")
    if not len(input):
        return input
    at = inside(func.__name__, input, dim)
    return joined([func(row, at, *args, **kwargs) for row in input.rows()])


@row_handles("embedding")
def _embedding(func: Any, input: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
    """Of (indices, weight), or of (weight, indices) as the function below ``nn.functional`` has it."""
    kwargs = {key: value for key, value in kwargs.items() if value is not None}
    indices = input if is_rows(input) else weight
    rows = indices.rows()
    return from_rows([func(*((row, weight) if input is indices else (input, row)), *args, **kwargs) for row in rows])


@row_handles("matmul", "__matmul__", "__rmatmul__", "bmm")
def _matmul(func: Any, input: Any, other: Any = None, mat2: Any = None) -> Any:
    a, b = input, mat2 if other is None else other
    if func.__name__ == "__rmatmul__":
        a, b = b, a
    ranks = [t.dim() for t in (a, b) if is_rows(t)]
    if min(ranks) < 3 or (func.__name__ == "bmm" and max(ranks) > 3):
        raise RuntimeError(f"{func.__name__}: expected nested tensors of three dims or, in matmul, more: "
                           f"batches of matrices, got {ranks}; try unsqueeze()")  # fmt: skip
    return each_row(ts.matmul, (a, b), {})


@row_handles("scaled_dot_product_attention")
def _attention(func: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, *args: Any, **kwargs: Any) -> Any:
    if not (is_rows(query) and is_rows(key) and is_rows(value)):
        raise RuntimeError("scaled_dot_product_attention: expected query, key, and value to be nested tensors alike; "
                           "try as_nested_tensor()")  # fmt: skip
    if attn_mask is not None:
        raise RuntimeError("scaled_dot_product_attention: expected no attn_mask with nested tensors; try "
                           "to_padded_tensor()")  # fmt: skip
    return each_row(func, (query, key, value, None, *args), kwargs)


@row_handles("conv1d", "conv2d", "conv3d", "max_pool1d", "max_pool2d", "avg_pool1d", "avg_pool2d", "pad")
@row_handles("interpolate", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool3d")
def _images(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Images of different sizes, each for itself."""
    if not is_rows(input) or any(is_rows(a) for a in (*args, *kwargs.values())):
        raise unsupported(func.__name__, "expected the input alone to be nested")
    if not len(input):
        return input
    return joined([func(row.unsqueeze(0), *args, **kwargs).squeeze(0) for row in input.rows()])
