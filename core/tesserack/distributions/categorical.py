"""The categorical distribution."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions._odds import Odds

__all__ = ["Categorical"]


class Categorical(Odds):
    """An index 0 ... K-1 with probabilities in proportion to ``probs`` (..., K), or to exp(``logits``).

    >>> import tesserack as ts
    >>> Categorical(ts.tensor([1.0, 3.0])).log_prob(ts.tensor(1)).exp()
    tensor(0.7500)
    """

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support: Any = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._check_one(probs, logits)
        given = probs if probs is not None else logits
        assert given is not None
        if given.dim() < 1:
            name = "probs" if probs is not None else "logits"
            raise ValueError(f"`{name}` parameter must be at least one-dimensional.")
        if probs is not None:
            self._param = self.__dict__["probs"] = probs / probs.sum(-1, keepdim=True)
        else:
            self._param = self.__dict__["logits"] = given - given.logsumexp(dim=-1, keepdim=True)
        self._num_events = self._param.size(-1)
        super().__init__(self._param.size()[:-1], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expand_odds(Categorical, batch_shape, _instance, 1)
        new._num_events = self._num_events
        return new

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Tensor:
        return ts.full(self._extended_shape(), math.nan, dtype=self.probs.dtype, device=self.probs.device)

    @property
    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Tensor:
        return self.mean

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        with ts.no_grad():
            rows = self.probs.detach().reshape(-1, self._num_events)
            drawn = ts.multinomial(rows, sample_shape.numel(), True) if rows.numel() and sample_shape.numel() else None
        if drawn is None:
            return ts.zeros(self._extended_shape(sample_shape), dtype=ts.int64, device=self._param.device)
        return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value).long().unsqueeze(-1)
        value, log_pmf = ts.broadcast_tensors(value, self.logits)
        return log_pmf.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Tensor:
        logits = self.logits.clamp(min=ts.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        values = ts.arange(self._num_events, dtype=ts.int64, device=self._param.device)
        values = values.view((-1, *([1] * len(self._batch_shape))))
        return values.expand((-1, *self._batch_shape)) if expand else values
