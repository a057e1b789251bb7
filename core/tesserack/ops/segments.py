"""Reductions of consecutive segments of one dimension."""

from __future__ import annotations

import functools
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.results import deliver

__all__ = ["_segment_reduce", "segment_reduce"]

_EMPTY = {"sum": 0.0, "mean": float("nan"), "max": -float("inf"), "min": float("inf"), "prod": 1.0}


def _lengths(data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int, unsafe: bool) -> Tensor:
    if (lengths is None) == (offsets is None):
        raise RuntimeError("segment_reduce: either lengths or offsets must be defined, and not both")
    if offsets is not None:
        lengths = offsets.diff(dim=axis)
    assert lengths is not None
    if lengths.dtype not in (ts.int32, ts.int64):
        raise RuntimeError(f"segment_reduce: expected integer lengths or offsets, got {lengths.dtype}")
    if lengths.dim() != axis + 1 or lengths.shape[:axis] != data.shape[:axis]:
        raise RuntimeError(f"segment_reduce: expected lengths of shape {(*data.shape[:axis], 'segments')}, got "
                           f"{tuple(lengths.shape)}")  # fmt: skip
    if not unsafe and offsets is None:
        if lengths.numel() and int(lengths.min()) < 0:
            raise RuntimeError("segment_reduce: lengths contains negative value!")
        if bool((lengths.sum(axis) != data.shape[axis]).any()):
            raise RuntimeError(f"segment_reduce: expected all rows of lengths along axis to sum to "
                               f"data.size(lengths.dim()-1) = {data.shape[axis]} when !unsafe.")  # fmt: skip
    return lengths


def _ids(data: Tensor, lengths: Tensor, start: Tensor, axis: int) -> Tensor:
    """The segment of each position along ``axis``; one past the last for positions that belong to none."""
    positions = ts.arange(data.shape[axis], device=data.device).expand(*lengths.shape[:-1], data.shape[axis])
    ends = start + lengths
    ids = ts.searchsorted(ends.contiguous(), positions.contiguous(), right=True)
    before = positions < start[..., :1] if start.shape[-1] else positions < 0
    return ids.masked_fill(before, lengths.shape[-1])


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """ "sum", "mean", "max", "min" or "prod" of each of the consecutive segments that ``data`` has along ``axis``.

    ``lengths`` (*, segments), of the shape of ``data`` before ``axis``, says how long they are; instead ``offsets``
    (*, segments + 1) where they begin and the last one ends. ``initial`` is the first operand. Empty segments give it,
    else 0, NaN, -inf, inf or 1. Differentiable. ``RuntimeError`` for lengths that do not fit, unless ``unsafe``.

    >>> import tesserack as ts
    >>> ts.segment_reduce(ts.arange(5.0), "sum", lengths=ts.tensor([2, 0, 3]))
    tensor([1., 0., 9.])
    """
    if reduce not in _EMPTY:
        raise RuntimeError(f"segment_reduce: expected one of {sorted(_EMPTY)}, got {reduce!r}")
    if indices is not None:
        raise RuntimeError(
            "segment_reduce: indices based reduction is not supported yet, in PyTorch either; use lengths"
        )
    if not data.is_floating_point() or data.dim() == 0:
        raise RuntimeError(f"segment_reduce: expected floating data of at least one dimension, got {data.dtype}")
    axis = axis % data.dim()
    sizes = _lengths(data, lengths, offsets, axis, unsafe)
    first = offsets.narrow(axis, 0, sizes.shape[axis]) if offsets is not None else sizes.cumsum(-1) - sizes
    ids = _ids(data, sizes, first, axis)
    segments = sizes.shape[-1]
    trailing = data.shape[axis + 1 :]
    spread = ids.reshape(*ids.shape, *[1] * len(trailing)).expand(data.shape)
    # Sums of halves may be more than halves hold, although their mean is not.
    wide = data.float() if reduce == "mean" and data.dtype in (ts.float16, ts.bfloat16) else data
    result = _scattered(wide, spread, reduce, axis, segments, initial)
    if reduce == "mean":
        counts = sizes.reshape(*sizes.shape, *[1] * len(trailing))
        empty = 0 * result + (initial if initial is not None else _EMPTY["mean"])
        result = ts.where(counts == 0, empty.detach(), result / counts.clamp(min=1)).to(data.dtype)
    return deliver("segment_reduce", result, out)


def _scattered(data: Tensor, ids: Tensor, reduce: str, axis: int, segments: int, initial: Any) -> Tensor:
    """Every element reduced into its segment; one more segment takes those that belong to none."""
    shape = list(data.shape)
    shape[axis] = segments + 1
    empty = 0.0 if reduce == "mean" else _EMPTY[reduce]
    base = ts.full(shape, empty if initial is None else float(initial), dtype=data.dtype, device=data.device)
    if reduce in ("sum", "mean"):
        full = base.scatter_add(axis, ids, data)
    elif reduce == "prod" and data.requires_grad and ts.is_grad_enabled():
        full = _product(base, data, ids, axis)
    elif reduce == "prod":
        full = base.scatter_reduce(axis, ids, data, "prod", include_self=True)
    else:
        full = _extreme_function().apply(data, ids, base, axis, f"a{reduce}")
    return full.narrow(axis, 0, segments)


def _product(base: Tensor, data: Tensor, ids: Tensor, axis: int) -> Tensor:
    """Products whose derivative by the only NaN of a segment is the product of the others."""
    unknown = data.isnan()
    known = base.scatter_reduce(axis, ids, ts.where(unknown, 1, data), "prod", include_self=True)
    count = ts.zeros_like(base).scatter_add(axis, ids, unknown.to(base.dtype))
    alone = ts.zeros_like(base).scatter_add(axis, ids, ts.where(unknown, data, 0))
    return ts.where(count == 0, known, known * alone * ts.where(count > 1, float("nan"), 1).to(base.dtype))


@functools.cache
def _extreme_function() -> Any:
    """The largest or smallest of each segment; all elements that are it, and those that are NaN, share its gradient.
    The first operand has no part in that."""
    from tesserack.autograd.function import Function

    class SegmentExtreme(Function):
        @staticmethod
        def forward(ctx: Any, data: Tensor, ids: Tensor, base: Tensor, axis: int, name: str) -> Tensor:
            result = base.scatter_reduce(axis, ids, data, name, include_self=True)
            chosen = ((data == result.gather(axis, ids)) | data.isnan()).to(data.dtype)
            count = ts.zeros_like(base).scatter_add(axis, ids, chosen)
            ctx.axis = axis
            ctx.save_for_backward(ids, chosen / count.clamp(min=1).gather(axis, ids))
            return result

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Any:
            ids, share = ctx.saved_tensors
            return ts.where(share > 0, grad.gather(ctx.axis, ids) * share, 0), None, None, None, None

    return SegmentExtreme


_segment_reduce = segment_reduce  # PyTorch's name for it
