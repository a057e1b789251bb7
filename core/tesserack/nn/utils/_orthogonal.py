"""Matrices with orthonormal columns or rows as functions of free parameters."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.modules.module import Module
from tesserack.nn.utils import parametrize

_MAPS = ("matrix_exp", "cayley", "householder")
_linalg: Any = ts.linalg


def _with_positive_factor(a: Tensor) -> Tensor:
    """The orthogonal factor of QR, of which there is one once R's diagonal is positive."""
    q, r = _linalg.qr(a)
    q *= r.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)
    return q  # type: ignore[no-any-return]


def _is_orthogonal(q: Tensor) -> bool:
    eye = ts.eye(q.shape[-1], dtype=q.dtype, device=q.device)
    eps = 10 * q.shape[-2] * ts.finfo(q.dtype).eps
    return bool(ts.allclose(q.mH @ q, eye, atol=eps))


class _Orthogonal(Module):
    """Computes a tall matrix; of a wide one it is the transpose."""

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        self.use_trivialization = use_trivialization
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        wide = X.shape[-2] < X.shape[-1]
        X = X.mT if wide else X
        Q = self._reflections(X) if self.orthogonal_map == "householder" else self._rotation(X)
        if self.use_trivialization and self.base is not None:
            Q = self.base @ Q
        return Q.mT if wide else Q

    def _rotation(self, X: Tensor) -> Tensor:
        """Of the skew-symmetric matrix that X's lower triangle gives."""
        rows, columns = X.shape[-2:]
        X = X.tril()
        if rows != columns:
            X = ts.cat([X, X.new_zeros(*X.shape[:-1], rows - columns)], -1)
        A = X - X.mH
        if self.orthogonal_map == "matrix_exp":
            Q = _linalg.matrix_exp(A)
        else:
            eye = ts.eye(rows, dtype=A.dtype, device=A.device)
            Q = _linalg.solve(eye - A / 2, eye + A / 2)
        return Q[..., :columns]  # type: ignore[no-any-return]

    def _reflections(self, X: Tensor) -> Tensor:
        """The product of reflections whose vectors stand below X's diagonal; the diagonal holds signs."""
        A = X.tril(-1)
        tau = 2 / (1 + (A * A).sum(-2))
        Q = _linalg.householder_product(A, tau)
        return Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)  # type: ignore[no-any-return]

    def right_inverse(self, Q: Tensor) -> Tensor:
        if Q.shape != self.shape:
            raise ValueError(
                f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of {Q.shape}."
            )
        rows, columns = Q.shape[-2:]
        wide = rows < columns
        tall = Q.mT if wide else Q
        if self.use_trivialization:
            self.base = self._base(tall)
            start = ts.zeros_like(Q)
            start.diagonal(dim1=-2, dim2=-1).fill_(-1)  # of which both maps make the first columns of the identity
            return start
        if self.orthogonal_map != "householder":
            raise NotImplementedError(
                "It is not possible to assign to the matrix exponential or the Cayley parametrizations "
                "when use_trivialization=False."
            )
        A, tau = ts.geqrf(tall)
        signs = A.diagonal(dim1=-2, dim2=-1)
        signs.sign_()
        signs[tau == 0] *= -1  # no reflection was needed, and there will be one
        return A.mT if wide else A

    def _base(self, Q: Tensor) -> Tensor:
        """A square orthogonal matrix, or one of Q's shape for reflections, whose first columns are Q's made so."""
        rows, columns = Q.shape[-2:]
        if rows == columns:
            return Q.clone() if _is_orthogonal(Q) else _with_positive_factor(Q)
        more = ts.randn(*Q.shape[:-1], rows - columns, dtype=Q.dtype, device=Q.device)
        return _with_positive_factor(ts.cat([Q, more], -1))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """The tensor as a matrix, or a batch of them, with orthonormal columns, or rows where it is wide.

    Args:
        module: whose parameter ``name``, (..., m, n), becomes orthogonal.
        orthogonal_map: ``"matrix_exp"`` of a skew-symmetric matrix, its ``"cayley"`` transform, or a product of
            ``"householder"`` reflections; the first for square and complex matrices, the last for others.
        use_trivialization: times a fixed matrix, ``parametrizations.<name>[0].base``, that starts at the parameter's
            value (Lezcano-Casado, arXiv:1909.09501).

    Raises ``ValueError`` for an unknown map, fewer than two dims, or reflections of complex matrices.

    >>> import tesserack as ts
    >>> from tesserack import nn
    >>> q = orthogonal(nn.Linear(3, 5)).weight
    >>> bool(ts.allclose(q.T @ q, ts.eye(3), atol=1e-6))
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.shape[-2] == weight.shape[-1]
        orthogonal_map = "matrix_exp" if square or weight.is_complex() else "householder"
    if orthogonal_map not in _MAPS:
        raise ValueError(
            f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}'
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization)
    return parametrize.register_parametrization(module, name, made, unsafe=True)
