"""Views, selections and joins of nested tensors of the strided layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._handlers import row_handles, unsupported
from tesserack.nested._shape import _sizes
from tesserack.nested._strided import StridedNestedTensor, from_rows, viewed, wrap_rows
from tesserack.nested._strided_dispatch import is_rows, joined, on_buffers, whole
from tesserack.nested._tensor import _checked


def inside(op: str, input: StridedNestedTensor, dim: int, extra: int = 0) -> int:
    """The dimension of a row. ``RuntimeError`` for the batch's."""
    found = _checked(op, dim, input.dim() + extra)
    if found == 0:
        raise RuntimeError(f"{op}: Nested tensor dimension 0 is the batch's, expected another; try unbind()")
    return found - 1


@row_handles("unbind")
def _unbind(func: Any, input: StridedNestedTensor, dim: int = 0) -> Any:
    if _checked("unbind", dim, input.dim()) != 0:
        raise RuntimeError(f"unbind: NestedTensor can only be unbound along dimension 0 got dimension {dim} instead.")
    return tuple(input.rows())


@row_handles("transpose", "swapaxes", "swapdims")
def _transpose(func: Any, input: StridedNestedTensor, dim0: int, dim1: int) -> Any:
    a, b = (inside("transpose", input, d) for d in (dim0, dim1))
    return viewed(input, lambda row: row.transpose(a, b))


@row_handles("permute")
def _permute(func: Any, input: StridedNestedTensor, *dims: Any) -> Any:
    order = [_checked("permute", d, input.dim()) for d in _sizes(dims)]
    if sorted(order) != list(range(input.dim())) or order[0] != 0:
        raise RuntimeError(f"permute: expected the {input.dim()} dims of the nested tensor, 0 first, got {order}")
    return viewed(input, lambda row: row.permute([d - 1 for d in order[1:]]))


@row_handles("unsqueeze")
def _unsqueeze(func: Any, input: StridedNestedTensor, dim: int) -> Any:
    at = inside("unsqueeze", input, dim, 1)
    return viewed(input, lambda row: row.unsqueeze(at))


@row_handles("squeeze")
def _squeeze(func: Any, input: StridedNestedTensor, dim: Any = None) -> Any:
    if not isinstance(dim, int):
        raise RuntimeError(f"squeeze: For nested tensors, squeeze without the dim argument is not supported, got {dim}")
    at = inside("squeeze", input, dim)
    if any(place.size[at] != 1 for place in input._places):
        return input
    return viewed(input, lambda row: row.squeeze(at))


@row_handles("select")
def _select(func: Any, input: StridedNestedTensor, dim: int, index: int) -> Any:
    if _checked("select", dim, input.dim()) == 0:
        if not -len(input) <= index < len(input):
            raise IndexError(f"select: index {index} is out of bounds for dimension 0 with size {len(input)}")
        return input.rows()[index]
    at = inside("select", input, dim)
    return viewed(input, lambda row: row.select(at, index))


def _some(input: StridedNestedTensor, key: slice) -> Any:
    return wrap_rows(input.values(), input._places[key], input._row_dims)


@row_handles("narrow")
def _narrow(func: Any, input: StridedNestedTensor, dim: int, start: int, length: int) -> Any:
    if _checked("narrow", dim, input.dim()) != 0:
        at = inside("narrow", input, dim)
        return viewed(input, lambda row: row.narrow(at, start, length))
    if start < 0 or length < 0 or start + length > len(input):
        raise RuntimeError(f"narrow: expected start + length within the {len(input)} rows, got {start} and {length}")
    return _some(input, slice(start, start + length))


@row_handles("__getitem__")
def _getitem(func: Any, input: StridedNestedTensor, key: Any) -> Any:
    keys = list(key) if isinstance(key, tuple) else [key]
    if keys and keys[0] is Ellipsis:
        missing = input.dim() - sum(k is not None and k is not Ellipsis for k in keys)
        keys[:1] = [slice(None)] * missing
    if keys[0] is None or not isinstance(keys[0], (int, slice)) or isinstance(keys[0], bool):
        raise unsupported("__getitem__", f"a first index of {type(keys[0]).__name__}")
    if isinstance(keys[0], int):
        row = _select(func, input, 0, keys[0])
        return row[tuple(keys[1:])] if len(keys) > 1 else row
    kept = input if keys[0] == slice(None) else _some(input, keys[0])
    rest = tuple(keys[1:])
    if any(not (k is None or k is Ellipsis or isinstance(k, (int, slice))) for k in rest):
        raise unsupported("__getitem__", "an index of tensors")
    return viewed(kept, lambda row: row[rest]) if rest else kept


