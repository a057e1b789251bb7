"""The relaxed Bernoulli distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions._odds import BinaryOdds
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import SigmoidTransform
from tesserack.distributions.utils import broadcast_all, clamp_probs

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


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
