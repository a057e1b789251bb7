"""Divergences between two distributions of one family."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions.bernoulli import Bernoulli, ContinuousBernoulli
from tesserack.distributions.beta import Beta, Dirichlet
from tesserack.distributions.binomial import Binomial, Geometric
from tesserack.distributions.categorical import Categorical, OneHotCategorical
from tesserack.distributions.cauchy import Cauchy
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.exponential import Exponential, Gumbel, Laplace
from tesserack.distributions.gamma import Gamma
from tesserack.distributions.independent import Independent
from tesserack.distributions.kl import kl_divergence, register_kl
from tesserack.distributions.multivariate_normal import (
    LowRankMultivariateNormal,
    MultivariateNormal,
    batch_mahalanobis,
    lowrank_log_det,
    lowrank_mahalanobis,
)
from tesserack.distributions.normal import HalfNormal, Normal
from tesserack.distributions.pareto import Pareto
from tesserack.distributions.poisson import Poisson
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.utils import euler_constant, sum_rightmost
from tesserack.nn import functional as F


def _weighted_log(a: Tensor, b: Tensor) -> Tensor:
    """a log(a / b) with 0 log 0 = 0."""
    return ts.xlogy(a, a) - ts.xlogy(a, b)


@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Tensor:
    one = p.probs * (F.softplus(-q.logits) - F.softplus(-p.logits))
    zero = (1 - p.probs) * (F.softplus(q.logits) - F.softplus(p.logits))
    # Certain outcomes contribute nothing where p rules them out.
    one = ts.where(p.probs == 0, ts.zeros_like(one), ts.where(q.probs == 0, ts.full_like(one, math.inf), one))
    return one + ts.where(p.probs == 1, ts.zeros_like(zero), ts.where(q.probs == 1, math.inf, zero))


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Tensor:
    p_sum = p.concentration1 + p.concentration0
    q_sum = q.concentration1 + q.concentration0
    t1 = q.concentration1.lgamma() + q.concentration0.lgamma() + p_sum.lgamma()
    t2 = p.concentration1.lgamma() + p.concentration0.lgamma() + q_sum.lgamma()
    t3 = (p.concentration1 - q.concentration1) * ts.digamma(p.concentration1)
    t4 = (p.concentration0 - q.concentration0) * ts.digamma(p.concentration0)
    return t1 - t2 + t3 + t4 + (q_sum - p_sum) * ts.digamma(p_sum)  # type: ignore[no-any-return]


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Tensor:
    # The divergence of one trial times their number; more trials in p than q can have are impossible there.
    divergence = p.total_count * _bernoulli(p, q)
    return ts.where(p.total_count > q.total_count, math.inf, divergence)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Tensor:
    t = p.probs * (p.logits - q.logits)
    t = ts.where((q.probs == 0).expand_as(t), ts.full_like(t, math.inf), t)
    return ts.where((p.probs == 0).expand_as(t), ts.zeros_like(t), t).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Tensor:
    return _categorical(p._categorical, q._categorical)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Tensor:
    t1 = p.mean * (p.logits - q.logits)
    t2 = p._log_constant() + ts.log1p(-p.probs)
    return t1 + t2 - q._log_constant() - ts.log1p(-q.probs)  # type: ignore[no-any-return]


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Tensor:
    p_sum = p.concentration.sum(-1)
    t1 = p_sum.lgamma() - q.concentration.sum(-1).lgamma()
    t2 = (p.concentration.lgamma() - q.concentration.lgamma()).sum(-1)
    t3 = p.concentration.digamma() - p_sum.digamma().unsqueeze(-1)
    return t1 - t2 + ((p.concentration - q.concentration) * t3).sum(-1)  # type: ignore[no-any-return]


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Tensor:
    ratio = q.rate / p.rate
    return ratio - ratio.log() - 1  # type: ignore[no-any-return]


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Tensor:
    """The Bregman divergence of the log-normaliser."""
    if type(p) is not type(q):
        raise NotImplementedError(
            f"The cross KL-divergence between different exponential families ({type(p).__name__}, "
            f"{type(q).__name__}) cannot be computed using Bregman divergences"
        )
    p_params = [param.detach().requires_grad_() for param in p._natural_params]
    q_params = q._natural_params
    with ts.enable_grad():
        normaliser = p._log_normalizer(*p_params)
        gradients = ts.autograd.grad(normaliser.sum(), p_params, create_graph=True)
    result = q._log_normalizer(*q_params) - normaliser
    terms = [(b - a) * gradient for a, b, gradient in zip(p_params, q_params, gradients, strict=True)]
    for term in terms:  # not every parameter has the event's dims: Wishart's degrees of freedom are numbers
        result = result - sum_rightmost(term, max(term.dim() - result.dim(), 0))
    return result  # type: ignore[no-any-return]


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Tensor:
    t1 = q.concentration * (p.rate / q.rate).log()
    t2 = ts.lgamma(q.concentration) - ts.lgamma(p.concentration)
    t3 = (p.concentration - q.concentration) * ts.digamma(p.concentration)
    return t1 + t2 + t3 + (q.rate - p.rate) * (p.concentration / p.rate)  # type: ignore[no-any-return]


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    offset = (q.loc - p.loc) / q.scale
    power = ts.exp(offset + ts.lgamma(1 + ratio))
    return ratio.reciprocal().log() - offset + ratio * euler_constant + power - (1 + euler_constant)  # type: ignore[no-any-return]


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Tensor:
    return -p.entropy() - ts.log1p(-q.probs) / p.probs - q.logits  # type: ignore[no-any-return]


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Tensor:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Tensor:
    ratio = p.scale / q.scale
    distance = (p.loc - q.loc).abs()
    return -ratio.log() + distance / q.scale + ratio * ts.exp(-distance / p.scale) - 1  # type: ignore[no-any-return]


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Tensor:
    # Chyzak and Nielsen 2019.
    t1 = ((p.scale + q.scale).pow(2) + (p.loc - q.loc).pow(2)).log()
    return t1 - (4 * p.scale * q.scale).log()  # type: ignore[no-any-return]


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Tensor:
    ratio = (p.scale / q.scale).pow(2)
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).pow(2) - 1 - ratio.log())  # type: ignore[no-any-return]


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Tensor:
    ratio = q.alpha / p.alpha
    result = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return ts.where(p.scale < q.scale, math.inf, result)


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Tensor:
    return _weighted_log(p.rate, q.rate) - (p.rate - q.rate)  # type: ignore[no-any-return]


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Tensor:
    result = ((q.high - q.low) / (p.high - p.low)).log()
    return ts.where((q.low > p.low) | (q.high < p.high), math.inf, result)


@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Tensor:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("kl_divergence: the two distributions have different transforms")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Tensor:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("kl_divergence: the two have different reinterpreted_batch_ndims")
    result = kl_divergence(p.base_dist, q.base_dist)
    return sum_rightmost(result, p.reinterpreted_batch_ndims)  # type: ignore[no-any-return]


# --- multivariate normals ------------------------------------------------------------------------------------------


def _check_event(p: Any, q: Any) -> None:
    if p.event_shape != q.event_shape:
        raise ValueError(
            f"KL-divergence between two normals of different event shapes: {tuple(p.event_shape)}, "
            f"{tuple(q.event_shape)}"
        )


def _solved_trace(tril: Tensor, matrix: Tensor) -> Tensor:
    """tr((L L^T)^-1 A A^T) = |L^-1 A|^2 for A (..., n, k)."""
    batch = ts.broadcast_shapes(tril.shape[:-2], matrix.shape[:-2])
    left = tril.expand((*batch, *tril.shape[-2:]))
    right = matrix.expand((*batch, *matrix.shape[-2:]))
    return ts.linalg.solve_triangular(left, right, upper=False).pow(2).sum((-2, -1))  # type: ignore[no-any-return]


def _log_det_tril(tril: Tensor) -> Tensor:
    return 2 * tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


@register_kl(MultivariateNormal, MultivariateNormal)
def _multivariate(p: Any, q: Any) -> Tensor:
    _check_event(p, q)
    p_tril, q_tril = p._unbroadcasted_scale_tril, q._unbroadcasted_scale_tril
    trace = _solved_trace(q_tril, p_tril)
    distance = batch_mahalanobis(q_tril, q.loc - p.loc)
    return 0.5 * (_log_det_tril(q_tril) - _log_det_tril(p_tril) + trace + distance - p.event_shape[0])  # type: ignore[no-any-return]


def _lowrank_log_det(d: Any) -> Tensor:
    return lowrank_log_det(d._unbroadcasted_cov_diag, d._capacitance_tril)


def _lowrank_distance(q: Any, diff: Tensor) -> Tensor:
    factor, diagonal = q._unbroadcasted_cov_factor, q._unbroadcasted_cov_diag
    return lowrank_mahalanobis(factor, diagonal, diff, q._capacitance_tril)


def _lowrank_trace(q: Any, matrix: Tensor) -> Tensor:
    """tr((W W^T + D)^-1 A A^T), by Woodbury's identity."""
    diagonal = q._unbroadcasted_cov_diag.unsqueeze(-1)
    direct = (matrix.pow(2) / diagonal).sum((-2, -1))
    projected = q._unbroadcasted_cov_factor.mT @ (matrix / diagonal)
    return direct - _solved_trace(q._capacitance_tril, projected)  # type: ignore[no-any-return]


