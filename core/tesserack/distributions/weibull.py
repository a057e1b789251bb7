"""The Weibull distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.exponential import Exponential
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, PowerTransform
from tesserack.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


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
        new = self._get_checked_instance(Weibull, _instance)
        new.scale = self.scale.expand(batch_shape)
        new.concentration = self.concentration.expand(batch_shape)
        new.concentration_reciprocal = new.concentration.reciprocal()
        super().expand(batch_shape, _instance=new)
        new.transforms = new._transforms()
        return new

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
