"""Dims of sparse tensors exchanged, added, picked and joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.sparse._convert import to_coo
from tesserack.sparse._dispatch import in_place, kernel, layout_name, pass_on, refuse
from tesserack.sparse._parts import (
    BLOCKED,
    BSC,
    BSR,
    COO,
    CSC,
    CSR,
    build,
    coalesce,
    is_sparse,
    parts_of,
    values_of,
)

__all__: list[str] = []

_TURNED = {CSR: CSC, CSC: CSR, BSR: BSC, BSC: BSR}


def _wrap(dim: int, ndim: int) -> int:
    reach = max(ndim, 1)
    if not -reach <= dim < reach:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-reach}, {reach - 1}], but got {dim})")
    return dim % reach


def _permuted(self: Tensor, order: list[int]) -> Tensor:
    if order == list(range(self.dim())):
        return self
    if self.layout is not COO:
        return _permuted_compressed(self, order)
    parts = parts_of(self)
    depth = parts.sparse_dim
    if sorted(order[:depth]) != list(range(depth)):
        raise RuntimeError(
            f"permute: transpositions between sparse and dense dimensions are not allowed, got order {order} of "
            f"{depth} sparse and {parts.dense_dim} dense dims"
        )
    indices, values = parts.indices[0], values_of(self)
    if order[:depth] != list(range(depth)):
        indices = indices.index_select(0, ts.tensor(order[:depth], device=indices.device))
    if order[depth:] != list(range(depth, self.dim())):
        values = values.permute(0, *(d - depth + 1 for d in order[depth:]))
    size = [self.shape[d] for d in order]
    flag = parts.indices[0].shape[1] < 2 or (parts.coalesced and order[:depth] == list(range(depth)))
    return build(COO, (indices,), values, size, parts.dense_dim, flag)


def _permuted_compressed(self: Tensor, order: list[int]) -> Tensor:
    parts = parts_of(self)
    at = parts.indices[0].dim() - 1
    swapped = list(range(self.dim()))
    swapped[at : at + 2] = [at + 1, at]
    if order != swapped:
        raise RuntimeError(
            f"transpose: of a compressed tensor only the two sparse dims can be exchanged, {at} and {at + 1}, got "
            f"order {order}; try .to_dense()"
        )
    values = values_of(self)
    if parts.layout in BLOCKED:
        values = values.transpose(at + 1, at + 2)
    size = [self.shape[d] for d in order]
    return build(_TURNED[parts.layout], parts.indices, values, size, parts.dense_dim, True)


@kernel("t")
def t(self: Tensor) -> Tensor:
    if self.dim() > 2 or (self.layout is COO and parts_of(self).dense_dim):
        raise RuntimeError(
            f"t() expects a tensor with <= 2 sparse and 0 dense dimensions, but got shape {tuple(self.shape)}"
        )
    return _permuted(self, list(range(self.dim()))[::-1])


@kernel("transpose.int", "swapaxes", "swapdims")
def transpose(self: Tensor, dim0: int, dim1: int) -> Tensor:
    a, b = _wrap(dim0, self.dim()), _wrap(dim1, self.dim())
    order = list(range(self.dim()))
    order[a], order[b] = order[b], order[a]
    return _permuted(self, order)


in_place("t_", reshapes=True)(t)
in_place("transpose_", "swapaxes_", "swapdims_", reshapes=True)(transpose)


@kernel("permute")
def permute(self: Tensor, dims: Sequence[int]) -> Tensor:
    order = [_wrap(d, self.dim()) for d in dims]
    if sorted(order) != list(range(self.dim())):
        raise RuntimeError(f"permute: expected every dim of {self.dim()} once, got {list(dims)}")
    return _permuted(self, order)


@kernel("mH", "matrix_H", "adjoint")
def adjoint(self: Tensor) -> Tensor:
    return self.transpose(-2, -1).conj() if self.is_complex() else self.transpose(-2, -1)


@kernel("unsqueeze")
def unsqueeze(self: Tensor, dim: int) -> Tensor:
    if self.layout is not COO:
        raise refuse("unsqueeze", self, "try .to_sparse_coo()")
    at = _wrap(dim, self.dim() + 1)
    parts = parts_of(self)
    size = [*self.shape[:at], 1, *self.shape[at:]]
    if at <= parts.sparse_dim:
        old = parts.indices[0]
        row = old.new_zeros((1, old.shape[1]))
        return build(COO, (ts.cat([old[:at], row, old[at:]]),), values_of(self), size, parts.dense_dim, parts.coalesced)
    values = values_of(self).unsqueeze(at - parts.sparse_dim + 1)
    return build(COO, parts.indices, values, size, parts.dense_dim + 1, parts.coalesced)


def _where(parts: Any, dim: int, keep: Tensor) -> tuple[Tensor, Tensor]:
    """The elements that are kept: which, and their coordinates."""
    which = keep.nonzero().reshape(-1)
    return which, parts.indices[0].index_select(1, which)


@kernel("select.int")
def select(self: Tensor, dim: int, index: int) -> Tensor:
    at = _wrap(dim, self.dim())
    extent = self.shape[at]
    if not -extent <= index < extent:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(self.shape)} at dimension {at}"
        )
    index %= extent
    batches = self.dim() - 2 - parts_of(self).dense_dim
    if self.layout is not COO and not batches <= at < batches + 2:
        return _select_beside_matrices(self, at, index, batches)
    t = to_coo(self)
    parts = parts_of(t)
    size = [n for d, n in enumerate(self.shape) if d != at]
    if at >= parts.sparse_dim:
        values = values_of(t).select(at - parts.sparse_dim + 1, index)
        return build(COO, parts.indices, values, size, parts.dense_dim - 1, parts.coalesced)
    which, places = _where(parts, at, parts.indices[0][at] == index)
    values = values_of(t).index_select(0, which)
    if parts.sparse_dim == 1:
        # Without sparse dims the sum of the elements is all there is.
        return values.sum(0, dtype=values.dtype)
    rest = ts.cat([places[:at], places[at + 1 :]])
    return build(COO, (rest,), values, size, parts.dense_dim, parts.coalesced)


def _select_beside_matrices(self: Tensor, at: int, index: int, batches: int) -> Tensor:
    """One of a batch of compressed matrices, or of their dense dims: in the layout of self."""
    parts, values = parts_of(self), values_of(self)
    size = [n for d, n in enumerate(self.shape) if d != at]
    if at < batches:
        indices = tuple(i.select(at, index) for i in parts.indices)
        return build(self.layout, indices, values.select(at, index), size, parts.dense_dim, parts.coalesced)
    values = values.select(at - self.dim() + values.dim(), index)
    return build(self.layout, parts.indices, values, size, parts.dense_dim - 1, parts.coalesced)


@kernel("index_select")
def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    if not is_sparse(self) or is_sparse(index):
        raise refuse("index_select", index, "expected a dense index")
    at = _wrap(dim, self.dim())
    if index.dim() > 1 or index.dtype not in (ts.int64, ts.int32):
        raise IndexError(f"index_select(): Expected a vector of int64 or int32, got {index.dtype}, shape "
                         f"{tuple(index.shape)}")  # fmt: skip
    if self.layout is not COO:
        raise refuse("index_select", self, "try .to_sparse_coo()")
    index = index.reshape(-1).long()
    extent, parts = self.shape[at], parts_of(self)
    size = [index.numel() if d == at else n for d, n in enumerate(self.shape)]
    if at >= parts.sparse_dim:
        values = values_of(self).index_select(at - parts.sparse_dim + 1, index)
        return build(COO, parts.indices, values, size, parts.dense_dim, parts.coalesced)
    if index.numel() and (int(index.min()) < -extent or int(index.max()) >= extent):
        raise IndexError(f"index_select(): index contains a value that is out of range for dimension of size {extent}")
    index = ts.where(index < 0, index + extent, index)
    # Every element meets the places that ask for its row.
    wanted, order = index.sort(stable=True)
    row = parts.indices[0][at].contiguous()
    begin = ts.searchsorted(wanted, row)
    counts = ts.searchsorted(wanted, row, right=True) - begin
    which = ts.arange(row.numel(), device=row.device).repeat_interleave(counts)
    before = counts.cumsum(0) - counts
    at_wanted = ts.arange(which.numel(), device=row.device) - before.index_select(0, which)
    fresh = order.index_select(0, at_wanted + begin.index_select(0, which))
    old = parts.indices[0].index_select(1, which)
    places = ts.cat([old[:at], fresh.unsqueeze(0), old[at + 1 :]])
    made = build(COO, (places,), values_of(self).index_select(0, which), size, parts.dense_dim)
    return coalesce(made) if parts.coalesced else made


@kernel("narrow")
def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
    at = _wrap(dim, self.dim())
    extent = self.shape[at]
    start = start + extent if start < 0 else start
    if length < 0 or start < 0 or start + length > extent:
        raise RuntimeError(f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({extent}).")
    t = to_coo(self)
    parts = parts_of(t)
    size = [length if d == at else n for d, n in enumerate(self.shape)]
    if at >= parts.sparse_dim:
        values = values_of(t).narrow(at - parts.sparse_dim + 1, start, length)
        return build(COO, parts.indices, values, size, parts.dense_dim, parts.coalesced)
    row = parts.indices[0][at]
    which, places = _where(parts, at, (row >= start) & (row < start + length))
    moved = ts.cat([places[:at], places[at : at + 1] - start, places[at + 1 :]])
    return build(COO, (moved,), values_of(t).index_select(0, which), size, parts.dense_dim, parts.coalesced)


@kernel("unbind")
def unbind(self: Tensor, dim: int = 0) -> list[Tensor]:
    at = _wrap(dim, self.dim())
    return [select(self, at, k) for k in range(self.shape[at])]


_SELECT, _SLICE = 0, 1


@kernel("basic_index")
def basic_index(self: Tensor, items: Sequence[int]) -> Tensor:
    result, at = self, 0
    for kind, first, length, step in zip(items[::4], items[1::4], items[2::4], items[3::4], strict=True):
        if not is_sparse(result):
            raise refuse("indexing", self, "what is left is dense; index it again")
        if kind == _SELECT:
            result = select(result, at, first)
        elif kind == _SLICE:
            if (first, length, step) != (0, result.shape[at], 1):
                raise refuse("indexing by a slice", self, "use narrow() or index_select(), or .to_dense()")
            at += 1
        else:
            result = unsqueeze(result, at)
            at += 1
    return result


# --- joining ---------------------------------------------------------------------------------------------------------


@kernel("cat", "concat", "concatenate")
def cat(tensors: list[Tensor], dim: int = 0) -> Tensor:
    if not all(is_sparse(each) and each.layout is COO for each in tensors):
        kinds = ", ".join(layout_name(each) for each in tensors)
        raise RuntimeError(
            f"cat: Concatenating sparse tensors, but a dense tensor or one of another layout was found, got {kinds}; "
            "try .to_sparse_coo() or .to_dense()"
        )
    first = tensors[0]
    at = _wrap(dim, first.dim())
    depth, dense_dim = parts_of(first).sparse_dim, parts_of(first).dense_dim
    for k, each in enumerate(tensors):
        if parts_of(each).sparse_dim != depth or parts_of(each).dense_dim != dense_dim:
            raise RuntimeError(f"cat: All tensors must have the same sparse_dim and dense_dim as the first, got "
                               f"{parts_of(each).sparse_dim} and {parts_of(each).dense_dim} at {k}")  # fmt: skip
        if any(a != b for d, (a, b) in enumerate(zip(each.shape, first.shape, strict=True)) if d != at):
            raise RuntimeError(
                f"cat: All tensors must have the same shape: {list(first.shape)} (except in the concatenating "
                f"dimension), but found shape {list(each.shape)} at position {k}"
            )
    size = [sum(each.shape[at] for each in tensors) if d == at else n for d, n in enumerate(first.shape)]
    indices, values, before = [], [], 0
    for each in tensors:
        places, held = parts_of(each).indices[0], values_of(each)
        if at < depth:
            places = ts.cat([places[:at], places[at : at + 1] + before, places[at + 1 :]]) if before else places
        else:
            sizes = list(held.shape)
            spans = [before, size[at] - before - each.shape[at]]
            edges = []
            for span in spans:
                sizes[at - depth + 1] = span
                edges.append(held.new_zeros(sizes))
            held = ts.cat([edges[0], held, edges[1]], at - depth + 1)
        indices.append(places)
        values.append(held)
        before += each.shape[at]
    flag = at == 0 and at < depth and all(parts_of(each).coalesced for each in tensors)
    return build(COO, (ts.cat(indices, 1),), ts.cat(values), size, dense_dim, flag)


@kernel("stack")
def stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    at = _wrap(dim, tensors[0].dim() + 1)
    for k, each in enumerate(tensors):
        if each.shape != tensors[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(tensors[0].shape)} at entry 0 and "
                f"{list(each.shape)} at entry {k}"
            )
        if not is_sparse(each):
            raise RuntimeError(f"stack: expected sparse tensors alone, got a dense one at entry {k}")
    return cat([unsqueeze(each, at) for each in tensors], at)


pass_on("hstack", "vstack", "row_stack", "dstack", "column_stack")


def _at_least(count: int, x: Tensor) -> Tensor:
    while x.dim() < count:
        x = unsqueeze(x, 0 if x.dim() < 2 else x.dim())
    return x


@kernel("atleast_1d.Sequence")
def atleast_1d(tensors: list[Tensor]) -> list[Tensor]:
    return [_at_least(1, each) for each in tensors]


@kernel("atleast_2d.Sequence")
def atleast_2d(tensors: list[Tensor]) -> list[Tensor]:
    return [_at_least(2, each) for each in tensors]


@kernel("atleast_3d.Sequence")
def atleast_3d(tensors: list[Tensor]) -> list[Tensor]:
    return [_at_least(3, each) for each in tensors]


# --- broadcasting ----------------------------------------------------------------------------------------------------


def broadcast(self: Tensor, shape: Sequence[int]) -> Tensor:
    """A coo tensor at a shape that it broadcasts to, every element in all the places where it then stands."""
    t = self
    for _ in range(len(shape) - t.dim()):
        t = unsqueeze(t, 0)
    for at, extent in enumerate(shape):
        if t.shape[at] == 1 and extent != 1:
            t = _repeated(t, at, extent)
    return t


def _repeated(t: Tensor, at: int, extent: int) -> Tensor:
    parts, values = parts_of(t), values_of(t)
    size = [extent if d == at else n for d, n in enumerate(t.shape)]
    if at >= parts.sparse_dim:
        sizes = list(values.shape)
        sizes[at - parts.sparse_dim + 1] = extent
        return build(COO, parts.indices, values.expand(sizes), size, parts.dense_dim, parts.coalesced)
    old = parts.indices[0]
    count = old.shape[1]
    row = ts.arange(extent, device=old.device).repeat_interleave(count)
    which = ts.arange(count, device=old.device).repeat(extent)
    places = old.index_select(1, which)
    places = ts.cat([places[:at], row.unsqueeze(0), places[at + 1 :]])
    made = build(COO, (places,), values.index_select(0, which), size, parts.dense_dim, parts.coalesced and at == 0)
    return coalesce(made) if parts.coalesced and at else made
