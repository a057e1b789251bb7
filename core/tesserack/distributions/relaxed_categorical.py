"""The relaxed one-hot categorical (concrete, Gumbel-softmax) distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.categorical import Categorical
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import ExpTransform
from tesserack.distributions.utils import broadcast_all, clamp_probs

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(Distribution):
    """The logarithm of a relaxed one-hot variate (Maddison, Mnih and Teh 2017; Jang, Gu and Poole 2017)."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.real_vector  # in truth the part of it whose exponentials sum to one
    has_rsample: Any = True

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._categorical = Categorical(probs, logits)
        self.temperature = temperature
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(ExpRelaxedCategorical, batch_shape, (), _instance)
        new.temperature = self.temperature
        new._categorical = self._categorical.expand(batch_shape)
        return new

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._categorical._new(*args, **kwargs)

    @property
    def param_shape(self) -> Size:
        """The shape of ``probs`` and ``logits``."""
        return self._categorical.param_shape

    @property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return self._categorical.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        uniforms = clamp_probs(ts.rand(shape, dtype=self.logits.dtype, device=self.logits.device))
        gumbels = -((-(uniforms.log())).log())
        scores = (self.logits + gumbels) / self.temperature
        return scores - scores.logsumexp(dim=-1, keepdim=True)  # type: ignore[no-any-return]

    def log_prob(self, value: Tensor) -> Tensor:
        k = self._categorical._num_events
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = ts.as_tensor(self.temperature, dtype=logits.dtype, device=logits.device)
        constant = ts.lgamma(ts.full_like(temperature, float(k))) + (k - 1) * temperature.log()
        score = logits - value.mul(self.temperature)
        return (score - score.logsumexp(dim=-1, keepdim=True)).sum(-1) + constant


class RelaxedOneHotCategorical(TransformedDistribution):
    """A differentiable stand-in for `OneHotCategorical` on the simplex."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.simplex
    has_rsample: Any = True
    base_dist: ExpRelaxedCategorical

    def __init__(
        self,
        temperature: Any,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(RelaxedOneHotCategorical, _instance))

    @property
    def temperature(self) -> Any:
        """The temperature; draws near the corners as it goes to 0."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return self.base_dist.logits

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self.base_dist.probs
