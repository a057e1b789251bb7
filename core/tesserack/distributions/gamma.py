"""The gamma distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions._samplers import _standard_gamma
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.utils import broadcast_all, is_number, kept_within

__all__ = ["Gamma"]


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
