"""Counts of trials that succeed or fail."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import _samplers, constraints
from tesserack.distributions._odds import BinaryOdds
from tesserack.distributions.gamma import Gamma
from tesserack.distributions.utils import broadcast_all, lazy_property
from tesserack.nn import functional as F

__all__ = ["Binomial", "Geometric", "NegativeBinomial"]


class Binomial(BinaryOdds):
    """The number of successes among ``total_count`` trials of probability ``probs``."""

    arg_constraints: Any = {
        "total_count": constraints.nonnegative_integer,
        "probs": constraints.unit_interval,
        "logits": constraints.real,
    }
    has_enumerate_support: Any = True

    def __init__(
        self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self._take_trials(total_count, probs, logits, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expand_odds(Binomial, batch_shape, _instance, 0, ("total_count",))

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Tensor:
        return self.total_count * self.probs

    @property
    def mode(self) -> Tensor:
        return ((self.total_count + 1) * self.probs).floor().clamp(max=self.total_count)

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with ts.no_grad():
            return _samplers.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        n = self.total_count
        ways = ts.lgamma(n + 1) - ts.lgamma(value + 1) - ts.lgamma(n - value + 1)
        # k log p + (n - k) log(1 - p), by the logits: k x - n log(1 + e^x) without overflow.
        positive = self.logits / 2 + self.logits.abs() / 2  # whose gradient at zero is the half that it should be
        normaliser = n * (positive + ts.log1p(ts.exp(-self.logits.abs())))
        return value * self.logits + ways - normaliser

    def entropy(self) -> Tensor:
        if self.total_count.min() != self.total_count.max():
            raise NotImplementedError("Inhomogeneous total count not supported by `entropy`.")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(ts.exp(log_prob) * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.total_count.min() != self.total_count.max():
            raise NotImplementedError("Inhomogeneous total count not supported by `enumerate_support`.")
        count = int(self.total_count.max())
        values = ts.arange(1 + count, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1, *([1] * len(self._batch_shape))))
        return values.expand((-1, *self._batch_shape)) if expand else values


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
        self._take_trials(total_count, probs, logits, validate_args)

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


class Geometric(BinaryOdds):
    """The number of failures before the first success of probability ``probs``: 0, 1, 2, ..."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take_odds(probs, logits), validate_args=validate_args)
        if self._validate_args and probs is not None and not constraints.holds(self.probs > 0):
            raise ValueError(
                f"Expected parameter probs ({type(self.probs).__name__} of shape {tuple(self.probs.shape)}) of "
                f"distribution {self!r} to be positive but found invalid values:\n{self.probs}"
            )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expand_odds(Geometric, batch_shape, _instance, 0)

    @property
    def mean(self) -> Tensor:
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Tensor:
        return ts.zeros_like(self.probs)

    @property
    def variance(self) -> Tensor:
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        with ts.no_grad():
            u = ts.rand(shape, dtype=self.probs.dtype, device=self.probs.device)
            u = u.clamp(min=ts.finfo(self.probs.dtype).tiny)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        value, probs = broadcast_all(value, self.probs)
        certain = (probs == 1) & (value == 0)
        probs = ts.where(certain, ts.zeros_like(probs), probs)
        return value * (-probs).log1p() + self.probs.log()

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
