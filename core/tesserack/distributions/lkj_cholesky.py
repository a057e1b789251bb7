"""The LKJ distribution of Cholesky factors of correlation matrices."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.beta import Beta
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all

__all__ = ["LKJCholesky"]


class LKJCholesky(Distribution):
    """Lower Cholesky factors of correlation matrices M with density in proportion to det(M)^(concentration - 1).

    Lewandowski, Kurowicka and Joe 2009, by their "onion" method.
    """

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        self._beta = self._row_beta()
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args=validate_args)

    def _row_beta(self) -> Beta:
        """The squared distance of each row's off-diagonal part from the origin; the first row has none."""
        marginal = self.concentration + 0.5 * (self.dim - 2)
        offset = ts.arange(self.dim - 1, dtype=self.concentration.dtype, device=self.concentration.device)
        offset = ts.cat([offset.new_zeros((1,)), offset])
        return Beta(offset + 0.5, marginal.unsqueeze(-1) - 0.5 * offset)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        new = self._expanded(LKJCholesky, batch_shape, ("concentration",), _instance)
        new.dim = self.dim
        new._beta = new._row_beta()
        return new

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with ts.no_grad():
            y = self._beta.sample(sample_shape).unsqueeze(-1)
            shape = self._extended_shape(sample_shape)
            direction = ts.randn(shape, dtype=y.dtype, device=y.device).tril(-1)
            length = direction.norm(dim=-1, keepdim=True)
            row = direction / ts.where(length > 0, length, ts.ones_like(length))
            w = y.sqrt() * row
            squared = (w**2).sum(dim=-1)
            diagonal = (1 - squared).clamp(min=ts.finfo(w.dtype).tiny).sqrt()
            return w + diagonal.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        diagonal = value.diagonal(dim1=-1, dim2=-2)[..., 1:]
        order = ts.arange(2, self.dim + 1, device=self.concentration.device)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + self.dim - order
        unnormalised = (order * diagonal.log()).sum(dim=-1)
        # The normaliser: pi^(d (d + 1) / 4) with d = dim - 1, times a multivariate gamma function, over gamma^d.
        d = self.dim - 1
        alpha = self.concentration + 0.5 * d
        steps = ts.arange(d, dtype=alpha.dtype, device=alpha.device) / 2
        gammas = ts.lgamma((alpha - 0.5).unsqueeze(-1) - steps).sum(-1)
        constant = d * (d + 1) / 4 * math.log(math.pi) + gammas - d * ts.lgamma(alpha)
        return unnormalised - constant
