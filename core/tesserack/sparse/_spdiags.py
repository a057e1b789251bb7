"""A sparse matrix from its diagonals."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.sparse._parts import COO, CSC, CSR, build

__all__ = ["spdiags"]


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Tensor:
    """A sparse matrix with row k of ``diagonals`` on the diagonal ``offsets[k]``; element j of it is in column j.

    Args:
        diagonals: (d, n), or (n,).
        offsets: int64 (d,), no two alike; or a number's tensor.
        shape: (rows, columns).
        layout: ``sparse_coo`` (the default), ``sparse_csr`` or ``sparse_csc``.

    Raises:
        RuntimeError: shapes, offsets or a layout that do not fit.

    >>> import tesserack as ts
    >>> ts.sparse.spdiags(ts.ones(2, 3), ts.tensor([0, 1]), (3, 3)).to_dense()
    tensor([[1., 1., 0.],
            [0., 1., 1.],
            [0., 0., 1.]])
    """
    shape = tuple(int(n) for n in shape)
    diagonals = diagonals.unsqueeze(0) if diagonals.dim() == 1 else diagonals
    offsets = offsets.unsqueeze(0) if offsets.dim() == 0 else offsets
    if diagonals.dim() != 2:
        raise RuntimeError(f"spdiags(): Diagonals must be vector or matrix, got shape {tuple(diagonals.shape)}")
    if len(shape) != 2:
        raise RuntimeError(f"spdiags(): Output shape must be 2d, got {shape}")
    if offsets.dim() != 1 or offsets.shape[0] != diagonals.shape[0]:
        raise RuntimeError(
            f"spdiags(): Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets "
            f"({offsets.numel()})"
        )
    if offsets.dtype is not _native.int64:
        raise RuntimeError(f"spdiags(): Offset Tensor must have dtype Long but got {offsets.dtype}")
    if offsets.unique().numel() != offsets.numel():
        raise RuntimeError("spdiags(): Offset tensor contains duplicate values")
    if layout not in (None, COO, CSR, CSC):
        raise RuntimeError(f"spdiags(): Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    columns = ts.arange(diagonals.shape[1], device=diagonals.device).expand(diagonals.shape)
    rows = columns - offsets.unsqueeze(1)
    inside = (rows >= 0) & (rows < shape[0]) & (columns < shape[1])
    places = ts.stack([rows[inside], columns[inside]])
    made = build(COO, (places,), diagonals[inside], shape)
    return made if layout in (None, COO) else made.to_sparse(layout=layout)
