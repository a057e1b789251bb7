"""Divergences between distributions of different families: E_p[-log q(x)] less p's entropy."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions.bernoulli import Bernoulli, ContinuousBernoulli
from tesserack.distributions.beta import Beta
from tesserack.distributions.binomial import Binomial
from tesserack.distributions.exponential import Exponential, Gumbel, Laplace
from tesserack.distributions.gamma import Gamma
from tesserack.distributions.kl import register_kl
from tesserack.distributions.normal import Normal
from tesserack.distributions.pareto import Pareto
from tesserack.distributions.poisson import Poisson
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.utils import euler_constant

# p has mass where q has none.
_INFINITE = [
    (Beta, Pareto),
    (ContinuousBernoulli, Pareto),
    (Exponential, Beta),
    (Exponential, ContinuousBernoulli),
    (Exponential, Pareto),
    (Exponential, Uniform),
    (Gamma, Beta),
    (Gamma, ContinuousBernoulli),
    (Gamma, Pareto),
    (Gamma, Uniform),
    (Gumbel, Beta),
    (Gumbel, ContinuousBernoulli),
    (Gumbel, Exponential),
    (Gumbel, Gamma),
    (Gumbel, Pareto),
    (Gumbel, Uniform),
    (Laplace, Beta),
    (Laplace, ContinuousBernoulli),
    (Laplace, Exponential),
    (Laplace, Gamma),
    (Laplace, Pareto),
    (Laplace, Uniform),
    (Normal, Beta),
    (Normal, ContinuousBernoulli),
    (Normal, Exponential),
    (Normal, Gamma),
    (Normal, Pareto),
    (Normal, Uniform),
    (Pareto, Beta),
    (Pareto, ContinuousBernoulli),
    (Pareto, Uniform),
    (Poisson, Bernoulli),
    (Poisson, Binomial),
]


def _infinite(p: Any, q: Any) -> Tensor:
    like = p.mean
    return ts.full(ts.broadcast_shapes(p.batch_shape, q.batch_shape), math.inf, dtype=like.dtype, device=like.device)


for _p, _q in _INFINITE:
    register_kl(_p, _q)(_infinite)


def _power_mean_log(rate: Tensor, concentration: Tensor) -> Tensor:
    """The part of minus the log density of Gamma(concentration, rate) that x does not enter."""
    return concentration.lgamma() - concentration * rate.log()


def _normal_cross(q: Any, mean: Tensor, variance: Tensor) -> Tensor:
    """E[-log q] of a normal q under anything of that mean and variance."""
    squared = variance + (mean - q.loc).pow(2)
    return 0.5 * (q.scale.pow(2) * 2 * math.pi).log() + 0.5 * squared / q.scale.pow(2)  # type: ignore[no-any-return]


@register_kl(Bernoulli, Poisson)
def _bernoulli_poisson(p: Any, q: Any) -> Tensor:
    return -p.entropy() - (p.probs * q.rate.log() - q.rate)  # type: ignore[no-any-return]


@register_kl(Beta, ContinuousBernoulli)
def _beta_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    return -p.entropy() - p.mean * q.logits - ts.log1p(-q.probs) - q._log_constant()  # type: ignore[no-any-return]


@register_kl(Beta, Exponential)
def _beta_exponential(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.mean  # type: ignore[no-any-return]


@register_kl(Beta, Gamma)
def _beta_gamma(p: Any, q: Any) -> Tensor:
    mean_log = p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma()
    cross = _power_mean_log(q.rate, q.concentration) - (q.concentration - 1) * mean_log + q.rate * p.mean
    return cross - p.entropy()  # type: ignore[no-any-return]


@register_kl(Beta, Normal)
def _beta_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(Beta, Uniform)
def _beta_uniform(p: Any, q: Any) -> Tensor:
    result = -p.entropy() + (q.high - q.low).log()
    return ts.where((q.low > 0) | (q.high < 1), math.inf, result)


@register_kl(ContinuousBernoulli, Exponential)
def _continuous_bernoulli_exponential(p: Any, q: Any) -> Tensor:
    return -p.entropy() - ts.log(q.rate) + q.rate * p.mean  # type: ignore[no-any-return]


@register_kl(ContinuousBernoulli, Normal)
def _continuous_bernoulli_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(ContinuousBernoulli, Uniform)
def _continuous_bernoulli_uniform(p: Any, q: Any) -> Tensor:
    result = -p.entropy() + (q.high - q.low).log()
    return ts.where((q.low > 0) | (q.high < 1), math.inf, result)


@register_kl(Exponential, Gamma)
def _exponential_gamma(p: Any, q: Any) -> Tensor:
    mean_log = -euler_constant - p.rate.log()
    cross = _power_mean_log(q.rate, q.concentration) - (q.concentration - 1) * mean_log + q.rate / p.rate
    return cross - p.entropy()  # type: ignore[no-any-return]


@register_kl(Exponential, Gumbel)
def _exponential_gumbel(p: Any, q: Any) -> Tensor:
    product = p.rate * q.scale
    offset = q.loc / q.scale
    # E[exp((loc - x) / scale)] = exp(loc / scale) * rate / (rate + 1 / scale).
    expected = offset.exp() * product / (product + 1)
    return product.log() - 1 + product.reciprocal() - offset + expected  # type: ignore[no-any-return]


@register_kl(Exponential, Normal)
def _exponential_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(Gamma, Exponential)
def _gamma_exponential(p: Any, q: Any) -> Tensor:
    return -p.entropy() - q.rate.log() + q.rate * p.concentration / p.rate  # type: ignore[no-any-return]


@register_kl(Gamma, Gumbel)
def _gamma_gumbel(p: Any, q: Any) -> Tensor:
    product = p.rate * q.scale
    offset = q.loc / q.scale
    # The moment generating function of the gamma distribution at -1 / scale.
    expected = ts.exp(offset) * (1 + product.reciprocal()).pow(-p.concentration)
    return q.scale.log() + p.concentration / product - offset + expected - p.entropy()  # type: ignore[no-any-return]


@register_kl(Gamma, Normal)
def _gamma_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(Gumbel, Normal)
def _gumbel_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(Laplace, Normal)
def _laplace_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(Normal, Gumbel)
def _normal_gumbel(p: Any, q: Any) -> Tensor:
    mean = (p.loc - q.loc) / q.scale
    expected = ts.exp(-mean + 0.5 * (p.scale / q.scale).pow(2))
    return q.scale.log() + mean + expected - p.entropy()  # type: ignore[no-any-return]


@register_kl(Normal, Laplace)
def _normal_laplace(p: Any, q: Any) -> Tensor:
    offset = (p.loc - q.loc) / p.scale
    # E|x - loc| of a normal x: the mean of a folded normal distribution.
    folded = math.sqrt(2 / math.pi) * ts.exp(-0.5 * offset.pow(2)) + offset * ts.erf(math.sqrt(0.5) * offset)
    return (2 * q.scale).log() + p.scale / q.scale * folded - p.entropy()  # type: ignore[no-any-return]


@register_kl(Pareto, Exponential)
def _pareto_exponential(p: Any, q: Any) -> Tensor:
    result = -p.entropy() - q.rate.log() + q.rate * p.mean
    return ts.where(p.alpha <= 1, math.inf, result)


@register_kl(Pareto, Gamma)
def _pareto_gamma(p: Any, q: Any) -> Tensor:
    mean_log = p.scale.log() + p.alpha.reciprocal()
    cross = _power_mean_log(q.rate, q.concentration) - (q.concentration - 1) * mean_log + q.rate * p.mean
    return ts.where(p.alpha <= 1, math.inf, cross - p.entropy())


@register_kl(Pareto, Normal)
def _pareto_normal(p: Any, q: Any) -> Tensor:
    return ts.where(p.alpha <= 2, math.inf, _normal_cross(q, p.mean, p.variance) - p.entropy())


# --- of a uniform p ------------------------------------------------------------------------------------------------


def _mean_x_log_x(low: Tensor, high: Tensor) -> Tensor:
    """E[log x] for x uniform on (low, high) in the positive numbers."""
    return (ts.xlogy(high, high) - ts.xlogy(low, low)) / (high - low) - 1


@register_kl(Uniform, Beta)
def _uniform_beta(p: Any, q: Any) -> Tensor:
    log_beta = q.concentration1.lgamma() + q.concentration0.lgamma() - (q.concentration1 + q.concentration0).lgamma()
    low, high = p.low.clamp(min=0), p.high.clamp(max=1)
    cross = -(q.concentration1 - 1) * _mean_x_log_x(low, high)
    cross = cross - (q.concentration0 - 1) * _mean_x_log_x(1 - high, 1 - low) + log_beta
    return ts.where((p.high > 1) | (p.low < 0), math.inf, cross - p.entropy())


@register_kl(Uniform, ContinuousBernoulli)
def _uniform_continuous_bernoulli(p: Any, q: Any) -> Tensor:
    result = -p.entropy() - p.mean * q.logits - ts.log1p(-q.probs) - q._log_constant()
    return ts.where((p.high > 1) | (p.low < 0), math.inf, result)


@register_kl(Uniform, Exponential)
def _uniform_exponential(p: Any, q: Any) -> Tensor:
    result = q.rate * p.mean - q.rate.log() - p.entropy()
    return ts.where(p.low < 0, math.inf, result)


@register_kl(Uniform, Gamma)
def _uniform_gamma(p: Any, q: Any) -> Tensor:
    mean_log = _mean_x_log_x(p.low.clamp(min=0), p.high)
    cross = _power_mean_log(q.rate, q.concentration) - (q.concentration - 1) * mean_log + q.rate * p.mean
    return ts.where(p.low < 0, math.inf, cross - p.entropy())


@register_kl(Uniform, Gumbel)
def _uniform_gumbel(p: Any, q: Any) -> Tensor:
    width = (p.high - p.low) / q.scale
    near, far = (q.loc - p.high) / q.scale, (q.loc - p.low) / q.scale
    expected = (far.exp() - near.exp()) / width
    return q.scale.log() + (p.mean - q.loc) / q.scale + expected - p.entropy()  # type: ignore[no-any-return]


@register_kl(Uniform, Normal)
def _uniform_normal(p: Any, q: Any) -> Tensor:
    return _normal_cross(q, p.mean, p.variance) - p.entropy()  # type: ignore[no-any-return]


@register_kl(Uniform, Pareto)
def _uniform_pareto(p: Any, q: Any) -> Tensor:
    mean_log = _mean_x_log_x(p.low.clamp(min=0), p.high)
    cross = (q.alpha + 1) * mean_log - q.alpha * q.scale.log() - q.alpha.log()
    return ts.where(p.low < q.scale, math.inf, cross - p.entropy())
