"""What sparse tensors are made of, and the two steps through which gradients pass: from a sparse tensor to its values,
and from values to a sparse tensor. Everything else is written with dense operators between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd.function import Function

__all__ = [
    "BLOCKED",
    "COLUMNS",
    "COMPRESSED",
    "Parts",
    "build",
    "coalesce",
    "compress",
    "coordinates",
    "expand_compressed",
    "flat_positions",
    "is_sparse",
    "layout_text",
    "like",
    "make",
    "parts_of",
    "recorded",
    "values_at",
    "values_of",
]

COO = _native.sparse_coo
CSR, CSC, BSR, BSC = _native.sparse_csr, _native.sparse_csc, _native.sparse_bsr, _native.sparse_bsc
COMPRESSED = (CSR, CSC, BSR, BSC)
BLOCKED = (BSR, BSC)
COLUMNS = (CSC, BSC)  # whose compressed indices count columns


class Parts(NamedTuple):
    """A sparse tensor taken apart; ``indices`` is one tensor (coo) or compressed and plain indices."""

    layout: Any
    indices: tuple[Tensor, ...]
    values: Tensor
    sparse_dim: int
    dense_dim: int
    coalesced: bool


def is_sparse(t: Any) -> bool:
    """Whether the layout is another than strided."""
    return isinstance(t, Tensor) and t.layout is not _native.strided


def layout_text(t: Tensor) -> str:
    """The layout as PyTorch's messages name it: ``SparseCsr``, ``Sparse``, ``Strided``."""
    name = str(t.layout).rpartition(".")[2]
    return "Sparse" if name == "sparse_coo" else "".join(word.capitalize() for word in name.split("_"))


def parts_of(t: Tensor) -> Parts:
    """The parts, which have no history; ``values`` are those of the memory itself."""
    layout, tensors, sparse_dim, dense_dim, coalesced = _native._sparse_parts(t)
    return Parts(layout, tensors[:-1], tensors[-1], sparse_dim, dense_dim, coalesced)


def make(
    layout: Any, indices: tuple[Tensor, ...], values: Tensor, size: Sequence[int], dense_dim: int, coalesced: bool,
    exact: bool = False,
) -> Tensor:  # fmt: skip
    """A sparse tensor without history over these parts, which nothing checks.

    Fewer than two elements count as coalesced, unless what is said of them is ``exact``.
    """
    values = values.detach()
    sparse_dim = len(size) - dense_dim if layout is COO else 2
    coalesced = coalesced or (not exact and layout is COO and indices[0].shape[1] < 2)
    made: Tensor = _native._make_sparse(
        tuple(size), layout, (*(part.detach() for part in indices), values), sparse_dim, dense_dim, bool(coalesced)
    )
    return made


def recorded(*tensors: Any) -> bool:
    """Whether a call with these is to be recorded."""
    return _native.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in tensors)


# --- positions -------------------------------------------------------------------------------------------------------


def flat_positions(indices: Tensor, size: Sequence[int]) -> Tensor:
    """Positions (n,) in a contiguous tensor of the coordinates (d, n)."""
    steps = [prod(size[k + 1 :]) for k in range(len(size))]
    if not steps:
        return indices.new_zeros((indices.shape[1],))
    flat = indices[-1]
    for k in range(len(steps) - 1):
        flat = flat + indices[k] * steps[k] if steps[k] != 1 else flat + indices[k]
    return flat


def unflatten(flat: Tensor, size: Sequence[int]) -> Tensor:
    """Coordinates (d, n) of positions (n,)."""
    rows = []
    for extent in reversed(size):
        rows.append(flat % max(extent, 1))
        flat = flat.div(max(extent, 1), rounding_mode="floor")
    if not rows:
        return flat.new_zeros((0, flat.numel()))
    return ts.stack(rows[::-1])


def compress(sorted_indices: Tensor, extent: int) -> Tensor:
    """How many of the sorted indices (n,) lie before 0, 1, ..., extent: (extent + 1,)."""
    edges = ts.arange(extent + 1, dtype=sorted_indices.dtype, device=sorted_indices.device)
    return ts.searchsorted(sorted_indices.contiguous(), edges).to(sorted_indices.dtype)


