"""Distributions on the interval from 0 to 1 and on the simplex."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions._samplers import _sample_dirichlet
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, PowerTransform
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.utils import broadcast_all, euler_constant
from tesserack.nn import functional as F

__all__ = ["Beta", "Dirichlet", "Kumaraswamy"]


class Dirichlet(ExponentialFamily):
    """The Dirichlet distribution over the simplex, of ``concentration`` (..., K)."""

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.simplex
    has_rsample: Any = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Dirichlet, batch_shape, ("concentration",), _instance, event_dims=1)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return _sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        a = self.concentration
        return ts.xlogy(a - 1.0, value).sum(-1) + ts.lgamma(a.sum(-1)) - ts.lgamma(a).sum(-1)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        corner = (self.concentration < 1).all(-1, keepdim=True)
        vertex = F.one_hot(self.concentration.argmax(-1), self.concentration.shape[-1]).to(mode.dtype)
        return ts.where(corner, vertex, mode)

    @property
    def variance(self) -> Tensor:
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Tensor:
        k = self.concentration.size(-1)
        total = self.concentration.sum(-1)
        each = ((self.concentration - 1.0) * ts.digamma(self.concentration)).sum(-1)
        return ts.lgamma(self.concentration).sum(-1) - ts.lgamma(total) - (k - total) * ts.digamma(total) - each

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.concentration,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x.lgamma().sum(-1) - ts.lgamma(x.sum(-1))


class Beta(ExponentialFamily):
    """The beta distribution on (0, 1): the first of two Dirichlet parts."""

    arg_constraints: Any = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Any = constraints.unit_interval
    has_rsample: Any = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self._dirichlet = Dirichlet(ts.stack(broadcast_all(concentration1, concentration0), -1), validate_args=False)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(Beta, batch_shape, (), _instance)
        new._dirichlet = self._dirichlet.expand(batch_shape)
        return new

    @property
    def concentration1(self) -> Tensor:
        """The exponent of x, plus one."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The exponent of 1 - x, plus one."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return self._dirichlet.log_prob(ts.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration1, self.concentration0

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return ts.lgamma(x) + ts.lgamma(y) - ts.lgamma(x + y)


class Kumaraswamy(TransformedDistribution):
    """The distribution function 1 - (1 - x^a)^b on (0, 1), with a = concentration1, b = concentration0."""

    arg_constraints: Any = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Any = constraints.unit_interval
    has_rsample: Any = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(
            ts.full_like(self.concentration0, 0), ts.full_like(self.concentration0, 1), validate_args=validate_args
        )
        super().__init__(base, self._transforms(), validate_args=validate_args)

    def _transforms(self) -> list[Any]:
        return [
            PowerTransform(exponent=self.concentration0.reciprocal()),
            AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded_parts(Kumaraswamy, batch_shape, ("concentration1", "concentration0"), _instance)

    def _moment(self, n: int) -> Tensor:
        """E[x^n] = b B(1 + n / a, b)."""
        a, b = self.concentration1, self.concentration0
        first = 1 + n / a
        return (b.log() + ts.lgamma(first) + ts.lgamma(b) - ts.lgamma(first + b)).exp()

    @property
    def mean(self) -> Tensor:
        return self._moment(1)

    @property
    def mode(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        inner = ((a - 1) / (a * b - 1)).log() / a
        defined = (a >= 1) & (b >= 1) & ((a > 1) | (b > 1))
        return ts.where(defined, inner.exp(), math.nan)

    @property
    def variance(self) -> Tensor:
        return self._moment(2) - self.mean.pow(2)

    def entropy(self) -> Tensor:
        a, b = self.concentration1, self.concentration0
        harmonic = ts.digamma(b + 1) + euler_constant
        return (1 - b.reciprocal()) + (1 - a.reciprocal()) * harmonic - ts.log(a) - ts.log(b)
