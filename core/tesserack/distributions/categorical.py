"""Distributions over categories: indices, one-hot vectors, relaxed ones, counts."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions._odds import Odds
from tesserack.distributions.binomial import Binomial
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import ExpTransform
from tesserack.distributions.utils import broadcast_all, clamp_probs
from tesserack.nn import functional as F

__all__ = [
    "Categorical",
    "ExpRelaxedCategorical",
    "Multinomial",
    "OneHotCategorical",
    "OneHotCategoricalStraightThrough",
    "RelaxedOneHotCategorical",
]


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


class OneHotCategorical(Distribution):
    """A one-hot vector of K elements; parameters as `Categorical`'s."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.one_hot
    has_enumerate_support: Any = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        self._categorical = Categorical(probs, logits)
        super().__init__(self._categorical.batch_shape, self._categorical.param_shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(OneHotCategorical, batch_shape, (), _instance)
        new._categorical = self._categorical.expand(batch_shape)
        return new

    def _new(self, *args: Any, **kwargs: Any) -> Tensor:
        return self._categorical._new(*args, **kwargs)

    @property
    def _param(self) -> Tensor:
        return self._categorical._param

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
        return self._categorical.probs

    @property
    def mode(self) -> Tensor:
        return F.one_hot(self.probs.argmax(dim=-1), self.probs.shape[-1]).to(self.probs.dtype)

    @property
    def variance(self) -> Tensor:
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        indices = self._categorical.sample(sample_shape)
        return F.one_hot(indices, self.event_shape[0]).to(self._param.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return self._categorical.log_prob(value.argmax(-1))

    def entropy(self) -> Tensor:
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Tensor:
        n = self.event_shape[0]
        values = ts.eye(n, dtype=self._param.dtype, device=self._param.device)
        values = values.view((n, *([1] * len(self.batch_shape)), n))
        return values.expand((n, *self.batch_shape, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """The same with the straight-through gradient estimator (Bengio et al. 2013): the samples' gradient is probs'."""

    has_rsample: Any = True

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        samples = self.sample(sample_shape)
        probs = self._categorical.probs
        return samples + (probs - probs.detach())


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
