"""The negative binomial distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import _samplers, constraints
from tesserack.distributions._odds import BinaryOdds
from tesserack.distributions.gamma import Gamma
from tesserack.distributions.utils import broadcast_all, lazy_property
from tesserack.nn import functional as F

__all__ = ["NegativeBinomial"]


class NegativeBinomial(BinaryOdds):
    """The number of successes of probability ``probs`` before ``total_count`` failures, which need not be whole."""

    arg_constraints: Any = {
        "total_count": constraints.greater_than_eq(0),
        "probs": constraints.half_open_interval(0.0, 1.0),
        "logits": constraints.real,
    }
    support: Any = constraints.nonnegative_integer

    def __init__(
        self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_odds(probs, logits)
        self.total_count, self._param = broadcast_all(total_count, self._param)
        self.total_count = self.total_count.type_as(self._param)
        self.__dict__["logits" if probs is None else "probs"] = self._param
        super().__init__(self._param.size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expand_odds(NegativeBinomial, batch_shape, _instance, 0, ("total_count",))

    @property
    def mean(self) -> Tensor:
        return self.total_count * ts.exp(self.logits)

    @property
    def mode(self) -> Tensor:
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Tensor:
        return self.mean / ts.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Gamma:
        return Gamma(concentration=self.total_count, rate=ts.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with ts.no_grad():
            return _samplers.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        odds = self.total_count * F.logsigmoid(-self.logits) + value * F.logsigmoid(self.logits)
        ways = ts.lgamma(self.total_count + value) - ts.lgamma(1.0 + value) - ts.lgamma(self.total_count)
        # Without failures to wait for, all is at zero: lgamma(0) - lgamma(0) would be NaN.
        ways = ways.masked_fill(self.total_count + value == 0.0, 0.0)
        return odds + ways