def _row_size(op: str, place: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The sizes for one row: -1 is the size that the dimension has, or inferred where there was none."""
    return [place[d] if n == -1 and d < len(place) else n for d, n in enumerate(wanted)]


@row_handles("view", "reshape")
def _view(func: Any, input: StridedNestedTensor, *shape: Any, **kwargs: Any) -> Any:
    name = func.__name__
    size = _sizes(shape) if shape else list(kwargs["shape" if "shape" in kwargs else "size"])
    if not size or not isinstance(size[0], int):
        raise unsupported(name, f"expected sizes, got {size}")
    if size[0] != len(input):
        raise RuntimeError(f"{name}: For now nested {name} cannot change or infer the implicit batch dimension: "
                           f"expected {len(input)} first, got {size}")  # fmt: skip
    if len(size) != input.dim() and sum(n == -1 for n in size) > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred or kept by -1, got {size}; try unflatten()")
    if name == "view" or input.is_contiguous():
        return viewed(input, lambda row: row.view(_row_size(name, row.shape, size[1:])))
    return from_rows([row.reshape(_row_size(name, row.shape, size[1:])) for row in input.rows()])


@row_handles("flatten")
def _flatten(func: Any, input: StridedNestedTensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    start, end = (inside("flatten", input, d) for d in (start_dim, end_dim))
    return from_rows([row.flatten(start, end) for row in input.rows()])


@row_handles("unflatten")
def _unflatten(func: Any, input: StridedNestedTensor, dim: int, sizes: Sequence[int]) -> Any:
    at = inside("unflatten", input, dim)
    return viewed(input, lambda row: row.unflatten(at, sizes))


@row_handles("chunk", "split", "split_with_sizes", "tensor_split")
def _split(func: Any, input: StridedNestedTensor, parts: Any, dim: int = 0) -> Any:
    if func.__name__ == "chunk":
        input.size(dim)  # rows that differ in it would fall into other numbers of parts
    at = inside(func.__name__, input, dim)
    cuts = [len(func(row, parts, at)) for row in input.rows()]
    if len(set(cuts)) > 1:
        raise RuntimeError(f"{func.__name__}: expected rows that fall into as many parts, got {cuts}")

    def part(k: int) -> StridedNestedTensor:
        return viewed(input, lambda row: func(row, parts, at)[k])

    return tuple(part(k) for k in range(cuts[0] if cuts else 0))


@row_handles("cat", "concat", "concatenate")
def _cat(func: Any, tensors: Any, dim: int = 0) -> Any:
    if not all(is_rows(t) for t in tensors):
        raise RuntimeError("cat: expected nested tensors only; try as_nested_tensor() of the dense ones")
    if _checked("cat", dim, tensors[0].dim()) == 0:
        return from_rows([row for t in tensors for row in t.rows()])
    at = inside("cat", tensors[0], dim)
    return joined([ts.cat(rows, at) for rows in zip(*(t.rows() for t in tensors), strict=True)])


@row_handles("stack")
def _stack(func: Any, tensors: Any, dim: int = 0) -> Any:
    if not all(is_rows(t) for t in tensors):
        raise RuntimeError("stack: expected nested tensors only; try as_nested_tensor() of the dense ones")
    at = inside("stack", tensors[0], dim, 1)
    return joined([ts.stack(rows, at) for rows in zip(*(t.rows() for t in tensors), strict=True)])


@row_handles("sum", "mean", "prod", "any", "all", "amax", "amin", "argmax", "argmin", "max", "min", "cumsum", "cumprod")
def _reduce(func: Any, input: StridedNestedTensor, dim: Any = None, *args: Any, **options: Any) -> Any:
    name = func.__name__
    if isinstance(dim, Tensor):
        return on_buffers(func, (input, dim), options)
    if dim is None:
        return func(whole(input).values(), **options)
    many = isinstance(dim, (list, tuple))
    at = [inside(name, input, d) for d in (dim if many else [dim])]
    return joined([func(row, at if many else at[0], *args, **options) for row in input.rows()])
