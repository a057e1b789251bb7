"""The logistic normal distribution."""

from __future__ import annotations

from typing import Any, cast

from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions.independent import Independent
from tesserack.distributions.normal import Normal
from tesserack.distributions.transformed_distribution import TransformedDistribution
from tesserack.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """The stick-breaking transform of K independent normals: points of the simplex of K + 1."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    has_rsample: Any = True
    base_dist: Independent

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        if not base.batch_shape:
            base = base.expand([1])
        super().__init__(base, StickBreakingTransform(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        return super().expand(batch_shape, self._get_checked_instance(LogisticNormal, _instance))

    def _normal(self) -> Normal:
        return cast(Normal, self.base_dist.base_dist)

    @property
    def loc(self) -> Tensor:
        """Means of the normals."""
        return self._normal().loc

    @property
    def scale(self) -> Tensor:
        """Standard deviations of the normals."""
        return self._normal().scale
