"""Bernoulli distributions, continuous and relaxed ones too."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions._odds import BinaryOdds
from tesserack.distributions.exp_family import ExponentialFamily
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import SigmoidTransform
from tesserack.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs
from tesserack.nn import functional as F

__all__ = ["Bernoulli", "ContinuousBernoulli", "LogitRelaxedBernoulli", "RelaxedBernoulli"]


class Bernoulli(BinaryOdds, ExponentialFamily):
    """1 with probability ``probs`` (or of log-odds ``logits``), else 0."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.boolean
    has_enumerate_support: Any = True
    _mean_carrier_measure: Any = 0

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(self._take_odds(probs, logits), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expand_odds(Bernoulli, batch_shape, _instance, 0)

    @property
    def mean(self) -> Tensor:
        return self.probs

    @property
    def mode(self) -> Tensor:
        return ts.where(self.probs == 0.5, math.nan, (self.probs >= 0.5).to(self.probs.dtype))

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with ts.no_grad():
            return ts.bernoulli(self.probs.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none")

    def entropy(self) -> Tensor:
        return F.binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = ts.arange(2, dtype=self._param.dtype, device=self._param.device)
        values = values.view((-1, *([1] * len(self._batch_shape))))
        return values.expand((-1, *self._batch_shape)) if expand else values

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (ts.logit(self.probs),)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return ts.log1p(ts.exp(x))


class ContinuousBernoulli(BinaryOdds, ExponentialFamily):
    """The density C(p) p^x (1 - p)^(1 - x) on [0, 1] (Loaiza-Ganem and Cunningham 2019).

    Within ``lims`` of p, about a half, closed forms lose their digits and Taylor series take their place.
    """

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample: Any = True
    _mean_carrier_measure: Any = 0

    def __init__(
        self,
        probs: Any = None,
        logits: Any = None,
        lims: tuple[float, float] = (0.499, 0.501),
        validate_args: bool | None = None,
    ) -> None:
        batch_shape = self._take_odds(probs, logits)
        if probs is not None:
            if validate_args is not None and not constraints.holds(self.arg_constraints["probs"].check(self.probs)):
                raise ValueError("The parameter probs has invalid values")
            self._param = self.__dict__["probs"] = clamp_probs(self.probs)
        self._lims = lims
        super().__init__(batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expand_odds(ContinuousBernoulli, batch_shape, _instance, 0)
        new._lims = self._lims
        return new

    @lazy_property
    def probs(self) -> Tensor:
        """The parameter between zero and one, neither of which has a density."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside(self) -> Tensor:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Tensor:
        """Probabilities, those about a half replaced by a lower limit that closed forms stand."""
        return ts.where(self._outside(), self.probs, ts.full_like(self.probs, self._lims[0]))

    def _log_constant(self) -> Tensor:
        p = self._cut_probs()
        below = ts.where(p <= 0.5, p, ts.zeros_like(p))
        above = ts.where(p >= 0.5, p, ts.ones_like(p))
        width = ts.where(p <= 0.5, ts.log1p(-2.0 * below), ts.log(2.0 * above - 1.0))
        exact = ts.log(ts.abs(ts.log1p(-p) - ts.log(p))) - width
        x = (self.probs - 0.5).pow(2)
        return ts.where(self._outside(), exact, math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x)

    @property
    def mean(self) -> Tensor:
        p = self._cut_probs()
        exact = p / (2.0 * p - 1.0) + 1.0 / (ts.log1p(-p) - ts.log(p))
        x = self.probs - 0.5
        return ts.where(self._outside(), exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.pow(2)) * x)

    @property
    def stddev(self) -> Tensor:
        return ts.sqrt(self.variance)

    @property
    def variance(self) -> Tensor:
        p = self._cut_probs()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).pow(2) + 1.0 / (ts.log1p(-p) - ts.log(p)).pow(2)
        x = (self.probs - 0.5).pow(2)
        return ts.where(self._outside(), exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with ts.no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        return self.icdf(ts.rand(shape, dtype=self.probs.dtype, device=self.probs.device))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        return -F.binary_cross_entropy_with_logits(logits, value, reduction="none") + self._log_constant()

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        p = self._cut_probs()
        exact = (ts.pow(p, value) * ts.pow(1.0 - p, 1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        inside = ts.where(self._outside(), exact, value)
        one, zero = ts.ones_like(value), ts.zeros_like(value)
        return ts.where(value <= 0.0, zero, ts.where(value >= 1.0, one, inside))

    def icdf(self, value: Tensor) -> Tensor:
        p = self._cut_probs()
        exact = (ts.log1p(-p + value * (2.0 * p - 1.0)) - ts.log1p(-p)) / (ts.log(p) - ts.log1p(-p))
        return ts.where(self._outside(), exact, value)

    def entropy(self) -> Tensor:
        log_other = ts.log1p(-self.probs)
        return self.mean * (log_other - ts.log(self.probs)) - self._log_constant() - log_other

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    def _log_normalizer(self, x: Tensor) -> Tensor:  # type: ignore[override]
        half = 0.5
        outside = (x <= self._lims[0] - half) | (x > self._lims[1] - half)
        cut = ts.where(outside, x, (self._lims[0] - half) * ts.ones_like(x))
        exact = ts.log(ts.abs(ts.special.expm1(cut))) - ts.log(ts.abs(cut))
        return ts.where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)


class LogitRelaxedBernoulli(BinaryOdds):
    """The logit of a relaxed Bernoulli variate, at ``temperature`` (Maddison, Mnih and Teh 2017)."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.real
    has_rsample: Any = True

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        self.temperature = temperature
        super().__init__(self._take_odds(probs, logits), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expand_odds(LogitRelaxedBernoulli, batch_shape, _instance, 0)
        new.temperature = self.temperature
        return new

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        probs = clamp_probs(self.probs.expand(shape))
        uniforms = clamp_probs(ts.rand(shape, dtype=probs.dtype, device=probs.device))
        noise = uniforms.log() - (-uniforms).log1p()
        return (noise + probs.log() - (-probs).log1p()) / self.temperature  # type: ignore[no-any-return]

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        diff = logits - value.mul(self.temperature)
        return ts.log(ts.as_tensor(self.temperature, device=diff.device)) + diff - 2 * diff.exp().log1p()


class RelaxedBernoulli(TransformedDistribution):
    """A differentiable stand-in for `Bernoulli` on (0, 1): the sigmoid of `LogitRelaxedBernoulli`."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample: Any = True
    base_dist: LogitRelaxedBernoulli

    def __init__(
        self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None
    ) -> None:
        super().__init__(
            LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args
        )

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(RelaxedBernoulli, _instance))

    @property
    def temperature(self) -> Any:
        """The temperature; draws near 0 and 1 as it goes to 0."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-odds."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
