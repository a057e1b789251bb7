"""The gamma distribution, and ratios and roots of what is distributed so."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions._samplers import _standard_gamma
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import PowerTransform
from tesserack.distributions.utils import broadcast_all, is_number, kept_within

__all__ = ["Chi2", "FisherSnedecor", "Gamma", "InverseGamma", "StudentT"]


class Gamma(ExponentialFamily):
    """The gamma distribution of shape ``concentration`` and ``rate``; draws carry implicit gradients of both."""

    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample: Any = True
    _mean_carrier_measure: Any = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self.concentration, self.rate = broadcast_all(concentration, rate)
        numbers = is_number(concentration) and is_number(rate)
        super().__init__(Size() if numbers else self.concentration.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        return self.concentration / self.rate.pow(2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Gamma, batch_shape, ("concentration", "rate"), _instance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        return kept_within(value, ts.finfo(value.dtype).tiny)  # at zero the density may be infinite

    def log_prob(self, value: Tensor) -> Tensor:
        value = ts.as_tensor(value, dtype=self.rate.dtype, device=self.rate.device)
        value = self._checked(value)
        shape = self.concentration
        power = ts.xlogy(shape, self.rate) + ts.xlogy(shape - 1, value)
        return power - self.rate * value - ts.lgamma(shape)

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return ts.special.gammainc(self.concentration, self.rate * value)

    def entropy(self) -> Tensor:
        shape = self.concentration
        return shape - ts.log(self.rate) + ts.lgamma(shape) + (1.0 - shape) * ts.digamma(shape)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return self.concentration - 1, -self.rate

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return ts.lgamma(x + 1) + (x + 1) * ts.log(-y.reciprocal())


class Chi2(Gamma):
    """The chi-squared distribution with ``df`` degrees of freedom: Gamma(df / 2, 1 / 2)."""

    arg_constraints: Any = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(Chi2, _instance))

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2


class InverseGamma(TransformedDistribution):
    """1 / x for x of Gamma(concentration, rate)."""

    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample: Any = True
    base_dist: Gamma

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        power = PowerTransform(exponent=-ts.ones((), dtype=base.rate.dtype, device=base.rate.device))
        super().__init__(base, power, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(InverseGamma, _instance))

    @property
    def concentration(self) -> Tensor:
        """The shape parameter."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Tensor:
        """The rate of the gamma distribution, the scale of this one."""
        return self.base_dist.rate

    @property
    def mean(self) -> Tensor:
        return ts.where(self.concentration > 1, self.rate / (self.concentration - 1), math.inf)

    @property
    def mode(self) -> Tensor:
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Tensor:
        shape = self.concentration
        return ts.where(shape > 2, self.rate.square() / ((shape - 1).square() * (shape - 2)), math.inf)

    def entropy(self) -> Tensor:
        shape = self.concentration
        return shape + self.rate.log() + shape.lgamma() - (1 + shape) * shape.digamma()


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
