"""The standard's ``linalg`` extension: the functions of ``tesserack.linalg``, with ``axis`` and ``keepdims``."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.array_api import _statistics
from tesserack.ops.array_api._shapes import matrix_transpose, result_type
from tesserack.ops.linalg import det, eig, eigvals, inv, matrix_power, slogdet, solve, svdvals

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals",
    "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip


def _promoted(op: str, *arrays: Tensor) -> tuple[Tensor, ...]:
    """All in the dtype that the standard promotes theirs to, whatever dims they have."""
    if refused := [a.dtype for a in arrays if a.dtype is ts.bool]:
        raise TypeError(f"{op}: expected numbers, got {refused[0]}")
    kind = result_type(*arrays)
    return tuple(a.to(kind) for a in arrays)


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of matrices, of vectors, or of batches of matrices, in the dtype that both are promoted to."""
    return ts.matmul(*_promoted("matmul", x1, x2))


def eigh(x: Tensor, /) -> Any:
    """The eigenvalues and eigenvectors of Hermitian matrices."""
    return ts.linalg.eigh(x)


def eigvalsh(x: Tensor, /) -> Tensor:
    """The eigenvalues of Hermitian matrices."""
    return ts.linalg.eigvalsh(x)  # type: ignore[no-any-return]


def qr(x: Tensor, /, *, mode: str = "reduced") -> Any:
    """The product of an orthogonal and an upper triangular matrix; ``mode`` is "reduced" or "complete"."""
    if mode not in ("reduced", "complete"):
        raise ValueError(f"qr: expected the mode 'reduced' or 'complete', got {mode!r}")
    return ts.linalg.qr(x, mode)


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """The triangular factor of positive definite matrices."""
    return ts.linalg.cholesky(x, upper=upper)  # type: ignore[no-any-return]


def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The cross product of vectors of three elements, of arrays that broadcast."""
    x1, x2 = _promoted("cross", x1, x2)
    if not -min(x1.dim(), x2.dim()) <= axis < 0 and x1.dim() != x2.dim():
        raise ValueError(f"cross: expected a negative axis of arrays of {x1.dim()} and {x2.dim()} axes, got {axis}")
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ValueError(f"cross: expected vectors of 3 elements, got {x1.shape[axis]} and {x2.shape[axis]}")
    x1, x2 = ts.broadcast_tensors(x1, x2)
    return ts.linalg.cross(x1, x2, dim=axis)  # type: ignore[no-any-return]


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """A diagonal of matrices."""
    return ts.diagonal(x, offset, -2, -1)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """A norm of matrices."""
    return ts.linalg.matrix_norm(x, ord, (-2, -1), keepdims)  # type: ignore[no-any-return]


def matrix_rank(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The number of singular values above ``rtol`` times the largest."""
    return ts.linalg.matrix_rank(x, rtol=rtol)  # type: ignore[no-any-return]


def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The products of each two elements of two vectors."""
    return ts.outer(*_promoted("outer", x1, x2))


def pinv(x: Tensor, /, *, rtol: float | Tensor | None = None) -> Tensor:
    """The pseudo-inverse."""
    return ts.linalg.pinv(x, rtol=rtol)  # type: ignore[no-any-return]


def svd(x: Tensor, /, *, full_matrices: bool = True) -> Any:
    """The singular value decomposition."""
    return ts.linalg.svd(x, full_matrices)


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Products summed over axes of both."""
    x1, x2 = _promoted("tensordot", x1, x2)
    return ts.tensordot(x1, x2, axes)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sum of a diagonal of matrices; dtypes as of ``sum``."""
    return _statistics.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The products of vectors, the first conjugated."""
    if not -min(x1.dim(), x2.dim()) <= axis < 0:
        raise ValueError(f"vecdot: expected a negative axis of both arrays, got {axis}")
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"vecdot: expected vectors of one length, got {x1.shape[axis]} and {x2.shape[axis]}")
    kind = ts.promote_types(x1.dtype, x2.dtype)
    return ((x1.conj() if x1.is_complex() else x1) * x2).sum(axis).to(kind)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: float = 2) -> Tensor:
    """A norm of vectors along axes, or of everything."""
    return ts.linalg.vector_norm(x, ord, axis, keepdims)  # type: ignore[no-any-return]
