"""Copies, conversions, filled tensors of the same raggedness, gradients."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack.nested._construct import from_list
from tesserack.nested._dispatch import plain
from tesserack.nested._handlers import handles, unsupported
from tesserack.nested._size import ragged_size
from tesserack.nested._tensor import NestedTensor, wrap, wrap_like
from tesserack.ops.registry import said

_CONVERSIONS = ("to", "type", "type_as", "cpu", "pin_memory", *sorted(said("cast")))
_LIKE = ("empty_like", "full_like", "ones_like", "rand_like", "randint_like", "randn_like", "zeros_like")
_FILLS = ("fill_", "zero_", "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "detach_")


def _moved(values: Tensor, like: NestedTensor) -> NestedTensor:
    """Values that may be on another device, whose offsets then come along, for the same ragged size."""
    parts = [None if p is None else p.to(values.device) for p in (like._offsets, like._lengths)]
    new, old = parts[0 if parts[1] is None else 1], like._offsets if like._lengths is None else like._lengths
    if new is not None and new is not old:
        ragged_size(new, same_as=old)
    offsets: Any = parts[0]
    return wrap(values, offsets, parts[1], like._ragged_idx, like._metadata_cache)


@handles(*_CONVERSIONS)
def _convert(func: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    values = plain(input)
    changed = func(values, *[plain(a) for a in args], **kwargs)
    if not isinstance(changed, Tensor) or not isinstance(input, NestedTensor):
        return changed
    return input if changed is values else _moved(changed, input)


@handles(*_LIKE)
def _like(func: Any, input: NestedTensor, *args: Any, layout: Any = None, **kwargs: Any) -> Any:
    if layout not in (None, ts.jagged, ts.strided):
        raise unsupported(func.__name__, f"layout {layout}")
    made = func(input.values().detach(), *args, **kwargs)
    return _moved(made.detach(), input).requires_grad_(made.requires_grad)


@handles("clone")
def _clone(func: Any, input: NestedTensor, memory_format: Any = ts.preserve_format) -> Any:
    if input._lengths is not None and memory_format is ts.contiguous_format:
        return from_list(list(input.unbind()), ragged_idx=input._ragged_idx)
    return wrap_like(input.values().clone(memory_format=memory_format), input)


@handles("contiguous")
def _contiguous(func: Any, input: NestedTensor, memory_format: Any = ts.contiguous_format) -> Any:
    if input.is_contiguous(memory_format):
        return input
    return input.clone(memory_format=memory_format)


@handles("detach")
def _detach(func: Any, input: NestedTensor) -> Any:
    return wrap_like(input.values().detach(), input)


@handles(*_FILLS)
def _fill(func: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    with DisableTorchFunctionSubclass():
        func(input, *args, **kwargs)
    return input


@handles("copy_")
def _copy(func: Any, input: NestedTensor, src: Any, non_blocking: bool = False) -> Any:
    if not isinstance(input, NestedTensor) or not isinstance(src, NestedTensor):
        raise RuntimeError("copy_(): expected two nested tensors; try copying row by row, of unbind()")
    if input._size != src._size:
        ours, theirs = ([tuple(row.shape) for row in nt.unbind()] for nt in (input, src))
        if ours != theirs or input._lengths is not None or src._lengths is not None:
            raise RuntimeError(f"copy_(): expected compatible input and src shapes, but got: {input._size} and "
                               f"{src._size}")  # fmt: skip
    with DisableTorchFunctionSubclass():
        func(input, src.values(), non_blocking)
    return input


@handles("is_same_size")
def _is_same_size(func: Any, input: Tensor, other: Tensor) -> bool:
    return tuple(input.shape) == tuple(other.shape)


@handles("equal", "allclose")
def _equal(func: Any, input: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
    """PyTorch has these for dense tensors only."""
    raise unsupported(func.__name__, "compare the values() of both")


@handles("bernoulli")
def _bernoulli(func: Any, input: NestedTensor, *args: Any, **kwargs: Any) -> Any:
    return wrap_like(func(input.values(), *args, **kwargs), input)


@handles("new_empty", "new_zeros", "new_ones")
def _new(func: Any, input: NestedTensor, *size: Any, **kwargs: Any) -> Any:
    given = kwargs.get("size", size[0] if len(size) == 1 and isinstance(size[0], (list, tuple)) else size)
    if len(given):
        raise RuntimeError(f"{func.__name__}() not supported for NJT with shape != (), got {tuple(given)}; try "
                           f"{func.__name__.removeprefix('new_')}_like()")  # fmt: skip
    return func(input.values(), *size, **kwargs)
