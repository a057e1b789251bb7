"""Transforms of single numbers."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Size, Tensor
from tesserack.distributions import constraints
from tesserack.distributions._transform_base import Transform
from tesserack.nn import functional as F

__all__ = [
    "AbsTransform",
    "AffineTransform",
    "CumulativeDistributionTransform",
    "ExpTransform",
    "PowerTransform",
    "SigmoidTransform",
    "SoftplusTransform",
    "TanhTransform",
]


class _Simple(Transform):
    """Transforms without parameters: any two of a class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    __hash__ = object.__hash__


class ExpTransform(_Simple):
    """y = exp(x)."""

    domain: Any = constraints.real
    codomain: Any = constraints.positive
    bijective: Any = True
    sign: Any = +1

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return x


class PowerTransform(Transform):
    """y = x ^ exponent, for positive x."""

    domain: Any = constraints.positive
    codomain: Any = constraints.positive
    bijective: Any = True

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else ts.tensor(exponent)

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size=cache_size)

    @property
    def sign(self) -> Any:
        return self.exponent.sign()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.pow(self.exponent)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return ts.broadcast_shapes(shape, self.exponent.shape)

    def inverse_shape(self, shape: Any) -> Any:
        return ts.broadcast_shapes(shape, self.exponent.shape)


class SigmoidTransform(_Simple):
    """y = 1 / (1 + exp(-x)), kept off 0 and 1."""

    domain: Any = constraints.real
    codomain: Any = constraints.unit_interval
    bijective: Any = True
    sign: Any = +1

    def _call(self, x: Tensor) -> Tensor:
        limits = ts.finfo(x.dtype)
        return ts.clamp(ts.sigmoid(x), min=limits.tiny, max=1.0 - limits.eps)

    def _inverse(self, y: Tensor) -> Tensor:
        limits = ts.finfo(y.dtype)
        y = y.clamp(min=limits.tiny, max=1.0 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return -F.softplus(-x) - F.softplus(x)


class SoftplusTransform(_Simple):
    """y = log(1 + exp(x))."""

    domain: Any = constraints.real
    codomain: Any = constraints.positive
    bijective: Any = True
    sign: Any = +1

    def _call(self, x: Tensor) -> Tensor:
        return F.softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return -F.softplus(-x)


class TanhTransform(_Simple):
    """y = tanh(x). Prefer ``cache_size=1``: the inverse loses digits near -1 and 1."""

    domain: Any = constraints.real
    codomain: Any = constraints.interval(-1.0, 1.0)
    bijective: Any = True
    sign: Any = +1

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return ts.atanh(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        # log(1 - tanh(x)^2) = 2 (log 2 - x - softplus(-2 x)), without cancellation.
        return 2.0 * (math.log(2.0) - x - F.softplus(-2.0 * x))


class AbsTransform(_Simple):
    """y = |x|; its inverse takes the positive of the two."""

    domain: Any = constraints.real
    codomain: Any = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x; ``event_dim`` dims make one event."""

    bijective: Any = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> Any:
        return self._event_dim

    def _real(self) -> Any:
        return constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        return self._real()

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        return self._real()

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AffineTransform):
            return False
        return _equal(self.loc, other.loc) and _equal(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, (int, float)):
            return (self.scale > 0) - (self.scale < 0)
        return self.scale.sign()

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        shape = x.shape
        if isinstance(self.scale, (int, float)):
            result = ts.full_like(x, math.log(abs(self.scale)))
        else:
            result = ts.abs(self.scale).log()
        if self.event_dim:
            result = result.expand(ts.broadcast_shapes(result.shape, shape[-self.event_dim :]))
            result = result.sum(dim=tuple(range(-self.event_dim, 0)))
            shape = shape[: -self.event_dim]
        return result.expand(shape)

    def forward_shape(self, shape: Any) -> Any:
        return ts.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    def inverse_shape(self, shape: Any) -> Any:
        return self.forward_shape(shape)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return a == b
    return bool((ts.as_tensor(a) == ts.as_tensor(b)).all())


class CumulativeDistributionTransform(Transform):
    """y = distribution.cdf(x), uniform for x of that distribution."""

    bijective: Any = True
    codomain: Any = constraints.unit_interval
    sign: Any = +1

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)  # type: ignore[no-any-return]

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)  # type: ignore[no-any-return]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        return self.distribution.log_prob(x)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CumulativeDistributionTransform(self.distribution, cache_size=cache_size)

    def forward_shape(self, shape: Any) -> Any:
        return Size(shape)
