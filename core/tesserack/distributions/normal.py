"""Normal distributions and what is made of them."""

from __future__ import annotations

import math
from typing import Any, cast

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.independent import Independent
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import AbsTransform, ExpTransform, StickBreakingTransform
from tesserack.distributions.utils import broadcast_all, is_number

__all__ = ["HalfNormal", "LogNormal", "LogisticNormal", "Normal"]


class Normal(ExponentialFamily):
    """The normal (Gaussian) distribution of mean ``loc`` and standard deviation ``scale``.

    >>> import tesserack as ts
    >>> Normal(0.0, 1.0).log_prob(ts.tensor(0.0))
    tensor(-0.9189)
    """

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample: Any = True
    _mean_carrier_measure: Any = 0

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
    def stddev(self) -> Tensor:
        return self.scale

    @property
    def variance(self) -> Tensor:
        return self.stddev.pow(2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Normal, batch_shape, ("loc", "scale"), _instance)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with ts.no_grad():
            return ts.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        eps = ts.randn(shape, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + eps * self.scale

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        z = (value - self.loc) / self.scale
        return -0.5 * z * z - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return 0.5 * (1 + ts.erf((value - self.loc) / (self.scale * math.sqrt(2))))

    def icdf(self, value: Tensor) -> Tensor:
        return self.loc + self.scale * ts.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Tensor:
        return 0.5 + 0.5 * math.log(2 * math.pi) + ts.log(self.scale)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        variance = self.scale.pow(2)
        return self.loc / variance, -0.5 / variance

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        return -0.25 * x.pow(2) / y + 0.5 * ts.log(-math.pi / y)


class HalfNormal(TransformedDistribution):
    """|x| for x normal of mean 0 and standard deviation ``scale``."""

    arg_constraints: Any = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample: Any = True
    base_dist: Normal

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(HalfNormal, _instance))

    @property
    def scale(self) -> Tensor:
        """The standard deviation before the absolute value."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def mode(self) -> Tensor:
        return ts.zeros_like(self.scale)

    @property
    def variance(self) -> Tensor:
        return self.scale.pow(2) * (1 - 2 / math.pi)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return ts.where(value >= 0, self.base_dist.log_prob(value) + math.log(2), -math.inf)

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return 2 * self.base_dist.cdf(value) - 1

    def icdf(self, prob: Tensor) -> Tensor:
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() - math.log(2)


class LogNormal(TransformedDistribution):
    """exp(x) for x normal of mean ``loc`` and standard deviation ``scale``."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.positive
    has_rsample: Any = True
    base_dist: Normal

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(loc, scale, validate_args=validate_args), ExpTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(LogNormal, _instance))

    @property
    def loc(self) -> Tensor:
        """The mean of the logarithm."""
        return self.base_dist.loc

    @property
    def scale(self) -> Tensor:
        """The standard deviation of the logarithm."""
        return self.base_dist.scale

    @property
    def mean(self) -> Tensor:
        return (self.loc + self.scale.pow(2) / 2).exp()

    @property
    def mode(self) -> Tensor:
        return (self.loc - self.scale.square()).exp()

    @property
    def variance(self) -> Tensor:
        squared = self.scale.pow(2)
        return squared.expm1() * (2 * self.loc + squared).exp()

    def entropy(self) -> Tensor:
        return self.base_dist.entropy() + self.loc


class LogisticNormal(TransformedDistribution):
    """The stick-breaking transform of K independent normals: points of the simplex of K + 1."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    has_rsample: Any = True
    base_dist: Independent

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(LogisticNormal, _instance))

    def _normal(self) -> Normal:
        return cast(Normal, self.base_dist.base_dist)

    @property
    def loc(self) -> Tensor:
        """Means of the normals."""
        return self._normal().loc

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the normals."""
        return self._normal().scale
