"""The Pareto distribution of type 1."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.exponential import Exponential
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, ExpTransform
from tesserack.distributions.utils import broadcast_all

__all__ = ["Pareto"]


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
        new = self._get_checked_instance(Pareto, _instance)
        new.scale = self.scale.expand(batch_shape)
        new.alpha = self.alpha.expand(batch_shape)
        super().expand(batch_shape, _instance=new)
        new.transforms = new._transforms()
        return new

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
