"""Mixtures of distributions of one family."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.categorical import Categorical
from tesserack.distributions.constraints import MixtureSameFamilyConstraint
from tesserack.distributions.distribution import Distribution

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Distribution):
    """A mixture: the rightmost batch dim of ``component_distribution`` is chosen among by a `Categorical`.

    >>> import tesserack as ts
    >>> from tesserack.distributions import Categorical, MixtureSameFamily, Normal
    >>> mixture = MixtureSameFamily(Categorical(ts.ones(2)), Normal(ts.tensor([-1.0, 1.0]), ts.ones(2)))
    >>> mixture.mean
    tensor(0.)
    """

    arg_constraints: Any = {}
    has_rsample: Any = False

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution need to be an instance of torch.distributions.Distribution")
        mixture_batch = mixture_distribution.batch_shape
        component_batch = component_distribution.batch_shape[:-1]
        for a, b in zip(reversed(mixture_batch), reversed(component_batch), strict=False):
            if a != 1 and b != 1 and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({tuple(mixture_batch)}) is not compatible with "
                    f"`component_distribution.batch_shape`({tuple(component_batch)})"
                )
        chosen_from = mixture_distribution.logits.shape[-1]
        components = component_distribution.batch_shape[-1]
        if chosen_from != components:
            raise ValueError(
                f"`mixture_distribution component` ({chosen_from}) does not equal "
                f"`component_distribution.batch_shape[-1]` ({components})"
            )
        self._num_component = components
        event_shape = component_distribution.event_shape
        self._event_ndims = len(event_shape)
        super().__init__(component_batch, event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = Size(batch_shape)
        new = self._get_checked_instance(MixtureSameFamily, _instance)
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        new._num_component = self._num_component
        new._event_ndims = self._event_ndims
        Distribution.__init__(new, batch_shape, new._component_distribution.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    @constraints.dependent_property
    def support(self) -> Any:
        return MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Categorical:
        """The distribution of the component chosen."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Distribution:
        """The components."""
        return self._component_distribution

    @property
    def mean(self) -> Tensor:
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        return (probs * self.component_distribution.mean).sum(-1 - self._event_ndims)

    @property
    def variance(self) -> Tensor:
        probs = self._pad_mixture_dimensions(self.mixture_distribution.probs)
        within = (probs * self.component_distribution.variance).sum(-1 - self._event_ndims)
        offsets = self.component_distribution.mean - self._pad(self.mean)
        return within + (probs * offsets.pow(2.0)).sum(-1 - self._event_ndims)

    def cdf(self, x: Tensor) -> Tensor:
        each = self.component_distribution.cdf(self._pad(x))
        return (each * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Tensor) -> Tensor:
        x = self._pad(self._checked(x))
        each = self.component_distribution.log_prob(x)
        weights = ts.log_softmax(self.mixture_distribution.logits, dim=-1)
        return ts.logsumexp(each + weights, dim=-1)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        sample_shape = Size(sample_shape)
        with ts.no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            index = chosen.reshape((*chosen.shape, *([1] * (self._event_ndims + 1))))
            index = index.expand((*chosen.shape, 1, *self.event_shape))
            return drawn.gather(dim, index).squeeze(dim)

    def _pad(self, x: Tensor) -> Tensor:
        return x.unsqueeze(-1 - self._event_ndims)

    def _pad_mixture_dimensions(self, x: Tensor) -> Tensor:
        missing = len(self.batch_shape) - (x.ndim - 1)
        shape = (*x.shape[:-1], *([1] * missing), *x.shape[-1:], *([1] * self._event_ndims))
        return x.reshape(shape)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
