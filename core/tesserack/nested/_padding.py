"""Between nested tensors and dense ones: rows filled up to one length, and cut again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._handlers import handles
from tesserack.nested._strided import StridedNestedTensor, pad
from tesserack.nested._tensor import NestedTensor, wrap_like

__all__ = ["from_padded", "padded", "row_mask", "to_padded_tensor"]


def row_mask(nt: NestedTensor, width: int) -> Tensor:
    """(B, width) bools: which places of the padded rows hold elements."""
    places = ts.arange(width, device=nt.device)
    return places < nt._row_lengths().unsqueeze(1)


def padded(nt: NestedTensor, padding: Any, width: int) -> Tensor:
    """The dense tensor whose ragged dimension has size ``width``; what is longer is cut."""
    values, r = nt.values(), nt._ragged_idx
    mask = row_mask(nt, width)
    rows, total = mask.shape[0], values.shape[r - 1]
    inner = values.movedim(r - 1, 0)
    if total:
        places = (nt._offsets[:-1].unsqueeze(1) + ts.arange(width, device=nt.device)).clamp(max=total - 1)
        picked = inner.index_select(0, places.flatten()).unflatten(0, (rows, width))
    else:
        picked = inner.new_zeros((rows, width, *inner.shape[1:]))
    mask = mask.reshape(rows, width, *(1,) * (inner.dim() - 1))
    return picked.masked_fill(~mask, padding).movedim(1, r)


def to_padded_tensor(
    input: Tensor, padding: float, output_size: Sequence[int] | None = None, out: Tensor | None = None
) -> Tensor:
    """A dense copy with ``padding`` behind the shorter rows.

    The ragged dimension gets the size ``output_size`` says, that of the longest row, or of all rows together where the
    longest is not known without looking: :func:`nested_tensor_from_jagged` told no ``max_seqlen``.

    >>> import tesserack as ts
    >>> nt = ts.nested.nested_tensor([ts.ones(1), ts.ones(2)], layout=ts.jagged)
    >>> ts.nested.to_padded_tensor(nt, 0.0)
    tensor([[1., 0.],
            [1., 1.]])
    """
    if isinstance(input, StridedNestedTensor) and out is None:
        return pad(input, padding, output_size)
    if not isinstance(input, NestedTensor):
        raise TypeError(f"to_padded_tensor: expected a nested tensor, got {type(input).__name__}")
    if input._lengths is not None:
        raise RuntimeError(
            "to_padded_tensor(): not supported for nested tensors with holes; try .contiguous() before it"
        )
    if out is not None:
        raise NotImplementedError("to_padded_tensor: expected no out= for nested tensors; assign the result")
    if output_size is None:
        width = input._metadata_cache.get("max_seqlen", input._plain().shape[input._ragged_idx - 1])
    else:
        if len(output_size) != input.dim():
            raise RuntimeError(f"to_padded_tensor: expected {input.dim()} sizes in output_size, got {len(output_size)}")
        width = int(output_size[input._ragged_idx])
    return padded(input, padding, width)


def from_padded(dense: Tensor, like: NestedTensor) -> NestedTensor:
    """The nested tensor of the rows of a padded one, as long as those of ``like``, which has no gaps."""
    r = like._ragged_idx
    total = like._plain().shape[r - 1]
    inner = dense.movedim(r, 1)
    width = inner.shape[1]
    rows = ts.arange(inner.shape[0], device=dense.device).repeat_interleave(like._row_lengths())
    places = rows * width + ts.arange(total, device=dense.device) - like._offsets[:-1][rows]
    values = inner.flatten(0, 1).index_select(0, places).movedim(0, r - 1)
    return wrap_like(values, like)


@handles("to_padded_tensor")
def _method(func: Any, input: NestedTensor, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    return to_padded_tensor(input, padding, output_size)
