"""Which function does what with nested tensors of the strided layout: row by row, or on the whole buffer."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import DisableTorchFunctionSubclass
from tesserack.nested._handlers import row_handles, unsupported
from tesserack.nested._strided import StridedNestedTensor, from_rows, pad, wrap_like_rows

__all__ = ["each_row", "is_rows", "whole"]


def is_rows(value: Any) -> bool:
    """Whether it is a nested tensor of the strided layout."""
    return isinstance(value, StridedNestedTensor)


def whole(nt: StridedNestedTensor) -> StridedNestedTensor:
    """A contiguous one."""
    return nt if nt.is_contiguous() else from_rows(nt.rows())


def _batch(name: str, values: list[Any]) -> StridedNestedTensor:
    """The first nested tensor. ``RuntimeError`` unless all have as many rows."""
    nested = [v for v in values if is_rows(v)]
    counts = [len(nt) for nt in nested]
    if len(set(counts)) > 1:
        raise RuntimeError(f"{name}: expected nested tensors of as many rows, got {counts}")
    return nested[0]  # type: ignore[no-any-return]


def each_row(func: Any, args: Any, kwargs: Any) -> Any:
    """The nested tensor of what the function makes of each row; a dense tensor of as many dims gives its k-th."""
    name = func.__name__
    nt = _batch(name, [*args, *kwargs.values()])
    if not len(nt):
        return nt
    split = {id(v): v.rows() for v in (*args, *kwargs.values()) if is_rows(v)}

    def at(value: Any, k: int) -> Any:
        if id(value) in split:
            return split[id(value)][k]
        if not isinstance(value, Tensor) or value.dim() < nt.dim():
            return value
        if value.dim() > nt.dim() or value.shape[0] not in (1, len(nt)):
            raise RuntimeError(f"{name}: expected a dense tensor of {len(nt)} rows or of fewer than {nt.dim()} dims, "
                               f"got shape {tuple(value.shape)}")  # fmt: skip
        return value[0 if value.shape[0] == 1 else k]

    made = [func(*[at(a, k) for a in args], **{n: at(v, k) for n, v in kwargs.items()}) for k in range(len(nt))]
    return joined(made)


def joined(made: list[Any]) -> Any:
    """Rows, or tuples of rows, as nested tensors."""
    if isinstance(made[0], Tensor):
        return from_rows(made)
    parts = [from_rows([one[n] for one in made]) for n in range(len(made[0]))]
    return type(made[0])(parts) if hasattr(made[0], "_fields") else tuple(parts)


def on_buffers(func: Any, args: Any, kwargs: Any) -> Any:
    """A function of elements in the same place, at once where the rows are alike and packed."""
    every = [*args, *kwargs.values()]
    nt = _batch(func.__name__, every)
    nested = [v for v in every if is_rows(v)]
    simple = all(v.dim() == 0 for v in every if isinstance(v, Tensor) and not is_rows(v))
    if not simple or any(v._places != nt._places or not v.is_contiguous() for v in nested):
        return each_row(func, args, kwargs)
    change = {n: v.values() if is_rows(v) else v for n, v in kwargs.items()}
    made = func(*[a.values() if is_rows(a) else a for a in args], **change)
    return wrap_like_rows(made, nt)


def in_place(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    """Write to the rows of a nested tensor, which is returned."""
    if not is_rows(input):
        raise RuntimeError(f"{func.__name__}: expected a nested tensor to write to, got a dense one; try the function "
                           "that makes a new tensor")  # fmt: skip
    others = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
    if input.is_contiguous() and all(
        v._places == input._places and v.is_contiguous() if isinstance(v, StridedNestedTensor) else v.dim() == 0
        for v in others
    ):
        change = {n: v.values() if is_rows(v) else v for n, v in kwargs.items()}
        with DisableTorchFunctionSubclass():
            func(input, *[a.values() if is_rows(a) else a for a in args], **change)
        return input
    if input.requires_grad:
        raise unsupported(func.__name__, "rows with gradients are written to at once, not one by one")

    def write(row: Tensor, *rest: Any, **options: Any) -> Tensor:
        return func(row, *rest, **options)  # type: ignore[no-any-return]

    write.__name__ = func.__name__
    each_row(write, (input, *args), kwargs)
    return input


@row_handles("to_padded_tensor")
def _padded(func: Any, input: StridedNestedTensor, padding: float, output_size: Any = None) -> Tensor:
    return pad(input, padding, output_size)


@row_handles("is_same_size")
def _same_size(func: Any, input: Any, other: Any) -> bool:
    return is_rows(input) and bool(input.is_same_size(other))


@row_handles("equal", "allclose")
def _equal(func: Any, input: Any, other: Any, *args: Any, **kwargs: Any) -> bool:
    if not _same_size(func, input, other):
        return False
    return bool(func(whole(input).values(), whole(other).values(), *args, **kwargs))


@row_handles("clone", "contiguous")
def _copied(func: Any, input: StridedNestedTensor, memory_format: Any = None) -> Any:
    if func.__name__ == "contiguous":
        return whole(input)
    if memory_format not in (None, ts.preserve_format, ts.contiguous_format):
        raise RuntimeError(
            f"clone: expected preserve_format or contiguous_format for a nested tensor, got {memory_format}"
        )
    keeps = memory_format in (None, ts.preserve_format) or input.is_contiguous()
    return wrap_like_rows(input.values().clone(), input) if keeps else from_rows(input.rows())
