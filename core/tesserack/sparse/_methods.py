"""Methods of Tensor that ask a sparse tensor for its parts, or change its layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.sparse._convert import sparse_mask, to_dense, to_layout, to_sparse
from tesserack.sparse._dispatch import replace
from tesserack.sparse._parts import (
    BSC,
    BSR,
    COLUMNS,
    COO,
    CSC,
    CSR,
    Parts,
    coalesce,
    is_sparse,
    layout_text,
    make,
    parts_of,
    values_of,
)
from tesserack.sparse._products import smm, sspaddmm

__all__ = [
    "_coalesced_",
    "_dimI",
    "_dimV",
    "_indices",
    "_nnz",
    "_values",
    "ccol_indices",
    "coalesce_method",
    "col_indices",
    "crow_indices",
    "dense_dim",
    "indices",
    "is_coalesced",
    "resize_as_sparse_",
    "row_indices",
    "smm",
    "sparse_dim",
    "sparse_mask",
    "sparse_resize_",
    "sparse_resize_and_clear_",
    "sspaddmm",
    "to_dense",
    "to_sparse",
    "to_sparse_bsc",
    "to_sparse_bsr",
    "to_sparse_coo",
    "to_sparse_csc",
    "to_sparse_csr",
    "values",
]


def _coo(op: str, self: Tensor) -> Parts:
    if self.layout is not COO:
        raise RuntimeError(f"{op} expected sparse coordinate tensor layout but got {layout_text(self)}")
    return parts_of(self)


def coalesce_method(self: Tensor) -> Tensor:
    """A coo tensor with unique indices in order, equal ones added up; the tensor itself if its are."""
    _coo("coalesce", self)
    return coalesce(self)


def is_coalesced(self: Tensor) -> bool:
    """Whether a coo tensor is known to have unique indices in order."""
    return _coo("is_coalesced", self).coalesced


def _coalesced_(self: Tensor, coalesced: bool) -> Tensor:
    """Say whether the indices of a coo tensor are unique and in order; returns it."""
    parts = _coo("_coalesced_", self)
    replace(self, make(COO, parts.indices, parts.values, self.shape, parts.dense_dim, coalesced, exact=True))
    return self


def indices(self: Tensor) -> Tensor:
    """Coordinates (sparse_dim, nnz) of a coalesced coo tensor."""
    if not _coo("indices", self).coalesced:
        raise RuntimeError("Cannot get indices on an uncoalesced tensor, please call .coalesce() first")
    return parts_of(self).indices[0].detach()


def values(self: Tensor) -> Tensor:
    """The elements, (nnz, *dense sizes), of a coalesced coo or a compressed tensor; with gradients."""
    if not is_sparse(self):
        raise RuntimeError(f"values expected sparse tensor layout but got {layout_text(self)}")
    if self.layout is COO and not parts_of(self).coalesced:
        raise RuntimeError("Cannot get values on an uncoalesced tensor, please call .coalesce() first")
    found = values_of(self)
    return found if found.requires_grad else found.detach()


def _indices(self: Tensor) -> Tensor:
    """Coordinates (sparse_dim, nnz) as they are, coalesced or not."""
    return _coo("_indices", self).indices[0]


def _values(self: Tensor) -> Tensor:
    """The elements as they are, without history."""
    return _coo("_values", self).values


def _nnz(self: Tensor) -> int:
    """How many elements, or blocks, are there; of one matrix of a batch."""
    if not is_sparse(self):
        raise NotImplementedError("_nnz: expected a sparse tensor, got layout strided; try .to_sparse()")
    found: int = parts_of(self).indices[-1].shape[-1]
    return found


def sparse_dim(self: Tensor) -> int:
    """The number of sparse dims: 0 of a strided tensor."""
    return parts_of(self).sparse_dim if is_sparse(self) else 0


def dense_dim(self: Tensor) -> int:
    """The number of dense dims: all of a strided tensor."""
    return parts_of(self).dense_dim if is_sparse(self) else self.dim()


_dimI, _dimV = sparse_dim, dense_dim


def _part(op: str, kinds: tuple[Any, ...], which: int, text: str, self: Tensor) -> Tensor:
    if self.layout not in kinds:
        raise RuntimeError(f"{op} expected sparse {text} compressed tensor layout but got {layout_text(self)}")
    return parts_of(self).indices[which].detach()


def crow_indices(self: Tensor) -> Tensor:
    """Where the rows of a csr or bsr tensor begin, (*batch, rows + 1)."""
    return _part("crow_indices", (CSR, BSR), 0, "row", self)


def col_indices(self: Tensor) -> Tensor:
    """The columns of the elements of a csr or bsr tensor, (*batch, nnz)."""
    return _part("col_indices", (CSR, BSR), 1, "row", self)


def ccol_indices(self: Tensor) -> Tensor:
    """Where the columns of a csc or bsc tensor begin, (*batch, columns + 1)."""
    return _part("ccol_indices", COLUMNS, 0, "column", self)


def row_indices(self: Tensor) -> Tensor:
    """The rows of the elements of a csc or bsc tensor, (*batch, nnz)."""
    return _part("row_indices", COLUMNS, 1, "column", self)


def to_sparse_coo(self: Tensor) -> Tensor:
    """The tensor in coordinates."""
    return to_sparse(self)


def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of them, in compressed rows."""
    return to_layout(self, CSR, None, dense_dim)


