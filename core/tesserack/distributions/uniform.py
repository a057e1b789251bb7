"""The uniform distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all, is_number, kept_within

__all__ = ["Uniform"]


class Uniform(Distribution):
    """The uniform distribution on [low, high)."""

    has_rsample: Any = True

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self.low, self.high = broadcast_all(low, high)
        batch_shape = Size() if is_number(low) and is_number(high) else self.low.size()
        super().__init__(batch_shape, validate_args=validate_args)
        if self._validate_args and not constraints.holds(ts.lt(self.low, self.high)):
            raise ValueError("Uniform is not defined when low >= high")

    @property
    def arg_constraints(self) -> dict[str, Any]:
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        return constraints.interval(self.low, self.high)

    @property
    def mean(self) -> Tensor:
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Tensor:
        return ts.full_like(self.low, float("nan"))

    @property
    def stddev(self) -> Tensor:
        return (self.high - self.low) / 12**0.5

    @property
    def variance(self) -> Tensor:
        return (self.high - self.low).pow(2) / 12

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Uniform, batch_shape, ("low", "high"), _instance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        rand = ts.rand(self._extended_shape(sample_shape), dtype=self.low.dtype, device=self.low.device)
        last = ts.maximum(ts.nextafter(self.high, self.low), self.low).detach()
        return kept_within(self.low + rand * (self.high - self.low), high=last)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        inside = self.low.le(value) & self.high.gt(value)
        return ts.log(inside.type_as(self.low)) - ts.log(self.high - self.low)

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return ((value - self.low) / (self.high - self.low)).clamp(min=0, max=1)

    def icdf(self, value: Tensor) -> Tensor:
        return value * (self.high - self.low) + self.low

    def entropy(self) -> Tensor:
        return ts.log(self.high - self.low)
