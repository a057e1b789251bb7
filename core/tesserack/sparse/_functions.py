"""Functions of sparse tensors that PyTorch has in its main namespace."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.sparse._methods import resize_as_sparse_
from tesserack.sparse._products import hspmm, smm, sspaddmm

__all__ = [
    "ccol_indices_copy",
    "col_indices_copy",
    "crow_indices_copy",
    "dsmm",
    "hsmm",
    "hspmm",
    "indices_copy",
    "native_norm",
    "resize_as_sparse_",
    "row_indices_copy",
    "saddmm",
    "smm",
    "spmm",
    "sspaddmm",
    "values_copy",
]


def spmm(input: Tensor, mat2: Tensor) -> Tensor:
    """``mm``: a matrix product of which factors may be sparse."""
    return ts.mm(input, mat2)


def dsmm(input: Tensor, mat2: Tensor) -> Tensor:
    """``mm`` under an older name."""
    return ts.mm(input, mat2)


def hsmm(mat1: Tensor, mat2: Tensor) -> Tensor:
    """:func:`hspmm` under an older name."""
    return hspmm(mat1, mat2)


def saddmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    """``beta * input + alpha * (mat1 @ mat2)`` of two sparse matrices and a dense one: :func:`sspaddmm`."""
    return sspaddmm(input, mat1, mat2, beta=beta, alpha=alpha)


def native_norm(
    input: Tensor,
    p: Any = 2,
    dim: Any = None,
    keepdim: bool = False,
    dtype: Any = None,
) -> Tensor:
    """``input.norm(p)`` of a sparse tensor."""
    return ts.norm(input, p, dim, keepdim, dtype=dtype)


def indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.indices()``."""
    return input.indices().clone()


def values_copy(input: Tensor) -> Tensor:
    """A copy of ``input.values()``."""
    return input.values().clone()


def crow_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.crow_indices()``."""
    return input.crow_indices().clone()


def col_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.col_indices()``."""
    return input.col_indices().clone()


def ccol_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.ccol_indices()``."""
    return input.ccol_indices().clone()


def row_indices_copy(input: Tensor) -> Tensor:
    """A copy of ``input.row_indices()``."""
    return input.row_indices().clone()