def expand_compressed(compressed: Tensor) -> Tensor:
    """The row of every element, (..., n), of compressed row indices (..., rows + 1)."""
    counts = compressed.diff(dim=-1).long()
    rows = ts.arange(counts.shape[-1], dtype=compressed.dtype, device=compressed.device).expand(counts.shape)
    total = ts.repeat_interleave(rows.reshape(-1), counts.reshape(-1))
    return total.reshape(*counts.shape[:-1], -1) if counts.dim() > 1 else total


def coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Compressed indices, ``size + 1`` of them, of the row indices of a sorted pattern."""
    return compress(input, size).to(ts.int32 if out_int32 else ts.int64)


def csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Row and column indices, stacked, of a pattern in compressed rows; with ``transpose`` the columns first."""
    pair = (expand_compressed(crow_indices), col_indices)
    return ts.stack([part.to(ts.int32 if out_int32 else ts.int64) for part in (pair[::-1] if transpose else pair)])


def coordinates(parts: Parts, size: Sequence[int]) -> Tensor:
    """Coordinates (d, n) of the elements, or blocks, of a compressed tensor, its batch dims first."""
    compressed, plain = parts.indices
    rows, columns = expand_compressed(compressed).reshape(-1).long(), plain.reshape(-1).long()
    if parts.layout in COLUMNS:
        rows, columns = columns, rows
    batch = tuple(compressed.shape[:-1])
    if not batch:
        return ts.stack([rows, columns])
    count = plain.shape[-1]
    which = ts.arange(prod(batch), device=plain.device).repeat_interleave(count)
    return ts.cat([unflatten(which, batch), ts.stack([rows, columns])])


# --- values, and back ------------------------------------------------------------------------------------------------


class _Values(Function):
    """The values of a sparse tensor; their gradient has its pattern."""

    _node_name = "ValuesBackward0"

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        parts = parts_of(t)
        # The pattern is what matters: the tensor may be given other parts in place.
        ctx.pattern = make(parts.layout, parts.indices, parts.values, t.shape, parts.dense_dim, parts.coalesced)
        return parts.values.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        t = ctx.pattern
        parts = parts_of(t)
        if parts.layout is not COO or parts.coalesced:
            return build(parts.layout, parts.indices, grad, t.shape, parts.dense_dim, parts.coalesced)
        # The tensor is the sum of elements that share a place: its gradient there is that of any of them.
        size = t.shape[: parts.sparse_dim]
        unique, inverse = flat_positions(parts.indices[0], size).unique(return_inverse=True)
        order = ts.arange(inverse.numel(), device=inverse.device)
        first = order.new_zeros(unique.shape).scatter_(0, inverse, order)
        return build(COO, (unflatten(unique, size),), grad.index_select(0, first), t.shape, parts.dense_dim, True)


class _Build(Function):
    """A sparse tensor over values; their gradient is what the tensor's has in their places."""

    _node_name = "SparseCooTensorWithDimsAndTensorsBackward0"

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, layout: Any, indices: tuple[Tensor, ...], size: Any, dense_dim: int, coalesced: bool
    ) -> Tensor:
        ctx.pattern = make(layout, indices, values, size, dense_dim, coalesced)
        return make(layout, indices, values, size, dense_dim, coalesced)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        return values_at(grad, ctx.pattern), None, None, None, None, None


class _BuildCompressed(_Build):
    _node_name = "SparseCompressedTensorBackward0"


def values_of(t: Tensor) -> Tensor:
    """The values, with history where the tensor has one."""
    if recorded(t):
        found: Tensor = _Values.apply(t)
        return found
    return parts_of(t).values


def build(
    layout: Any, indices: tuple[Tensor, ...], values: Tensor, size: Any, dense_dim: int = 0, coalesced: bool = False
) -> Tensor:
    """A sparse tensor over these parts, with the history of ``values``. Nothing is checked."""
    size = tuple(size)
    if not recorded(values):
        return make(layout, indices, values, size, dense_dim, coalesced)
    node = _Build if layout is COO else _BuildCompressed
    built: Tensor = node.apply(values, layout, indices, size, dense_dim, coalesced)
    return built


