"""Normal distributions of vectors."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import lazy_property

__all__ = ["LowRankMultivariateNormal", "MultivariateNormal"]


def batch_mahalanobis(scale_tril: Tensor, diff: Tensor) -> Tensor:
    """|L^-1 x|^2 for L (..., n, n) and x (..., n), which broadcast."""
    shape = ts.broadcast_shapes(scale_tril.shape[:-2], diff.shape[:-1])
    n = diff.shape[-1]
    if scale_tril.ndim == 2:  # one factor for all: a single solve with many columns
        columns = diff.reshape(-1, n).T
        solved = ts.linalg.solve_triangular(scale_tril, columns, upper=False)
        return solved.pow(2).sum(0).reshape(diff.shape[:-1])  # type: ignore[no-any-return]
    solved = ts.linalg.solve_triangular(
        scale_tril.expand((*shape, n, n)), diff.expand((*shape, n)).unsqueeze(-1), upper=False
    )
    return solved.squeeze(-1).pow(2).sum(-1)  # type: ignore[no-any-return]


def precision_to_scale_tril(precision: Tensor) -> Tensor:
    """The lower Cholesky factor of the inverse of ``precision`` (..., n, n)."""
    # With both orders flipped, the Cholesky factor of P is upper: its inverse transposed is lower.
    flipped = ts.linalg.cholesky(ts.flip(precision, (-2, -1)))
    inverse = ts.flip(flipped, (-2, -1)).mT
    identity = ts.eye(precision.shape[-1], dtype=precision.dtype, device=precision.device)
    return ts.linalg.solve_triangular(inverse, identity, upper=False)  # type: ignore[no-any-return]


def the_one_given(**matrices: Tensor | None) -> tuple[str, Tensor]:
    """The name and value of the only one that is not None. ``ValueError`` for none, several, or one of a single dim."""
    given = [(name, matrix) for name, matrix in matrices.items() if matrix is not None]
    if len(given) != 1:
        raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
    name, matrix = given[0]
    if matrix.dim() < 2:
        raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
    return name, matrix


class MultivariateNormal(Distribution):
    """The normal distribution of vectors (n), by mean ``loc`` and one of covariance, precision or its Cholesky factor.

    >>> import tesserack as ts
    >>> MultivariateNormal(ts.zeros(2), ts.eye(2)).log_prob(ts.zeros(2))
    tensor(-1.8379)
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support: Any = constraints.real_vector
    has_rsample: Any = True

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        name, matrix = the_one_given(
            covariance_matrix=covariance_matrix, scale_tril=scale_tril, precision_matrix=precision_matrix
        )
        batch_shape = ts.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        self.loc = loc.expand((*batch_shape, -1))
        super().__init__(batch_shape, self.loc.shape[-1:], validate_args=validate_args)
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = ts.linalg.cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = precision_to_scale_tril(matrix)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        matrices = ("covariance_matrix", "scale_tril", "precision_matrix")
        new = self._expanded(MultivariateNormal, batch_shape, matrices, _instance, event_dims=2)
        new.loc = self.loc.expand((*new.batch_shape, *self.event_shape))
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        return new

    def _matrix_shape(self) -> Size:
        return self._batch_shape + self._event_shape + self._event_shape

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._matrix_shape())

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return ts.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._matrix_shape())

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return self._unbroadcasted_scale_tril.pow(2).sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        eps = ts.randn(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + (self._unbroadcasted_scale_tril @ eps.unsqueeze(-1)).squeeze(-1)

    def _half_log_det(self) -> Tensor:
        return self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        distance = batch_mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - self._half_log_det()

    def entropy(self) -> Tensor:
        value = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._half_log_det()
        return value.expand(self._batch_shape)


def capacitance_tril(factor: Tensor, diagonal: Tensor) -> Tensor:
    """The Cholesky factor of I + W^T D^-1 W, for W (..., n, r) and D's diagonal (..., n)."""
    scaled = factor.mT / diagonal.unsqueeze(-2)
    identity = ts.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return ts.linalg.cholesky(scaled @ factor + identity)  # type: ignore[no-any-return]


def lowrank_log_det(diagonal: Tensor, capacitance: Tensor) -> Tensor:
    """log det(W W^T + D), by the matrix determinant lemma."""
    return 2 * capacitance.diagonal(dim1=-2, dim2=-1).log().sum(-1) + diagonal.log().sum(-1)


def lowrank_mahalanobis(factor: Tensor, diagonal: Tensor, diff: Tensor, capacitance: Tensor) -> Tensor:
    """x^T (W W^T + D)^-1 x, by Woodbury's identity."""
    scaled = factor.mT / diagonal.unsqueeze(-2)
    projected = (scaled @ diff.unsqueeze(-1)).squeeze(-1)
    return (diff.pow(2) / diagonal).sum(-1) - batch_mahalanobis(capacitance, projected)


class LowRankMultivariateNormal(Distribution):
    """The normal distribution of covariance W W^T + D: ``cov_factor`` W (n, r), ``cov_diag`` the diagonal of D (n)."""

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support: Any = constraints.real_vector
    has_rsample: Any = True

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        event_shape = loc.shape[-1:]
        if cov_factor.shape[-2:-1] != event_shape:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event_shape[0]} x m")
        if cov_diag.shape[-1:] != event_shape:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {tuple(event_shape)}")
        try:
            batch_shape = ts.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as e:
            raise ValueError(
                f"Incompatible batch shapes: loc {tuple(loc.shape)}, cov_factor {tuple(cov_factor.shape)}, "
                f"cov_diag {tuple(cov_diag.shape)}"
            ) from e
        self.loc = loc.expand((*batch_shape, *event_shape))
        self.cov_factor = cov_factor.expand((*batch_shape, *cov_factor.shape[-2:]))
        self.cov_diag = cov_diag.expand((*batch_shape, *event_shape))
        self._unbroadcasted_cov_factor = cov_factor
        self._unbroadcasted_cov_diag = cov_diag
        self._capacitance_tril = capacitance_tril(cov_factor, cov_diag)
        super().__init__(batch_shape, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(LowRankMultivariateNormal, batch_shape, ("cov_factor",), _instance, event_dims=2)
        new.loc = self.loc.expand((*new.batch_shape, *self.event_shape))
        new.cov_diag = self.cov_diag.expand((*new.batch_shape, *self.event_shape))
        for name in ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril"):
            setattr(new, name, getattr(self, name))
        return new

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    def _matrix_shape(self) -> Size:
        return self._batch_shape + self._event_shape + self._event_shape

    @lazy_property
    def variance(self) -> Tensor:
        """The variance, elementwise."""
        value = self._unbroadcasted_cov_factor.pow(2).sum(-1) + self._unbroadcasted_cov_diag
        return value.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the covariance."""
        # D^1/2 times the factor of I + D^-1/2 W W^T D^-1/2, which is well conditioned.
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        identity = ts.eye(self._event_shape[0], dtype=self.loc.dtype, device=self.loc.device)
        return (root * ts.linalg.cholesky(scaled @ scaled.mT + identity)).expand(self._matrix_shape())  # type: ignore[no-any-return]

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        return (factor @ factor.mT + ts.diag_embed(self._unbroadcasted_cov_diag)).expand(self._matrix_shape())

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance, by Woodbury's identity."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        a = ts.linalg.solve_triangular(self._capacitance_tril, scaled, upper=False)
        value = ts.diag_embed(self._unbroadcasted_cov_diag.reciprocal()) - a.mT @ a
        return value.expand(self._matrix_shape())  # type: ignore[no-any-return]

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        rank = self.cov_factor.shape[-1]
        eps_w = ts.randn((*shape[:-1], rank), dtype=self.loc.dtype, device=self.loc.device)
        eps_d = ts.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        low = (self._unbroadcasted_cov_factor @ eps_w.unsqueeze(-1)).squeeze(-1)
        return self.loc + low + self._unbroadcasted_cov_diag.sqrt() * eps_d

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        parts = self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag
        distance = lowrank_mahalanobis(*parts, value - self.loc, self._capacitance_tril)
        log_det = lowrank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + log_det + distance)

    def entropy(self) -> Tensor:
        log_det = lowrank_log_det(self._unbroadcasted_cov_diag, self._capacitance_tril)
        value = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + log_det)
        return value.expand(self._batch_shape)
