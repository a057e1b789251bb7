"""The Laplace distribution."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions.distribution import Distribution
from tesserack.distributions.utils import broadcast_all, is_number

__all__ = ["Laplace"]


class Laplace(Distribution):
    """The Laplace distribution, exp(-|x - loc| / scale) / (2 scale)."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample: Any = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        batch_shape = Size() if is_number(loc) and is_number(scale) else self.loc.size()
        super().__init__(batch_shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @property
    def variance(self) -> Tensor:
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Tensor:
        return 2**0.5 * self.scale

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return self._expanded(Laplace, batch_shape, ("loc", "scale"), _instance)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        # Uniform on (-1, 1): -1 itself would give minus infinity.
        eps = ts.finfo(self.loc.dtype).eps
        u = ts.rand(shape, dtype=self.loc.dtype, device=self.loc.device) * (2 - eps) + (eps - 1)
        return self.loc - self.scale * u.sign() * ts.log1p(-u.abs().clamp(max=1 - eps / 2))

    def log_prob(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        return -ts.log(2 * self.scale) - ts.abs(value - self.loc) / self.scale

    def cdf(self, value: Tensor) -> Tensor:
        value = self._checked(value)
        offset = value - self.loc
        return 0.5 - 0.5 * offset.sign() * ts.expm1(-offset.abs() / self.scale)

    def icdf(self, value: Tensor) -> Tensor:
        term = value - 0.5
        return self.loc - self.scale * term.sign() * ts.log1p(-2 * term.abs())

    def entropy(self) -> Tensor:
        return 1 + ts.log(2 * self.scale)
