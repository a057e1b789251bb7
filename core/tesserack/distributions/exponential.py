"""The exponential distribution, two-sided, stretched and of extremes."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, ExpTransform, PowerTransform
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.utils import broadcast_all, euler_constant, is_number, kept_within

__all__ = ["Exponential", "Gumbel", "Laplace", "Weibull"]


class Exponential(ExponentialFamily):
    """The exponential distribution, rate * exp(-rate * x) for x >= 0."""

    arg_constraints: Any = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample: Any = True
    _mean_carrier_measure: Any = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(Size() if is_number(rate) else self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return ts.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Exponential, batch_shape, ("rate",), _instance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self.rate.new_empty(self._extended_shape(sample_shape)).exponential_()
        return kept_within(drawn / self.rate, ts.finfo(drawn.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return -ts.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -ts.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - ts.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return -ts.log(-x)


class Laplace(Distribution):
    """The Laplace distribution, exp(-|x - loc| / scale) / (2 scale)."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample: Any = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        batch_shape = Size() if is_number(loc) and is_number(scale) else self.loc.size()
        super().__init__(batch_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Laplace, batch_shape, ("loc", "scale"), _instance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        # Uniform on (-1, 1): -1 itself would give minus infinity.
        eps = ts.finfo(self.loc.dtype).eps
        u = ts.rand(shape, dtype=self.loc.dtype, device=self.loc.device) * (2 - eps) + (eps - 1)
        return self.loc - self.scale * u.sign() * ts.log1p(-u.abs().clamp(max=1 - eps / 2))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return -ts.log(2 * self.scale) - ts.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        offset = value - self.loc
        return 0.5 - 0.5 * offset.sign() * ts.expm1(-offset.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * ts.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + ts.log(2 * self.scale)


class Weibull(TransformedDistribution):
    """P(x > t) = exp(-(t / scale)^concentration)."""

    arg_constraints: Any = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        self.concentration_reciprocal = self.concentration.reciprocal()
        base = Exponential(ts.ones_like(self.scale), validate_args=validate_args)
        super().__init__(base, self._transforms(), validate_args=validate_args)

    def _transforms(self) -> list[Any]:
        return [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded_parts(
            Weibull, batch_shape, ("scale", "concentration", "concentration_reciprocal"), _instance
        )

    @property
    def mean(self) -> Tensor:
        return self.scale * ts.exp(ts.lgamma(1 + self.concentration_reciprocal))

    @property
    def mode(self) -> Tensor:
        k = self.concentration
        inner = ((k - 1).clamp(min=0) / k).pow(k.reciprocal())
        return self.scale * inner

    @property
    def variance(self) -> Tensor:
        second = ts.exp(ts.lgamma(1 + 2 * self.concentration_reciprocal))
        return self.scale.pow(2) * (second - ts.exp(2 * ts.lgamma(1 + self.concentration_reciprocal)))

    def entropy(self) -> Tensor:
        r = self.concentration_reciprocal
        return euler_constant * (1 - r) + ts.log(self.scale * r) + 1


class Gumbel(TransformedDistribution):
    """The Gumbel (extreme value, type I) distribution: loc - scale * log(-log(u))."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        limits = ts.finfo(self.loc.dtype)
        if is_number(loc) and is_number(scale):
            base = Uniform(limits.tiny, 1 - limits.eps, validate_args=validate_args)
        else:
            low = ts.full_like(self.loc, limits.tiny)
            base = Uniform(low, ts.full_like(self.loc, 1 - limits.eps), validate_args=validate_args)
        super().__init__(base, self._transforms(), validate_args=validate_args)

    def _transforms(self) -> list[Any]:
        flip = AffineTransform(loc=0, scale=-ts.ones_like(self.scale))
        return [ExpTransform().inv, flip, ExpTransform().inv, AffineTransform(loc=self.loc, scale=-self.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded_parts(Gumbel, batch_shape, ("loc", "scale"), _instance)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        y = (self.loc - value) / self.scale
        return (y - y.exp()) - self.scale.log()

    @property
    def mean(self) -> Tensor:
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def stddev(self) -> Tensor:
        return (math.pi / math.sqrt(6)) * self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def entropy(self) -> Tensor:
        return self.scale.log() + (1 + euler_constant)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return super().rsample(sample_shape)
