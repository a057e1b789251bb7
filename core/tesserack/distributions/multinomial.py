"""The multinomial distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.binomial import Binomial
from tesserack.distributions.categorical import Categorical
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all

__all__ = ["Multinomial"]


class Multinomial(Distribution):
    """Counts of K outcomes among ``total_count`` trials, one int for the whole batch; `Categorical`'s parameters."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}

    def __init__(
        self,
        total_count: int = 1,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._categorical = Categorical(probs=probs, logits=logits)
        self._binomial = Binomial(total_count=total_count, probs=self.probs)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(Multinomial, batch_shape, (), _instance)
        new.total_count = self.total_count
        new._categorical = self._categorical.expand(batch_shape)
        new._binomial = self._binomial.expand((*new.batch_shape, *self.event_shape))
        return new

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._categorical._new(*args, **kwargs)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        return constraints.multinomial(self.total_count)

    @property
    def probs(self) -> Tensor:
        """Probabilities."""
        return self._categorical.probs

    @property
    def logits(self) -> Tensor:
        """Log-probabilities."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Size:
        """The shape of ``probs`` and ``logits``."""
        return self._categorical.param_shape

    @property
    def mean(self) -> Tensor:
        return self.probs * self.total_count

    @property
    def variance(self) -> Tensor:
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        drawn = self._categorical.sample(Size((self.total_count, *sample_shape)))
        drawn = drawn.permute(*range(1, drawn.dim()), 0)
        counts = drawn.new_zeros(self._extended_shape(sample_shape))
        counts.scatter_add_(-1, drawn, ts.ones_like(drawn))
        return counts.type_as(self.probs)

    def entropy(self) -> Tensor:
        n = self.total_count
        per_trial = self._categorical.entropy()
        support = self._binomial.enumerate_support(expand=False)[1:]
        weights = ts.exp(self._binomial.log_prob(support)) * ts.lgamma(support + 1)
        return (
            n * per_trial
            - ts.lgamma(ts.tensor(n + 1.0, dtype=per_trial.dtype)).to(per_trial.device)
            + weights.sum((0, -1))
        )

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        ways = ts.lgamma(value.sum(-1) + 1) - ts.lgamma(value + 1).sum(-1)
        # Nothing counted of the impossible is certain: 0 * -inf is 0 here.
        logits = logits.masked_fill((value == 0) & (logits == -float("inf")), 0.0)
        return ways + (logits * value).sum(-1)
