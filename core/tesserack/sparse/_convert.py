"""From one layout to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd.function import Function
from tesserack.sparse._dispatch import layout_name
from tesserack.sparse._parts import (
    BLOCKED,
    BSC,
    COLUMNS,
    COMPRESSED,
    COO,
    CSC,
    CSR,
    blocks_of,
    build,
    coalesce,
    compress,
    coordinates,
    is_sparse,
    parts_of,
    recorded,
    values_at,
    values_of,
)

__all__ = ["to_coo", "to_dense", "to_layout", "to_sparse", "to_sparse_compressed"]


# --- to dense --------------------------------------------------------------------------------------------------------


def _scatter(indices: Tensor, values: Tensor, size: Sequence[int], unique: bool) -> Tensor:
    """Zeros of a shape with rows (n, *dense) added at coordinates (d, n)."""
    if indices.shape[0] == 0:
        return values.sum(0, dtype=values.dtype) if values.dtype is not ts.bool else values.any(0)
    if values.dtype is ts.bool and not unique:
        return _scatter(indices, values.to(ts.uint8), size, unique).bool()
    zeros = values.new_zeros(tuple(size))  # entry by entry, under vmap
    if indices.shape[0] == 1 and values.dtype is not ts.bool:
        return zeros.index_add_(0, indices[0], values)
    return zeros.index_put_(tuple(indices.unbind(0)), values, accumulate=not unique)


def _dense(t: Tensor) -> Tensor:
    parts = parts_of(t)
    values = values_of(t)
    if parts.layout is COO:
        return _scatter(parts.indices[0], values, t.shape, parts.coalesced)
    places = coordinates(parts, t.shape)
    plain = parts.indices[1]
    batch_dim, dense = plain.dim() - 1, t.shape[t.dim() - parts.dense_dim :]
    flat = values.reshape(places.shape[1], *values.shape[plain.dim() :])
    if parts.layout not in BLOCKED:
        return _scatter(places, flat, t.shape, True)
    rows, columns = values.shape[plain.dim() : plain.dim() + 2]
    batch = t.shape[:batch_dim]
    if not rows or not columns:  # of none of which there are any
        return values.new_zeros(t.shape)
    grid = (*batch, t.shape[batch_dim] // rows, t.shape[batch_dim + 1] // columns, rows, columns, *dense)
    cut = _scatter(places, flat, grid, True)
    return cut.transpose(batch_dim + 1, batch_dim + 2).reshape(t.shape)


class _Unmasked(Function):
    """To dense, where the gradient keeps every element that is not zero, whatever the pattern."""

    _node_name = "ToDenseBackward0"

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        ctx.save_for_backward(t)
        return _dense(t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (t,) = ctx.saved_tensors
        if is_sparse(grad):
            return grad
        parts = parts_of(t)
        if parts.layout is COO:
            return _from_dense(grad, parts.sparse_dim)
        return to_layout(grad, parts.layout, _block_of(t), parts.dense_dim)


def to_dense(self: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """The elements as a strided tensor; the tensor itself if it is one.

    Args:
        dtype: cast to it (of strided tensors alone, as PyTorch does).
        masked_grad: of a sparse tensor, whether its gradient has its pattern (the default) or all that is not zero.

    >>> import tesserack as ts
    >>> ts.tensor([0.0, 2.0]).to_sparse().to_dense()
    tensor([0., 2.])
    """
    if not is_sparse(self):
        return self if dtype is None else self.to(dtype)
    if dtype is not None and dtype is not self.dtype:
        raise RuntimeError("to_dense: dtype argument is not supported by sparse_to_dense; cast with .to(dtype) after")
    if masked_grad is False and recorded(self):
        dense: Tensor = _Unmasked.apply(self)
        return dense
    return _dense(self)


# --- to coo ----------------------------------------------------------------------------------------------------------


def _from_dense(t: Tensor, sparse_dim: int) -> Tensor:
    dense_dim = t.dim() - sparse_dim
    with _native.no_grad():
        there = t.detach() != 0
        if dense_dim:
            there = there.flatten(sparse_dim).any(-1) if there.numel() else there.new_zeros(t.shape[:sparse_dim])
        if sparse_dim == 0:
            at = ts.zeros((0, int(bool(there))), dtype=ts.int64, device=t.device)
        else:
            at = there.nonzero().t().contiguous()
    if sparse_dim == 0:
        values = t.unsqueeze(0)[: at.shape[1]]
    else:
        values = t[tuple(at.unbind(0))] if at.shape[0] > 1 else t.index_select(0, at[0])
    return build(COO, (at,), values, t.shape, dense_dim, True)


def to_coo(t: Tensor) -> Tensor:
    """Any layout as coordinates; blocks element by element."""
    if not is_sparse(t):
        return _from_dense(t, t.dim())
    parts = parts_of(t)
    if parts.layout is COO:
        return t
    places = coordinates(parts, t.shape)
    values, plain = values_of(t), parts.indices[1]
    values = values.reshape(places.shape[1], *values.shape[plain.dim() :])
    if parts.layout in BLOCKED:
        rows, columns = values.shape[1:3]
        count, depth = places.shape[1], places.shape[0]
        row = ts.arange(rows, device=t.device).reshape(1, rows, 1)
        column = ts.arange(columns, device=t.device).reshape(1, 1, columns)
        grid = (count, rows, columns)
        inside = [
            (places[depth - 2].reshape(-1, 1, 1) * rows + row).expand(grid).reshape(-1),
            (places[depth - 1].reshape(-1, 1, 1) * columns + column).expand(grid).reshape(-1),
        ]
        outside = [axis.repeat_interleave(rows * columns) for axis in places[: depth - 2].unbind(0)]
        places = ts.stack([*outside, *inside])
        values = values.flatten(0, 2)
    made = build(COO, (places,), values, t.shape, parts.dense_dim, parts.layout is CSR)
    return made if parts.layout is CSR else coalesce(made)


# --- to compressed ---------------------------------------------------------------------------------------------------


def _block_of(t: Tensor) -> tuple[int, int] | None:
    parts = parts_of(t)
    if parts.layout not in BLOCKED:
        return None
    at = parts.indices[1].dim()
    rows, columns = parts.values.shape[at : at + 2]
    return rows, columns


def _compress_coo(t: Tensor, layout: Any) -> Tensor:
    """A coalesced matrix in coordinates, with dense dims maybe, as compressed rows or columns."""
    t = coalesce(t)
    parts, values = parts_of(t), values_of(t)
    rows, columns = parts.indices[0].unbind(0)
    if layout is CSC:
        columns, order = columns.sort(stable=True)
        rows, values = rows.index_select(0, order), values.index_select(0, order)
        indices = (compress(columns, t.shape[1]), rows.contiguous())
    else:
        indices = (compress(rows, t.shape[0]), columns.contiguous())
    return build(layout, indices, values, t.shape, parts.dense_dim, True)


def _compress_batch(dense: Tensor, layout: Any, block: tuple[int, int] | None, dense_dim: int) -> Tensor:
    """A dense tensor as compressed rows or columns of blocks, batch by batch."""
    batch_dim = dense.dim() - 2 - dense_dim
    cut = blocks_of(dense, block or (1, 1), dense_dim)
    if layout in COLUMNS:
        cut = cut.transpose(batch_dim, batch_dim + 1)
    batch = tuple(cut.shape[:batch_dim])
    with _native.no_grad():
        there = (cut.detach() != 0).flatten(batch_dim + 2).any(-1)
        counts = there.sum(-1)
        per_batch = counts.sum(-1).reshape(-1) if batch else counts.sum().reshape(1)
        if batch and per_batch.numel() and bool((per_batch != per_batch[0]).any()):
            raise RuntimeError(
                f"to_{layout_name_of(layout)}: Expect the same number of specified elements per batch, got "
                f"{per_batch.tolist()}"
            )
        compressed = ts.cat([counts.new_zeros((*batch, 1)), counts.cumsum(-1)], -1)
        places = there.nonzero().t()
        plain = places[-1].reshape(*batch, -1) if per_batch.numel() else there.new_zeros((*batch, 0), dtype=ts.int64)
    values = cut[tuple(places.unbind(0))].reshape(*plain.shape, *cut.shape[batch_dim + 2 :])
    if block is None:
        values = values.reshape(*plain.shape, *cut.shape[batch_dim + 4 :])
    return build(layout, (compressed, plain.contiguous()), values, dense.shape, dense_dim, True)


def layout_name_of(layout: Any) -> str:
    """``"sparse_csr"`` of the layout."""
    return str(layout).rpartition(".")[2]


def to_layout(t: Tensor, layout: Any, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """Any tensor in a compressed layout, with indices of the dtype that compressed ones had."""
    made = _in_layout(t, layout, blocksize, dense_dim)
    if made is t or t.layout not in COMPRESSED or parts_of(t).indices[1].dtype is ts.int64:
        return made
    parts = parts_of(made)
    indices = tuple(i.to(parts_of(t).indices[1].dtype) for i in parts.indices)
    return build(layout, indices, values_of(made), made.shape, parts.dense_dim, True)


def _in_layout(t: Tensor, layout: Any, blocksize: Any, dense_dim: int | None) -> Tensor:
    name = f"to_{layout_name_of(layout)}"
    if isinstance(blocksize, int):
        blocksize = (blocksize, blocksize)
    block = (int(blocksize[0]), int(blocksize[1])) if blocksize is not None and len(blocksize) == 2 else None
    if layout in BLOCKED and block is None:
        raise RuntimeError(f"{name}: blocksize must have two elements, got {blocksize}")
    if layout not in BLOCKED and blocksize is not None:
        raise RuntimeError(f"{name}: conversion to {layout} does not use blocksize, got {blocksize}")
    depth = parts_of(t).dense_dim if is_sparse(t) else int(dense_dim or 0)
    if t.dim() - depth < 2:
        raise RuntimeError(
            f"{name}: expected a matrix or batches of matrices, got shape {tuple(t.shape)} with {depth} dense dims"
        )
    if t.layout is layout and (layout not in BLOCKED or _block_of(t) == block):
        return t
    at = t.dim() - depth - 2
    if block and (min(block) < 1 or t.shape[at] % block[0] or t.shape[at + 1] % block[1]):
        raise RuntimeError(
            f"{name}: tensor sparse size ({t.shape[at]},{t.shape[at + 1]}) must be divisible by given blocksize "
            f"({block[0]},{block[1]})"
        )
    if is_sparse(t) and at == 0 and layout in (CSR, CSC):
        return _compress_coo(to_coo(t), layout)
    if is_sparse(t) and parts_of(t).layout is COO and at:
        raise RuntimeError(f"{name}: conversion from Sparse to {layout_name_of(layout)} for more than 2 sparse dims "
                           "is not supported; try .to_dense() first")  # fmt: skip
    if is_sparse(t) and at == 0:
        return _blocks_of_coo(to_coo(t), layout, block or (1, 1))
    return _compress_batch(to_dense(t), layout, block, depth)


def _blocks_of_coo(t: Tensor, layout: Any, block: tuple[int, int]) -> Tensor:
    """A matrix in coordinates as blocks, of which those with an element are there."""
    t = coalesce(t)
    parts, values = parts_of(t), values_of(t)
    rows, columns = parts.indices[0].unbind(0)
    outer, inner = rows.div(block[0], rounding_mode="floor"), columns.div(block[1], rounding_mode="floor")
    extents = (t.shape[0] // block[0], t.shape[1] // block[1])
    if layout is BSC:
        outer, inner, extents = inner, outer, extents[::-1]
    unique, inverse = (outer * max(extents[1], 1) + inner).unique(return_inverse=True)
    at = (inverse, rows % block[0], columns % block[1])
    shape = (unique.numel(), *block, *values.shape[1:])
    cut = ts.zeros(shape, dtype=values.dtype, device=values.device).index_put(at, values)
    heads = compress(unique.div(max(extents[1], 1), rounding_mode="floor"), extents[0])
    return build(layout, (heads, unique % max(extents[1], 1)), cut, t.shape, parts.dense_dim, True)


# --- the methods -----------------------------------------------------------------------------------------------------


def to_sparse(
    self: Tensor, sparse_dim: Any = None, *, layout: Any = None, blocksize: Any = None, dense_dim: int | None = None
) -> Tensor:
    """The tensor in a sparse layout: coordinates unless ``layout`` says otherwise.

    Args:
        sparse_dim: how many of the first dims are sparse; all.
        layout: ``sparse_coo``, ``sparse_csr``, ``sparse_csc``, ``sparse_bsr`` or ``sparse_bsc``.
        blocksize: of the last two, (rows, columns).
        dense_dim: how many of the last dims are dense, of compressed layouts.

    Raises:
        RuntimeError: options that do not go with the layout, or with the tensor.

    >>> import tesserack as ts
    >>> ts.tensor([[0.0, 3.0], [0.0, 0.0]]).to_sparse().values()
    tensor([3.])
    """
    if sparse_dim is not None:
        if isinstance(sparse_dim, _native.layout):
            layout, sparse_dim = sparse_dim, None
        elif layout is not None or blocksize is not None or dense_dim is not None:
            raise TypeError("to_sparse: expected sparse_dim alone, or layout, blocksize and dense_dim")
    if layout in COMPRESSED:
        return to_layout(self, layout, blocksize, dense_dim)
    if layout is _native.strided:
        return to_dense(self)
    if layout not in (None, COO):
        raise RuntimeError(f"to_sparse: expected a sparse layout, got {layout}")
    if blocksize is not None:
        raise RuntimeError("to_sparse: conversion to Sparse does not use blocksize")
    if is_sparse(self):
        held = parts_of(self).sparse_dim
        if sparse_dim is not None and sparse_dim != held:
            raise RuntimeError(
                f"to_sparse: conversion from {_text(self)} to Sparse with sparse_dim argument !=self.sparse_dim() is "
                "not supported"
            )
        return to_coo(self)
    depth = self.dim() - int(dense_dim or 0) if sparse_dim is None else int(sparse_dim)
    if not 0 <= depth <= self.dim() or (depth == 0 and self.dim() > 0):
        raise RuntimeError(
            f"to_sparse: sparse_dim argument must be in >=0 and <= self.dim(), and not 0 of {self.dim()} dims, got "
            f"{depth}"
        )
    return _from_dense(self, depth)


def _text(t: Tensor) -> str:
    from tesserack.sparse._parts import layout_text

    return layout_text(t)


def to_sparse_compressed(t: Tensor, layout: Any, blocksize: Any = None, dense_dim: int | None = None) -> Tensor:
    """``to_sparse(layout=...)`` for the methods named after a layout."""
    return to_layout(t, layout, blocksize, dense_dim)


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """What the tensor has in the places of the sparse tensor ``mask``, as a tensor of that pattern.

    ``RuntimeError`` for another shape, or a mask that is not sparse.

    >>> import tesserack as ts
    >>> ts.ones(2).sparse_mask(ts.tensor([0.0, 5.0]).to_sparse()).to_dense()
    tensor([0., 1.])
    """
    if not is_sparse(mask):
        raise RuntimeError(f"sparse_mask: expected a sparse mask, got layout {layout_name(mask)}")
    if self.shape != mask.shape:
        raise RuntimeError(
            f"sparse_mask(): operands have incompatible sizes; self has size {list(self.shape)} but mask has size "
            f"{list(mask.shape)}"
        )
    parts = parts_of(mask)
    return build(parts.layout, parts.indices, values_at(self, mask), mask.shape, parts.dense_dim, parts.coalesced)
