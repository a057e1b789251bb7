"""Distributions of matrices."""

from __future__ import annotations

import math
import warnings
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.beta import Beta
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.gamma import Chi2
from tesserack.distributions.multivariate_normal import precision_to_scale_tril, the_one_given
from tesserack.distributions.utils import broadcast_all, is_number, lazy_property

__all__ = ["LKJCholesky", "Wishart"]


def _multi_lgamma(x: Tensor, p: int) -> Tensor:
    steps = ts.arange(p, dtype=x.dtype, device=x.device) / 2
    return ts.lgamma(x.unsqueeze(-1) - steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


def _multi_digamma(x: Tensor, p: int) -> Tensor:
    steps = ts.arange(p, dtype=x.dtype, device=x.device) / 2
    return ts.digamma(x.unsqueeze(-1) - steps).sum(-1)


class Wishart(ExponentialFamily):
    """The distribution of X^T X for ``df`` normal rows: positive definite matrices (n, n), df > n - 1."""

    arg_constraints: Any = {
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
        "df": constraints.greater_than(0),
    }
    support: Any = constraints.positive_definite
    has_rsample: Any = True
    _mean_carrier_measure: Any = 0

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = the_one_given(
            covariance_matrix=covariance_matrix, scale_tril=scale_tril, precision_matrix=precision_matrix
        )
        degrees = ts.tensor(df, dtype=matrix.dtype, device=matrix.device) if is_number(df) else df
        batch_shape = ts.broadcast_shapes(matrix.shape[:-2], degrees.shape)
        event_shape = matrix.shape[-2:]
        self.df = degrees.expand(batch_shape)
        setattr(self, name, matrix.expand((*batch_shape, -1, -1)))
        if self.df.le(event_shape[-1] - 1).any():
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event_shape[-1] - 1}.")
        super().__init__(batch_shape, event_shape, validate_args=validate_args)
        if self._validate_args and self.df.lt(event_shape[-1]).any():
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=2,
            )
        if scale_tril is not None:
            self._unbroadcasted_scale_tril = scale_tril
        elif covariance_matrix is not None:
            self._unbroadcasted_scale_tril = ts.linalg.cholesky(covariance_matrix)
        else:
            self._unbroadcasted_scale_tril = precision_to_scale_tril(matrix)
        self._chi2 = self._diagonal_chi2()

    def _diagonal_chi2(self) -> Chi2:
        steps = ts.arange(self._event_shape[-1], dtype=self._unbroadcasted_scale_tril.dtype, device=self.df.device)
        return Chi2(self.df.unsqueeze(-1) - steps)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        matrices = ("covariance_matrix", "scale_tril", "precision_matrix")
        new = self._expanded(Wishart, batch_shape, matrices, _instance, event_dims=2)
        new.df = self.df.expand(batch_shape)
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril
        new._chi2 = new._diagonal_chi2()
        return new

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower Cholesky factor of the scale matrix."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The scale matrix."""
        factor = self._unbroadcasted_scale_tril
        return (factor @ factor.mT).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the scale matrix."""
        return ts.cholesky_inverse(self._unbroadcasted_scale_tril).expand(self._batch_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.df.view((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self.df - self.covariance_matrix.shape[-1] - 1
        factor = ts.where(factor <= 0, math.nan, factor)
        return factor.view((*self._batch_shape, 1, 1)) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        outer = diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2)
        return self.df.view((*self._batch_shape, 1, 1)) * (v.pow(2) + outer)

    def rsample(self, sample_shape: Any = (), max_try_correction: Any = None) -> Tensor:
        """Draws by Bartlett's decomposition: chi variates on the diagonal, normal ones below it.

        Matrices that rounding makes singular are drawn again, at most ``max_try_correction`` times, 10 unless told.
        """
        drawn = self._drawn(sample_shape)
        for _ in range(10 if max_try_correction is None else max_try_correction):
            singular = ~self.support.check(drawn)
            if not bool(singular.any()):
                break
            drawn = ts.where(singular[..., None, None], self._drawn(sample_shape), drawn)
        return drawn

    def _drawn(self, sample_shape: Any) -> Tensor:
        n, factor = self._event_shape[-1], self._unbroadcasted_scale_tril
        shape = Size((*sample_shape, *self._batch_shape, n, n))
        diagonal = self._chi2.rsample(sample_shape).clamp(min=ts.finfo(factor.dtype).eps).sqrt()
        below = ts.randn(shape, dtype=factor.dtype, device=factor.device).tril(-1)
        product = factor @ (diagonal.diag_embed() + below)
        return product @ product.mT

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        nu, p = self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        half_log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        trace = ts.cholesky_solve(value, factor.expand(value.shape)).diagonal(dim1=-2, dim2=-1).sum(-1)
        constant = -nu * (p * math.log(2) / 2 + half_log_det) - _multi_lgamma(nu / 2, p)
        return constant + (nu - p - 1) / 2 * ts.linalg.slogdet(value).logabsdet - trace / 2  # type: ignore[no-any-return]

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        half_log_det = self._unbroadcasted_scale_tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        spread = (nu - p - 1) / 2 * (_multi_digamma(nu / 2, p) + p * math.log(2) + 2 * half_log_det)
        constant = nu * (p * math.log(2) / 2 + half_log_det) + _multi_lgamma(nu / 2, p)
        return constant - spread + nu * p / 2

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        p = self._event_shape[-1]
        return -self.precision_matrix / 2, (self.df - p - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        p = self._event_shape[-1]
        power = y + (p + 1) / 2
        return power * (p * math.log(2) - ts.linalg.slogdet(-2 * x).logabsdet) + _multi_lgamma(power, p)  # type: ignore[no-any-return]


class LKJCholesky(Distribution):
    """Lower Cholesky factors of correlation matrices M with density in proportion to det(M)^(concentration - 1).

    Lewandowski, Kurowicka and Joe 2009, by their "onion" method.
    """

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        self._beta = self._row_beta()
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args=validate_args)

    def _row_beta(self) -> Beta:
        """The squared distance of each row's off-diagonal part from the origin; the first row has none."""
        marginal = self.concentration + 0.5 * (self.dim - 2)
        offset = ts.arange(self.dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        offset = ts.cat([offset.new_zeros((1,)), offset])
        return Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(LKJCholesky, batch_shape, ("concentration",), _instance)
        new.dim = self.dim
        new._beta = new._row_beta()
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with ts.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            direction = ts.randn(shape, dtype=y.dtype, device=y.device).tril(-1)
            length = direction.norm(dim=-1, keepdim=True)
            row = direction / ts.where(length > 0, length, ts.ones_like(length))
            w = y.sqrt() * row
            squared = (w**2).sum(dim=-1)
            diagonal = (1 - squared).clamp(min=ts.finfo(w.dtype).tiny).sqrt()
            return w + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = ts.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalised = (order * diagonal.log()).sum(dim=-1)
        # The normaliser: pi^(d (d + 1) / 4) with d = dim - 1, times a multivariate gamma function, over gamma^d.
        d = self.dim - 1
        alpha = self.concentration + 0.5 * d
        steps = ts.arange(d, dtype=alpha.dtype, device=alpha.device) / 2
        gammas = ts.lgamma((alpha - 0.5).unsqueeze(-1) - steps).sum(-1)
        constant = d * (d + 1) / 4 * math.log(math.pi) + gammas - d * ts.lgamma(alpha)
        return unnormalised - constant
