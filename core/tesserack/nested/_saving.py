"""What files hold of nested tensors: their parts, which are checked as they come back."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._construct import nested_tensor_from_jagged
from tesserack.nested._strided import Place, StridedNestedTensor, wrap_rows
from tesserack.nested._tensor import NestedTensor

__all__ = ["jagged_parts", "rebuild_jagged", "rebuild_strided", "strided_parts"]


def strided_parts(nt: StridedNestedTensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The buffer, and the sizes, strides and offsets of the rows."""
    return (
        nt._plain().contiguous(),
        nt._nested_tensor_size(),
        nt._nested_tensor_strides(),
        nt._nested_tensor_storage_offsets(),
    )


def jagged_parts(nt: NestedTensor) -> dict[str, Any]:
    """What its class is called with."""
    parts: dict[str, Any] = {"values": nt._plain(), "offsets": nt._offsets, "lengths": nt._lengths}
    return {**parts, "_ragged_idx": nt._ragged_idx, "_metadata_cache": {}, "requires_grad": nt.requires_grad}


def _ints(part: Any, dims: int) -> Any:
    if not isinstance(part, Tensor) or part.dtype is not ts.int64 or part.dim() != dims or part.is_meta:
        raise ValueError(
            f"a nested tensor: expected {dims}-d tensors of int64 for the places of its rows, got {part!r}"
        )
    return part.tolist()


def rebuild_strided(buffer: Any, sizes: Any, strides: Any, offsets: Any) -> StridedNestedTensor:
    """The nested tensor of these parts. ``ValueError`` for parts that do not fit."""
    if not isinstance(buffer, Tensor) or buffer.is_nested or buffer.dim() != 1:
        raise ValueError("a nested tensor: expected a buffer of one dim")
    starts = _ints(offsets, 1)
    if not starts:
        return wrap_rows(buffer[:0], (), 0)
    shapes, steps = _ints(sizes, 2), _ints(strides, 2)
    if not len(shapes) == len(steps) == len(starts) or len(shapes[0]) != len(steps[0]):
        raise ValueError(f"a nested tensor: expected places of {len(starts)} rows, got {len(shapes)} and {len(steps)}")
    for shape, step, start in zip(shapes, steps, starts, strict=True):
        if min([*shape, *step, start]) < 0 or max([*shape, *step, start]) >= 2**48:
            raise ValueError(f"a nested tensor: a row has the sizes {shape}, strides {step} and offset {start}")
        last = start + sum((n - 1) * s for n, s in zip(shape, step, strict=True))
        if min(shape, default=1) and last >= buffer.numel():
            raise ValueError(f"a nested tensor: a row reaches element {last} of a buffer of {buffer.numel()}")
    places = tuple(Place(tuple(n), tuple(s), at) for n, s, at in zip(shapes, steps, starts, strict=True))
    return wrap_rows(buffer.detach().contiguous(), places, len(shapes[0]))


def rebuild_jagged(parts: Any) -> NestedTensor:
    """The nested tensor of such parts. ``ValueError`` or ``RuntimeError`` for parts that do not fit."""
    if not isinstance(parts, dict) or not isinstance(parts.get("values"), Tensor):
        raise ValueError("a nested tensor: expected its values")
    values, offsets, lengths = parts["values"], parts.get("offsets"), parts.get("lengths")
    for part in (offsets, lengths):
        if part is not None and not isinstance(part, Tensor):
            raise ValueError(f"a nested tensor: expected tensors of ints, got {type(part).__name__}")
    ragged = parts.get("_ragged_idx", 1)
    if type(ragged) is not int or offsets is None:
        raise ValueError("a nested tensor: expected its offsets, and the ragged dimension as an int")
    made = nested_tensor_from_jagged(values.detach(), offsets.detach(), lengths, ragged)
    counts = made._row_lengths().tolist()
    made._metadata_cache = {"min_seqlen": min(counts, default=0), "max_seqlen": max(counts, default=0)}
    return made.requires_grad_(parts.get("requires_grad") is True)
