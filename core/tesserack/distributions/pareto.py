"""Pareto distributions."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.exponential import Exponential
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, ExpTransform
from tesserack.distributions.utils import broadcast_all, is_number

__all__ = ["GeneralizedPareto", "Pareto"]


class Pareto(TransformedDistribution):
    """P(x > t) = (scale / t)^alpha for t >= scale."""

    arg_constraints: Any = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        base = Exponential(self.alpha, validate_args=validate_args)
        super().__init__(base, self._transforms(), validate_args=validate_args)

    def _transforms(self) -> list[Any]:
        return [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded_parts(Pareto, batch_shape, ("scale", "alpha"), _instance)

    @property
    def mean(self) -> Tensor:
        return ts.where(self.alpha > 1, self.alpha * self.scale / (self.alpha - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        a = self.alpha
        return ts.where(a > 2, self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2)), math.inf)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Tensor:
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())


class GeneralizedPareto(Distribution):
    """P(x > t) = (1 + k z)^(-1 / k) with z = (t - loc) / scale and k the ``concentration``; exp(-z) for k = 0."""

    arg_constraints: Any = {
        "loc": constraints.real,
        "scale": constraints.positive,
        "concentration": constraints.real,
    }
    has_rsample: Any = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale, self.concentration = broadcast_all(loc, scale, concentration)
        numbers = is_number(loc) and is_number(scale) and is_number(concentration)
        super().__init__(Size() if numbers else self.loc.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(GeneralizedPareto, batch_shape, ("loc", "scale", "concentration"), _instance)

    def _flat(self) -> tuple[Tensor, Tensor]:
        """Where the concentration is as good as zero, and the concentration with ones there."""
        flat = self.concentration.abs() < ts.finfo(self.concentration.dtype).eps
        return flat, ts.where(flat, ts.ones_like(self.concentration), self.concentration)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        u = ts.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype, device=self.loc.device)
        return self.icdf(u)

    def _z(self, x: Tensor) -> Tensor:
        return (x - self.loc) / self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        z = self._z(value)
        flat, k = self._flat()
        return ts.where(flat, -z, -(1 + 1 / k) * ts.log1p(k * z)) - self.scale.log()

    def log_survival_function(self, value: Tensor) -> Tensor:
        """log P(x > value)."""
        value = self._checked(value)
        z = self._z(value)
        flat, k = self._flat()
        return ts.where(flat, -z, -ts.log1p(k * z) / k)

    def log_cdf(self, value: Tensor) -> Tensor:
        """log P(x <= value)."""
        return ts.log1p(-ts.exp(self.log_survival_function(value)))

    def cdf(self, value: Tensor) -> Tensor:
        return -ts.expm1(self.log_survival_function(value))

    def icdf(self, value: Tensor) -> Tensor:
        flat, k = self._flat()
        log_survival = ts.log1p(-value)
        z = ts.where(flat, -log_survival, ts.expm1(-k * log_survival) / k)
        return self.loc + self.scale * z

    @property
    def mean(self) -> Tensor:
        k = self.concentration
        return ts.where(k < 1, self.loc + self.scale / (1 - k), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        k = self.concentration
        return ts.where(k < 0.5, self.scale**2 / ((1 - k) ** 2 * (1 - 2 * k)), math.inf)

    def entropy(self) -> Tensor:
        return (ts.log(self.scale) + self.concentration + 1).expand(self._batch_shape)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        upper = self.loc - self.scale / self.concentration
        bounded = self.concentration < 0
        return constraints.interval(self.loc, ts.where(bounded, upper, ts.full_like(upper, math.inf)))