def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of them, in compressed columns."""
    return to_layout(self, CSC, None, dense_dim)


def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of them, in compressed rows of blocks."""
    return to_layout(self, BSR, blocksize, dense_dim)


def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Tensor:
    """The matrix, or batch of them, in compressed columns of blocks."""
    return to_layout(self, BSC, blocksize, dense_dim)


def _resized(op: str, self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> tuple[Parts, tuple[int, ...]]:
    parts = _coo(op, self)
    if _native.is_grad_enabled() and self.requires_grad:
        raise RuntimeError(f"{op}: cannot resize variables that require grad")
    shape = tuple(int(n) for n in size)
    if sparse_dim + dense_dim != len(shape):
        raise RuntimeError(
            f"{op}: number of dimensions must be sparse_dim ({sparse_dim}) + dense_dim ({dense_dim}), but got "
            f"{len(shape)}"
        )
    return parts, shape


def sparse_resize_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a coo tensor other sizes in place, keeping its elements; sizes and numbers of dims may shrink only of a
    tensor without elements. Returns it.
    """
    parts, shape = _resized("sparse_resize_", self, size, sparse_dim, dense_dim)
    count = parts.indices[0].shape[1]
    if count:
        if (sparse_dim, dense_dim) != (parts.sparse_dim, parts.dense_dim):
            raise RuntimeError("sparse_resize_: changing the number of sparse or dense dimensions of a non-empty "
                               "sparse tensor is not supported; see sparse_resize_and_clear_")  # fmt: skip
        if any(new < old for new, old in zip(shape, self.shape, strict=True)):
            raise RuntimeError("sparse_resize_: shrinking the size of dimensions of a non-empty sparse tensor is not "
                               "supported; see sparse_resize_and_clear_")  # fmt: skip
    held = parts.values
    grown = held.new_zeros((count, *shape[sparse_dim:]))
    if count:  # in the order of memory, as a dense tensor is resized
        grown.view(-1)[: held.numel()] = held.reshape(-1)
    at = parts.indices[0] if count else parts.indices[0].new_zeros((sparse_dim, 0))
    _native._set_sparse(self, shape, COO, (at, grown), sparse_dim, dense_dim, parts.coalesced)
    return self


def resize_as_sparse_(self: Tensor, the_template: Tensor) -> Tensor:
    """Give a coo tensor the sizes and numbers of sparse and dense dims of another, keeping its elements."""
    other = _coo("resize_as_sparse_", the_template)
    return sparse_resize_(self, the_template.shape, other.sparse_dim, other.dense_dim)


def sparse_resize_and_clear_(self: Tensor, size: Any, sparse_dim: int, dense_dim: int) -> Tensor:
    """Give a coo tensor other sizes in place and take its elements out; returns it."""
    parts, shape = _resized("sparse_resize_and_clear_", self, size, sparse_dim, dense_dim)
    at = parts.indices[0].new_zeros((sparse_dim, 0))
    held = parts.values.new_zeros((0, *shape[sparse_dim:]))
    _native._set_sparse(self, shape, COO, (at, held), sparse_dim, dense_dim, True)
    return self


def resize_compressed_(self: Tensor, size: Any) -> Tensor:
    """``resize_`` of csr matrices: rows are added without elements, or taken off, columns are added.

    As in PyTorch no more elements stay than the sizes have room for, and of fewer batch dims the first of them stay.
    """
    if self.layout is not CSR:
        raise RuntimeError(f"resize_: sparse tensors of layout {self.layout} do not have memory to resize; see "
                           "sparse_resize_ for coo ones, ask one of their parts, or use to_dense()")  # fmt: skip
    shape = tuple(int(n) for n in size)
    if len(shape) < 2:
        raise RuntimeError(f"torch.resize_: Only batched sparse CSR matrices are supported, but got size {list(shape)}")
    *batch, rows, columns = shape
    if columns < self.shape[-1]:
        raise RuntimeError(
            "torch.resize_: Resizing columns of sparse CSR tensors to a smaller value is not supported. The original "
            f"number of columns is {self.shape[-1]} and the requested one is {columns}"
        )
    parts = parts_of(self)
    counts, places = (_of_batch(held, batch) for held in parts.indices)
    held = _of_batch(parts.values, batch)
    before, total = counts.shape[-1] - 1, held.shape[-1]
    kept = min(total, rows * columns)
    counts = counts[..., : rows + 1].clamp(max=kept)
    counts[..., -1:] = kept
    if rows > before:
        counts = ts.cat([counts, counts[..., -1:].expand(*batch, rows - before)], -1)
    parts_kept = counts, places[..., :kept].contiguous(), held[..., :kept].contiguous()
    _native._set_sparse(self, shape, CSR, parts_kept, 2, 0, True)
    return self


def _of_batch(held: Tensor, batch: Sequence[int]) -> Tensor:
    """The first of the rows as a batch of those sizes."""
    flat, count = held.reshape(-1, held.shape[-1]), math.prod(batch)
    if count > flat.shape[0]:
        raise RuntimeError(f"resize_: expected no more matrices than there are, {flat.shape[0]}, got batch {batch}")
    return flat[:count].reshape(*batch, held.shape[-1])
