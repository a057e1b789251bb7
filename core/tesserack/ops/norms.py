"""Norms under the names that programs from before ``linalg`` use."""

from __future__ import annotations

from collections.abc import Sequence

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.results import deliver

__all__ = ["frobenius_norm", "norm_except_dim", "nuclear_norm"]


def frobenius_norm(
    input: Tensor, dim: int | Sequence[int] = (), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The root of the sum of squares along at most two dims, over everything if there are none.

    >>> import tesserack as ts
    >>> ts.frobenius_norm(ts.tensor([[3.0, 0.0], [0.0, 4.0]]), (0, 1)).item()
    5.0
    """
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    if len(dims) > 2:
        raise RuntimeError(f"frobenius_norm: expected at most 2 dims, got {dims}")
    norm = ts.linalg.vector_norm(input, 2, dims or None, keepdim)
    return deliver("frobenius_norm", norm, out)


def nuclear_norm(
    input: Tensor, dim: Sequence[int] | bool = (-2, -1), keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The sum of the singular values of matrices, which lie along the two ``dim``.

    >>> import tesserack as ts
    >>> round(ts.nuclear_norm(ts.eye(3)).item(), 4)
    3.0
    """
    if isinstance(dim, bool):  # the form without dim takes keepdim there
        return nuclear_norm(input, (-2, -1), dim, out=out)
    return deliver("nuclear_norm", ts.linalg.matrix_norm(input, "nuc", tuple(dim), keepdim), out)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of each slice along the first or last ``dim``, as weight normalisation uses it; of everything for -1.

    >>> import tesserack as ts
    >>> ts.norm_except_dim(ts.ones(2, 4), 2, 0).tolist()
    [[2.0], [2.0]]
    """
    if dim == -1:
        return v.norm(pow)
    others = [d for d in range(v.dim()) if d != dim]
    return ts.linalg.vector_norm(v, pow, others, True) if others else v.abs()