@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _lowrank(p: Any, q: Any) -> Tensor:
    _check_event(p, q)
    trace = _lowrank_trace(q, p._unbroadcasted_cov_factor)
    trace = trace + _lowrank_trace(q, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    logs = _lowrank_log_det(q) - _lowrank_log_det(p)
    return 0.5 * (logs + trace + _lowrank_distance(q, q.loc - p.loc) - p.event_shape[0])  # type: ignore[no-any-return]


@register_kl(MultivariateNormal, LowRankMultivariateNormal)
def _multivariate_lowrank(p: Any, q: Any) -> Tensor:
    _check_event(p, q)
    p_tril = p._unbroadcasted_scale_tril
    trace = _lowrank_trace(q, p_tril)
    logs = _lowrank_log_det(q) - _log_det_tril(p_tril)
    return 0.5 * (logs + trace + _lowrank_distance(q, q.loc - p.loc) - p.event_shape[0])  # type: ignore[no-any-return]


@register_kl(LowRankMultivariateNormal, MultivariateNormal)
def _lowrank_multivariate(p: Any, q: Any) -> Tensor:
    _check_event(p, q)
    q_tril = q._unbroadcasted_scale_tril
    trace = _solved_trace(q_tril, p._unbroadcasted_cov_factor)
    trace = trace + _solved_trace(q_tril, p._unbroadcasted_cov_diag.sqrt().diag_embed())
    logs = _log_det_tril(q_tril) - _lowrank_log_det(p)
    return 0.5 * (logs + trace + batch_mahalanobis(q_tril, q.loc - p.loc) - p.event_shape[0])  # type: ignore[no-any-return]
