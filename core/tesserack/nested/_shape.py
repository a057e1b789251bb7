"""Views, joins and selections that leave the batch and ragged dimensions as they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._handlers import handles, unsupported
from tesserack.nested._pointwise import aligned, matches
from tesserack.nested._reduce import inner_dim
from tesserack.nested._size import NestedInt
from tesserack.nested._tensor import NestedTensor, _checked, wrap, wrap_like


def _within(op: str, input: NestedTensor, dim: int, extra: int = 0, ragged: bool = False) -> int:
    """The dimension of the values; ``RuntimeError`` for the batch's and, unless allowed, the ragged one."""
    found = _checked(op, dim, input.dim() + extra)
    if found == 0:
        raise RuntimeError(f"{op}(): not supported for NestedTensor on dim=0; try unbind()")
    if found == input._ragged_idx and not ragged:
        raise RuntimeError(f"{op}(): not supported for NestedTensor on ragged dim; try to_padded_tensor()")
    return found - 1


def _sizes(given: tuple[Any, ...]) -> list[Any]:
    return list(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else list(given)


@handles("unbind")
def _unbind(func: Any, input: NestedTensor, dim: int = 0) -> Any:
    if dim != 0:
        raise RuntimeError(f"unbind(): only supported for NestedTensor on dim=0, got {dim}")
    values, r = input.values(), input._ragged_idx - 1
    if input._lengths is None and not int(input._offsets[0]):
        counts = input._offsets.diff().tolist()
        rest = values.shape[r] - sum(counts)
        parts = values.split([*counts, rest] if rest else counts, dim=r)
        return tuple(parts[: len(counts)])
    counts, starts = input._row_lengths().tolist(), input._offsets.tolist()
    return [values.narrow(r, start, count) for start, count in zip(starts, counts, strict=False)]


@handles("transpose", "swapaxes", "swapdims")
def _transpose(func: Any, input: NestedTensor, dim0: int, dim1: int) -> Any:
    a, b = (_checked("transpose", d, input.dim()) for d in (dim0, dim1))
    ragged = input._ragged_idx
    if ragged in (a, b):
        if 0 in (a, b):
            raise ValueError("Transpose is not supported on the batch dimension for jagged NT; try unbind()")
        return wrap_like(input.values().transpose(a - 1, b - 1), input, b if a == ragged else a)
    return wrap_like(input.values().transpose(_within("transpose", input, a), _within("transpose", input, b)), input)


@handles("permute", "movedim", "moveaxis")
def _permute(func: Any, input: NestedTensor, *dims: Any) -> Any:
    if func.__name__ != "permute":
        raise unsupported(func.__name__, "permute() is")
    order, ndim = _sizes(dims), input.dim()
    if len(order) != ndim:
        raise ValueError(f"permute(): number of dimensions in the tensor input ({ndim}) does not match the length of "
                         f"the desired ordering of dimensions ({len(order)}).")  # fmt: skip
    order = [_checked("permute", d, ndim) for d in order]
    if len(set(order)) != ndim:
        raise ValueError(f"permute(): duplicate dims are not allowed, got {order}")
    if input._lengths is not None:
        raise ValueError("permute(): not supported on jagged layout nested tensor with holes; try .contiguous()")
    if order[0] != 0:
        raise ValueError("Permute is not supported on the batch dimension for jagged NT; try unbind()")
    inner = [inner_dim(d, input._ragged_idx) for d in order[1:]]
    return wrap_like(input.values().permute(inner), input, order.index(input._ragged_idx))


@handles("unsqueeze")
def _unsqueeze(func: Any, input: NestedTensor, dim: int) -> Any:
    inner = _within("unsqueeze", input, dim, 1, ragged=True)
    moved = inner <= input._ragged_idx - 1
    return wrap_like(input.values().unsqueeze(inner), input, input._ragged_idx + moved)


@handles("squeeze")
def _squeeze(func: Any, input: NestedTensor, dim: Any = None) -> Any:
    if not isinstance(dim, int):
        raise unsupported("squeeze", f"expected one dim, got {dim}")
    inner = _within("squeeze", input, dim)
    changed = input.values().squeeze(inner)
    gone = changed.dim() < input._plain().dim() and inner < input._ragged_idx - 1
    return wrap_like(changed, input, input._ragged_idx - gone)


@handles("split", "split_with_sizes")
def _split(func: Any, input: NestedTensor, split_size: Any = None, dim: int = 0, **kwargs: Any) -> Any:
    sizes = kwargs.pop("split_sizes", kwargs.pop("split_size_or_sections", split_size))
    inner = _within(func.__name__, input, dim)
    return tuple(wrap_like(part, input) for part in input.values().split(sizes, inner))


@handles("chunk")
def _chunk(func: Any, input: NestedTensor, chunks: int, dim: int = 0) -> Any:
    if _checked("chunk", dim, input.dim()) == 0:
        return _chunk_batch(input, chunks)
    return tuple(wrap_like(part, input) for part in input.values().chunk(chunks, _within("chunk", input, dim)))


def _chunk_batch(input: NestedTensor, chunks: int) -> Any:
    if input._lengths is not None:
        raise unsupported("chunk", "the batch of rows with gaps")
    counts = [c.tolist() for c in input._offsets.diff().chunk(chunks)]
    parts = input.values().split([sum(c) for c in counts], input._ragged_idx - 1)
    offsets = [ts.tensor([sum(c[:k]) for k in range(len(c) + 1)], device=input.device) for c in counts]
    return tuple(wrap(part, at, None, input._ragged_idx) for part, at in zip(parts, offsets, strict=True))


@handles("narrow")
def _narrow(func: Any, input: NestedTensor, dim: int, start: int, length: int) -> Any:
    return wrap_like(input.values().narrow(_within("narrow", input, dim), start, length), input)


@handles("select")
def _select(func: Any, input: NestedTensor, dim: int, index: int) -> Any:
    if _checked("select", dim, input.dim()) == 0:
        rows = input.unbind()
        if not -len(rows) <= index < len(rows):
            raise IndexError(f"select(): index {index} out of range for the batch of size {len(rows)}")
        return rows[index]
    if input._lengths is not None:
        raise ValueError("select(): not yet supported on dim != 0 for non-contiguous nested tensor with holes; try "
                         ".contiguous()")  # fmt: skip
    inner = _within("select", input, dim)
    return wrap_like(input.values().select(inner, index), input, input._ragged_idx - (inner < input._ragged_idx - 1))


@handles("__getitem__")
def _getitem(func: Any, input: NestedTensor, key: Any) -> Any:
    keys = list(key) if isinstance(key, tuple) else [key]
    given = sum(k is not None and k is not Ellipsis for k in keys)
    if Ellipsis in [k if k is Ellipsis else None for k in keys]:
        at = next(n for n, k in enumerate(keys) if k is Ellipsis)
        keys[at : at + 1] = [slice(None)] * (input.dim() - given)
    found: Any = input
    dim = 0
    for k in keys:
        if k is None:
            found, dim = found.unsqueeze(dim), dim + 1
        elif isinstance(k, int) and not isinstance(k, bool):
            found = found.select(dim, k)
        elif isinstance(k, slice):
            if k != slice(None):
                found = _sliced(found, dim, k)
            dim += 1
        else:
            raise unsupported("__getitem__", f"an index of {type(k).__name__}")
    return found


def _sliced(input: Any, dim: int, key: slice) -> Any:
    if not isinstance(input, NestedTensor):
        return input[(*(slice(None),) * dim, key)]
    inner = _within("slice", input, dim)
    return wrap_like(input.values()[(*(slice(None),) * inner, key)], input)


@handles("view", "reshape", "view_as", "reshape_as")
def _view(func: Any, input: NestedTensor, *shape: Any, **kwargs: Any) -> Any:
    name = func.__name__
    if shape and isinstance(shape[0], ts.dtype):
        if shape[0].itemsize != input.dtype.itemsize:
            raise unsupported("view", "a dtype of another size")
        return wrap_like(input.values().view(shape[0]), input)
    if shape and isinstance(shape[0], Tensor):
        shape = (shape[0].shape,)
    size = _sizes(shape) if shape else list(kwargs["shape" if "shape" in kwargs else "size"])
    if input._ragged_idx != 1:
        if size == list(input._size):
            return wrap_like(input.values(), input)
        raise RuntimeError(
            "view(): does not support ragged_idx != 1 except when inp._size == size. inp._size is "
            f"({input._size}) and size is ({size}); try transpose() before it"
        )
    if len(size) < 3 or not matches(input, size):
        raise RuntimeError(f"view(): cannot view shape {input._size} as {size}; its first two dims stay")
    if any(isinstance(n, NestedInt) for n in size[2:]):
        raise RuntimeError(f"view(): expected one ragged dimension, got {size}")
    values = input.values()
    inner = [values.shape[0], *size[2:]]
    if -1 in inner and not values.numel():  # the rows have no elements to infer it by
        known = math.prod(n for n in inner[1:] if n != -1)
        inner[inner.index(-1)] = math.prod(values.shape[1:]) // max(known, 1)
    return wrap_like(values.view(inner) if name == "view" else values.reshape(inner), input)


@handles("flatten")
def _flatten(func: Any, input: NestedTensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = (_within("flatten", input, d) for d in (start_dim, end_dim))
    if start == end:
        return input
    ragged = input._ragged_idx - 1
    if start < ragged < end:
        raise RuntimeError("flatten(): not supported for NestedTensor on ragged dim; try to_padded_tensor()")
    return wrap_like(input.values().flatten(start, end), input, ragged + 1 - (end - start if end < ragged else 0))


@handles("unflatten")
def _unflatten(func: Any, input: NestedTensor, dim: int, sizes: Sequence[int]) -> Any:
    inner = _within("unflatten", input, dim)
    moved = len(sizes) - 1 if inner < input._ragged_idx - 1 else 0
    return wrap_like(input.values().unflatten(inner, sizes), input, input._ragged_idx + moved)


@handles("expand", "broadcast_to")
def _expand(func: Any, input: NestedTensor, *size: Any, **kwargs: Any) -> Any:
    given = _sizes(size) if size else list(kwargs["size"])
    if len(given) != input.dim() or not matches(input, given):
        raise RuntimeError(f"expand(): cannot expand shape {input._size} -> {given}")
    inner = [-1 if d == input._ragged_idx else given[d] for d in range(1, input.dim())]
    return wrap_like(input.values().expand(inner), input)


@handles("expand_as")
def _expand_as(func: Any, input: Tensor, other: NestedTensor) -> Any:
    if isinstance(input, NestedTensor):
        return input.expand(other.shape)
    return _spread_to(input, other)


def _spread_to(dense: Tensor, like: NestedTensor) -> NestedTensor:
    return wrap_like(aligned("expand_as", like, dense).expand(like._plain().shape), like)


def _joined(name: str, tensors: Any) -> tuple[NestedTensor, list[NestedTensor]]:
    first = next(t for t in tensors if isinstance(t, NestedTensor))
    every = [t if isinstance(t, NestedTensor) else _spread_to(t, first) for t in tensors]
    for t in every:
        if t._ragged_idx != first._ragged_idx or t._size[t._ragged_idx] != first._size[first._ragged_idx]:
            raise RuntimeError(f"{name}(): expected all nested tensors to have the same nested structure, got "
                               f"{first._size} and {t._size}; they must share their offsets")  # fmt: skip
    return first, every


@handles("cat", "concat", "concatenate")
def _cat(func: Any, tensors: Any, dim: int = 0) -> Any:
    first, every = _joined("cat", tensors)
    return wrap_like(ts.cat([t.values() for t in every], _within("cat", first, dim)), first)


@handles("stack")
def _stack(func: Any, tensors: Any, dim: int = 0) -> Any:
    first, every = _joined("stack", tensors)
    if any(t.dim() != first.dim() for t in every):
        raise RuntimeError("stack(): expected all nested tensors to have the same nested structure")
    inner = _within("stack", first, dim, 1, ragged=True)
    moved = inner <= first._ragged_idx - 1
    return wrap_like(ts.stack([t.values() for t in every], inner), first, first._ragged_idx + moved)
