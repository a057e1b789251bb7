"""Sparse tensors: coordinates (coo), compressed rows and columns (csr, csc), and of blocks (bsr, bsc).

>>> import tesserack as ts
>>> edges = ts.tensor([[0, 1, 1], [1, 0, 2]])
>>> graph = ts.sparse_coo_tensor(edges, ts.ones(3), (3, 3))
>>> graph @ ts.tensor([[1.0], [2.0], [4.0]])
tensor([[2.],
        [5.],
        [0.]])
"""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.sparse import _copies, _elementwise, _optim, _reduce, _shape
from tesserack.sparse import _products as _products
from tesserack.sparse._construct import check_sparse_tensor_invariants as check_sparse_tensor_invariants
from tesserack.sparse._parts import is_sparse as _is_sparse
from tesserack.sparse._products import add_product as _add_product
from tesserack.sparse._products import sampled_addmm as sampled_addmm
from tesserack.sparse._spdiags import spdiags as spdiags

__all__ = [
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]

_REGISTERED = (_copies, _elementwise, _optim, _reduce, _shape)


def mm(mat1: Tensor, mat2: Tensor, reduce: str | None = None) -> Tensor:
    """The product of two matrices of which one or both are sparse; a sparse one's gradient has its pattern.

    Args:
        mat1: (n, m).
        mat2: (m, p).
        reduce: of a csr and a dense matrix, what to make of each row's terms: ``"sum"``, ``"mean"``, ``"amax"``,
            ``"amin"``.

    Returns:
        (n, p), sparse if both are. ``RuntimeError`` for shapes or dtypes that do not fit.

    >>> import tesserack as ts
    >>> ts.sparse.mm(ts.eye(2).to_sparse(), ts.ones(2, 1))
    tensor([[1.],
            [1.]])
    """
    if reduce is not None:
        return _products.spmm_reduce("sparse.mm", mat1, mat2, reduce)
    if not _is_sparse(mat1) and not _is_sparse(mat2):
        raise RuntimeError("sparse.mm: expected a sparse matrix among the two, got strided ones; use mm()")
    return _products.masked_mm("sparse.mm", mat1, mat2)


def addmm(mat: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0) -> Tensor:
    """``beta * mat + alpha * (mat1 @ mat2)``; a sparse factor's gradient has its pattern."""
    return _add_product("sparse.addmm", mat, mat1, mat2, beta, alpha, True)


def sum(input: Tensor, dim: Any = None, dtype: Any = None) -> Tensor:
    """Sums over all dims (None), or some: dense where no sparse dim is left, else sparse.

    The gradient has the pattern of ``input``.

    >>> import tesserack as ts
    >>> ts.sparse.sum(ts.eye(3).to_sparse())
    tensor(3.)
    """
    return _reduce.sparse_sum(input, dim, dtype)


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Softmax along ``dim`` over the elements that are there; what is not there counts as minus infinity.

    >>> import tesserack as ts
    >>> x = ts.sparse_coo_tensor([[0, 0], [1, 2]], [1.0, 1.0], (2, 3))
    >>> ts.sparse.softmax(x, 1).to_dense()
    tensor([[0.0000, 0.5000, 0.5000],
            [0.0000, 0.0000, 0.0000]])
    """
    return _reduce.sparse_softmax("softmax", input, dim, dtype, False)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """The logarithm of :func:`softmax`, of the elements that are there."""
    return _reduce.sparse_softmax("log_softmax", input, dim, dtype, True)


def as_sparse_gradcheck(gradcheck: Any) -> Any:
    """``gradcheck`` for functions of sparse tensors too: their values are what is moved and compared."""
    from tesserack.sparse._gradcheck import as_sparse_gradcheck as wrapped

    return wrapped(gradcheck)


def __getattr__(name: str) -> Any:
    if name.endswith("Tensor"):
        from tesserack.sparse import _typed

        if name in _typed.NAMES:
            return getattr(_typed, name)
    raise AttributeError(f"module 'tesserack.sparse' has no attribute {name!r}")
