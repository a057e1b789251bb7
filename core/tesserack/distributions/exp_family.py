"""Distributions of the exponential family, whose entropy follows from their log-normaliser."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions.distribution import Distribution, missing

__all__ = ["ExponentialFamily"]


class ExponentialFamily(Distribution):
    """Densities exp(t(x) . theta - F(theta) + k(x)).

    Subclasses give ``_natural_params`` (theta), ``_log_normalizer`` (F) and ``_mean_carrier_measure`` (E[k(x)]); then
    the entropy is F - theta . grad F - E[k(x)] (Nielsen and Nock 2010), and `kl_divergence` between two of a kind is
    the Bregman divergence of F.
    """

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise missing(self, "_natural_params")

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise missing(self, "_log_normalizer")

    @property
    def _mean_carrier_measure(self) -> Any:
        raise missing(self, "_mean_carrier_measure")

    def entropy(self) -> Tensor:
        params = [p.detach().requires_grad_() for p in self._natural_params]
        with ts.enable_grad():
            log_normalizer = self._log_normalizer(*params)
            gradients = ts.autograd.grad(log_normalizer.sum(), params, create_graph=True)
        result: Tensor = log_normalizer - self._mean_carrier_measure
        for param, gradient in zip(params, gradients, strict=True):
            result = result - (param * gradient).reshape((*self._batch_shape, -1)).sum(-1)
        return result
