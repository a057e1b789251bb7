"""The Kumaraswamy distribution."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, PowerTransform
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


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
        new = self._get_checked_instance(Kumaraswamy, _instance)
        new.concentration1 = self.concentration1.expand(batch_shape)
        new.concentration0 = self.concentration0.expand(batch_shape)
        super().expand(batch_shape, _instance=new)
        new.transforms = new._transforms()
        return new

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
