"""The Gumbel distribution."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AffineTransform, ExpTransform
from tesserack.distributions.uniform import Uniform
from tesserack.distributions.utils import broadcast_all, euler_constant, is_number

__all__ = ["Gumbel"]


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
        new = self._get_checked_instance(Gumbel, _instance)
        new.loc = self.loc.expand(batch_shape)
        new.scale = self.scale.expand(batch_shape)
        super().expand(batch_shape, _instance=new)
        new.transforms = new._transforms()
        return new

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