def like(t: Tensor, values: Tensor, coalesced: bool | None = None) -> Tensor:
    """A sparse tensor with the pattern of another, and other values."""
    parts = parts_of(t)
    flag = parts.coalesced if coalesced is None else coalesced
    return build(parts.layout, parts.indices, values, t.shape, parts.dense_dim, flag)


def coalesce(t: Tensor) -> Tensor:
    """A coo tensor with unique indices in order: the tensor itself if its are."""
    parts = parts_of(t)
    if parts.coalesced:
        return t
    indices, size = parts.indices[0], t.shape[: parts.sparse_dim]
    if indices.shape[1] < 2:
        return like(t, values_of(t), True)
    unique, inverse = flat_positions(indices, size).unique(return_inverse=True)
    values = values_of(t)
    wide = values.to(ts.uint8) if values.dtype is ts.bool else values
    total = wide.new_zeros((unique.numel(), *values.shape[1:])).index_add(0, inverse, wide)
    total = total.bool() if values.dtype is ts.bool else total
    return build(COO, (unflatten(unique, size),), total, t.shape, parts.dense_dim, True)


def _same_pattern(a: Parts, b: Parts) -> bool:
    if a.layout is not b.layout:
        return False
    return all(x is y or (x.shape == y.shape and ts.equal(x, y)) for x, y in zip(a.indices, b.indices, strict=True))


def values_at(source: Tensor, pattern: Tensor) -> Tensor:
    """What ``source``, dense or sparse, has in the places of a sparse tensor: values for its pattern."""
    parts = parts_of(pattern)
    if is_sparse(source):
        known = parts_of(source)
        if (known.layout is not COO or known.coalesced or parts.coalesced) and _same_pattern(known, parts):
            return values_of(source)
        if known.layout is COO and parts.layout is COO and known.sparse_dim == parts.sparse_dim:
            return _search(source, pattern)
        source = source.to_dense()
    if parts.layout is COO:
        return _take(source, parts.indices[0])
    places = coordinates(parts, pattern.shape)
    if parts.layout in BLOCKED:
        rows, columns = parts.values.shape[len(parts.indices[0].shape) :][:2]
        source = blocks_of(source, (rows, columns), parts.dense_dim)
    return _take(source, places).reshape(parts.values.shape)


def blocks_of(dense: Tensor, block: tuple[int, int], dense_dim: int) -> Tensor:
    """(..., rows, columns, *dense) seen as (..., rows / r, columns / c, r, c, *dense)."""
    at = dense.dim() - dense_dim - 2
    rows, columns = dense.shape[at : at + 2]
    cut = dense.reshape(
        *dense.shape[:at], rows // block[0], block[0], columns // block[1], block[1], *dense.shape[at + 2 :]
    )
    return cut.transpose(at + 1, at + 2)


def _take(dense: Tensor, indices: Tensor) -> Tensor:
    """Rows (n, *dense) of a dense tensor at coordinates (d, n)."""
    depth, count = indices.shape
    if depth == 0:
        return dense.unsqueeze(0).expand(count, *dense.shape)
    if depth == 1:
        return dense.index_select(0, indices[0])
    return dense[tuple(indices.unbind(0))]


def _search(source: Tensor, pattern: Tensor) -> Tensor:
    """Values of a coo tensor in the places of another; zero where it has none."""
    source = coalesce(source)
    known, wanted = parts_of(source), parts_of(pattern)
    size = source.shape[: known.sparse_dim]
    values = values_of(source)
    places = flat_positions(wanted.indices[0], size)
    have = flat_positions(known.indices[0], size)
    if have.numel() == 0 or places.numel() == 0:
        return values.new_zeros((places.numel(), *values.shape[1:]))
    at = ts.searchsorted(have.contiguous(), places.contiguous()).clamp(max=have.numel() - 1)
    found = have.index_select(0, at) == places
    taken = values.index_select(0, at)
    return taken.masked_fill(~found.reshape(-1, *[1] * (taken.dim() - 1)), 0)
