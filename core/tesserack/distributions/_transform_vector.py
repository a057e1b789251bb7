"""Transforms between vectors, simplices and triangular matrices."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions._transform_pointwise import _Simple
from tesserack.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from tesserack.nn import functional as F

__all__ = [
    "CorrCholeskyTransform",
    "LowerCholeskyTransform",
    "PositiveDefiniteTransform",
    "SoftmaxTransform",
    "StickBreakingTransform",
]


class SoftmaxTransform(_Simple):
    """y = softmax(x): onto the simplex, but not one to one."""

    domain: Any = constraints.real_vector
    codomain: Any = constraints.simplex

    def _call(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=-1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _vector(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return _vector(shape)


def _vector(shape: Any) -> Any:
    if len(shape) < 1:
        raise ValueError("Too few dimensions on input")
    return shape


class StickBreakingTransform(_Simple):
    """K numbers to a point of the simplex of K + 1, breaking a piece off a stick for each (Stan's parametrisation)."""

    domain: Any = constraints.real_vector
    codomain: Any = constraints.simplex
    bijective: Any = True

    @staticmethod
    def _offset(x: Tensor) -> Tensor:
        k = x.shape[-1]
        return ts.arange(k, 0, -1, dtype=x.dtype, device=x.device).log()

    def _call(self, x: Tensor) -> Tensor:
        z = ts.sigmoid(x - self._offset(x))
        left = (1 - z).cumprod(-1)
        return F.pad(z, [0, 1], value=1) * F.pad(left, [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        cut = y[..., :-1]
        left = (1 - cut.cumsum(-1)).clamp(min=ts.finfo(y.dtype).tiny)
        return cut.log() - left.log() + self._offset(cut)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        x = x - self._offset(x)
        return (-x + F.logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        return Size((*_vector(shape)[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        return Size((*_vector(shape)[:-1], shape[-1] - 1))


class LowerCholeskyTransform(_Simple):
    """A square matrix to a lower triangular one with positive diagonal: exp of the diagonal, the upper part dropped."""

    domain: Any = constraints.independent(constraints.real, 2)
    codomain: Any = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Simple):
    """A square matrix to a positive definite one: L L^T of `LowerCholeskyTransform`."""

    domain: Any = constraints.independent(constraints.real, 2)
    codomain: Any = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        lower = LowerCholeskyTransform()(x)
        return lower @ lower.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(ts.linalg.cholesky(y))


class CorrCholeskyTransform(_Simple):
    """D (D - 1) / 2 numbers to the Cholesky factor of a D x D correlation matrix (Stan's parametrisation).

    tanh of the numbers are partial correlations; each row spends what the squares before left.
    """

    domain: Any = constraints.real_vector
    codomain: Any = constraints.corr_cholesky
    bijective: Any = True

    def _call(self, x: Tensor) -> Tensor:
        eps = ts.finfo(x.dtype).eps
        r = vec_to_tril_matrix(ts.tanh(x).clamp(min=-1 + eps, max=1 - eps), diag=-1)
        left = (1 - r**2).sqrt().cumprod(-1)
        r = r + ts.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * F.pad(left[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - ts.cumsum(y * y, dim=-1)
        left = F.pad(left[..., :-1], [1, 0], value=1)
        y_vec = tril_matrix_to_vec(y, diag=-1)
        t = y_vec / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor, intermediates: Any = None) -> Any:
        left = 1 - (y * y).cumsum(dim=-1)
        scales = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        tanhs = -2 * (x + F.softplus(-2 * x) - math.log(2.0)).sum(dim=-1)
        return scales + tanhs

    def forward_shape(self, shape: Any) -> Any:
        count = _vector(shape)[-1]
        d = round((0.25 + 2 * count) ** 0.5 + 0.5)
        if d * (d - 1) // 2 != count:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], d, d))

    def inverse_shape(self, shape: Any) -> Any:
        if len(shape) < 2:
            raise ValueError("Too few dimensions on input")
        if shape[-2] != shape[-1]:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))
