"""Student's t distribution."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.chi2 import Chi2
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all

__all__ = ["StudentT"]


class StudentT(Distribution):
    """Student's t distribution with ``df`` degrees of freedom, moved by ``loc`` and stretched by ``scale``."""

    arg_constraints: Any = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample: Any = True

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        self._chi2 = Chi2(self.df)
        super().__init__(self.df.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return ts.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        wide = ts.where(self.df > 2, self.scale.pow(2) * self.df / (self.df - 2), math.inf)
        return ts.where(self.df <= 1, math.nan, wide)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(StudentT, batch_shape, ("df", "loc", "scale"), _instance)
        new._chi2 = self._chi2.expand(batch_shape)
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        normal = ts.randn(shape, dtype=self.df.dtype, device=self.df.device)
        z = self._chi2.rsample(sample_shape)
        return self.loc + self.scale * normal * ts.rsqrt(z / self.df)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        y = (value - self.loc) / self.scale
        half = 0.5 * self.df
        z = self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + ts.lgamma(half) - ts.lgamma(half + 0.5)
        return -(half + 0.5) * ts.log1p(y.pow(2) / self.df) - z

    def entropy(self) -> Tensor:
        half = 0.5 * self.df
        log_beta = ts.lgamma(half) + math.lgamma(0.5) - ts.lgamma(half + 0.5)
        spread = (half + 0.5) * (ts.digamma(half + 0.5) - ts.digamma(half))
        return self.scale.log() + spread + 0.5 * self.df.log() + log_beta
