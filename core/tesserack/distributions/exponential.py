"""The exponential distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.utils import broadcast_all, is_number, kept_within

__all__ = ["Exponential"]


class Exponential(ExponentialFamily):
    """The exponential distribution, rate * exp(-rate * x) for x >= 0."""

    arg_constraints: Any = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample: Any = True
    _mean_carrier_measure: Any = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(Size() if is_number(rate) else self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def mode(self) -> Tensor:
        return ts.zeros_like(self.rate)

    @property
    def stddev(self) -> Tensor:
        return self.rate.reciprocal()

    @property
    def variance(self) -> Tensor:
        return self.rate.pow(-2)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Exponential, batch_shape, ("rate",), _instance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self.rate.new_empty(self._extended_shape(sample_shape)).exponential_()
        return kept_within(drawn / self.rate, ts.finfo(drawn.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return self.rate.log() - self.rate * value

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return -ts.expm1(-self.rate * value)

    def icdf(self, value: Tensor) -> Tensor:
        return -ts.log1p(-value) / self.rate

    def entropy(self) -> Tensor:
        return 1.0 - ts.log(self.rate)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (-self.rate,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return -ts.log(-x)
