"""The F distribution of Fisher and Snedecor."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.gamma import Gamma
from tesserack.distributions.utils import broadcast_all, is_number

__all__ = ["FisherSnedecor"]


class FisherSnedecor(Distribution):
    """The F distribution: a quotient of chi-squared variates, each over its degrees of freedom."""

    arg_constraints: Any = {"df1": constraints.positive, "df2": constraints.positive}
    support: Any = constraints.positive
    has_rsample: Any = True

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None) -> None:
        self.df1, self.df2 = broadcast_all(df1, df2)
        self._gamma1 = Gamma(self.df1 * 0.5, self.df1, validate_args=False)
        self._gamma2 = Gamma(self.df2 * 0.5, self.df2, validate_args=False)
        batch_shape = Size() if is_number(df1) and is_number(df2) else self.df1.size()
        super().__init__(batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(FisherSnedecor, batch_shape, ("df1", "df2"), _instance)
        new._gamma1 = self._gamma1.expand(batch_shape)
        new._gamma2 = self._gamma2.expand(batch_shape)
        return new

    @property
    def mean(self) -> Tensor:
        return ts.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        mode = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return ts.where(self.df1 > 2, mode, math.nan)

    @property
    def variance(self) -> Tensor:
        d1, d2 = self.df1, self.df2
        value = 2 * d2.pow(2) * (d1 + d2 - 2) / (d1 * (d2 - 2).pow(2) * (d2 - 4))
        return ts.where(d2 > 4, value, math.nan)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        top = self._gamma1.rsample(sample_shape)
        bottom = self._gamma2.rsample(sample_shape)
        tiny = ts.finfo(bottom.dtype).tiny
        return (top / bottom.clamp(min=tiny)).clamp(min=tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        h1, h2 = self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        constant = (h1 + h2).lgamma() - h1.lgamma() - h2.lgamma() + h1 * ratio.log()
        return constant + (h1 - 1) * ts.log(value) - (h1 + h2) * ts.log1p(ratio * value)
