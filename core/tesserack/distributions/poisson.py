"""The Poisson distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import _samplers, constraints
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.utils import broadcast_all, is_number

__all__ = ["Poisson"]


class Poisson(ExponentialFamily):
    """The number of events of mean ``rate``."""

    arg_constraints: Any = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        (self.rate,) = broadcast_all(rate)
        super().__init__(Size() if is_number(rate) else self.rate.size(), validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.rate

    @property
    def mode(self) -> Tensor:
        return self.rate.floor()

    @property
    def variance(self) -> Tensor:
        return self.rate

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Poisson, batch_shape, ("rate",), _instance)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with ts.no_grad():
            return _samplers.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        rate, value = broadcast_all(self.rate, value)
        return ts.xlogy(value, rate) - rate - ts.lgamma(value + 1)

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (ts.log(self.rate),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return ts.exp(x)
