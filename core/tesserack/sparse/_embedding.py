"""Rows of a table whose gradient is sparse, or divided by how often a row was asked for."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd.function import Function
from tesserack.ops.registry import operators
from tesserack.sparse._parts import COO, build

__all__ = ["embedding", "embedding_bag"]


class _Embedding(Function):
    _node_name = "EmbeddingBackward0"

    @staticmethod
    def forward(ctx: Any, weight: Tensor, indices: Tensor, padding_idx: int | None, by_freq: bool, sparse: bool) -> Any:
        ctx.save_for_backward(indices)
        ctx.padding_idx, ctx.by_freq, ctx.sparse = padding_idx, by_freq, sparse
        ctx.rows = weight.shape[0]
        return ts.embedding(indices, weight, padding_idx)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.by_freq and ctx.sparse:
            raise RuntimeError("embedding_backward: scale_grad_by_freq not supported with sparse gradients")
        (indices,) = ctx.saved_tensors
        flat = indices.reshape(-1).long()
        values = grad.reshape(flat.numel(), grad.shape[-1])
        if ctx.padding_idx is not None:
            kept = (flat != ctx.padding_idx).nonzero().reshape(-1)
            if kept.numel() < flat.numel():
                flat, values = flat.index_select(0, kept), values.index_select(0, kept)
        if ctx.by_freq and flat.numel():
            counts = flat.bincount(minlength=ctx.rows).index_select(0, flat)
            values = values / counts.unsqueeze(1)  # whole numbers: halves would round them
        size = (ctx.rows, grad.shape[-1])
        if ctx.sparse:
            return build(COO, (flat.unsqueeze(0),), values, size, 1), None, None, None, None
        return values.new_zeros(size).index_add(0, flat, values), None, None, None, None


def embedding(weight: Tensor, indices: Tensor, padding_idx: int | None, by_freq: bool, sparse: bool) -> Tensor:
    """Rows of ``weight`` at ``indices``; ``padding_idx`` is not negative."""
    found: Tensor = _Embedding.apply(weight, indices, padding_idx, by_freq, sparse)
    return found


def embedding_bag(
    indices: Tensor,
    weight: Tensor,
    offsets: Tensor | None,
    mode: str,
    per_sample_weights: Tensor | None,
    include_last_offset: bool,
    padding_idx: int | None,
    by_freq: bool,
    sparse: bool,
) -> Tensor:
    """Bags of rows: first the rows that are asked for, then dense bags of them in their order."""
    if mode == "max" and (by_freq or sparse):
        what = "sparse" if sparse else "scaling the gradients by the frequency"
        raise ValueError(f"embedding_bag: max mode does not support {what} weights")
    if padding_idx is not None:
        if not -weight.shape[0] <= padding_idx < weight.shape[0]:
            raise RuntimeError(
                f"embedding_bag: padding_idx must be within the number of embeddings, {weight.shape[0]}, got "
                f"{padding_idx}"
            )
        padding_idx %= weight.shape[0]
    flat = indices.reshape(-1)
    count = flat.numel()
    rows = embedding(weight, flat, padding_idx, by_freq, sparse)
    at = ts.arange(count, device=flat.device)
    skipped = None
    if padding_idx is not None:
        # Those to be left out all ask for one row more, which has no values.
        rows = ts.cat([rows, rows.new_zeros((1, rows.shape[1]))])
        at, skipped = at.masked_fill(flat == padding_idx, count), count
    bags: Tensor = operators()["embedding_bag"](
        at.reshape(indices.shape), rows, offsets, mode, per_sample_weights, include_last_offset, skipped
    )
    return bags
