"""Several transforms side by side, each on a part of one dimension."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributions import constraints
from tesserack.distributions._transform_base import Transform
from tesserack.distributions.utils import sum_rightmost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CatTransform", "StackTransform"]


class CatTransform(Transform):
    """Transform i works on ``lengths[i]`` entries along ``dim`` (one each by default)."""

    transforms: list[Transform]

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"expected {len(self.transforms)} lengths, got {len(self.lengths)}")
        self.dim = dim

    @property
    def event_dim(self) -> Any:
        return max(t.event_dim for t in self.transforms)

    @property
    def length(self) -> int:
        """The size of the dimension."""
        return sum(self.lengths)

    def with_cache(self, cache_size: int = 1) -> Transform:
        if self._cache_size == cache_size:
            return self
        return CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _parts(self, *values: Tensor) -> Iterator[tuple[Any, ...]]:
        for value in values:
            if not -value.dim() <= self.dim < value.dim() or value.size(self.dim) != self.length:
                shape = tuple(value.shape)
                raise AssertionError(f"expected size {self.length} at dim {self.dim}, got shape {shape}")
        start = 0
        for transform, length in zip(self.transforms, self.lengths, strict=True):
            yield (transform, *(value.narrow(self.dim, start, length) for value in values))
            start += length

    def _call(self, x: Tensor) -> Tensor:
        return ts.cat([t(part) for t, part in self._parts(x)], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return ts.cat([t.inv(part) for t, part in self._parts(y)], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        logs = []
        for t, x_part, y_part in self._parts(x, y):
            log = t.log_abs_det_jacobian(x_part, y_part)
            logs.append(sum_rightmost(log, self.event_dim - t.event_dim))
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return ts.cat(logs, dim=dim) if dim < 0 else sum(logs)

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(Transform):
    """Transform i works on entry i of ``dim``."""

    transforms: list[Transform]

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size: int = 1) -> Transform:
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _slices(self, value: Tensor) -> list[Tensor]:
        count = len(self.transforms)
        if not -value.dim() <= self.dim < value.dim() or value.size(self.dim) != count:
            raise AssertionError(f"expected size {count} at dim {self.dim}, got shape {tuple(value.shape)}")
        return [value.select(self.dim, i) for i in range(count)]

    def _call(self, x: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(x), strict=True)
        return ts.stack([t(part) for t, part in pairs], dim=self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        pairs = zip(self.transforms, self._slices(y), strict=True)
        return ts.stack([t.inv(part) for t, part in pairs], dim=self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Any:
        triples = zip(self.transforms, self._slices(x), self._slices(y), strict=True)
        return ts.stack([t.log_abs_det_jacobian(a, b) for t, a, b in triples], dim=self.dim)

    @property
    def bijective(self) -> Any:
        return all(t.bijective for t in self.transforms)

    @constraints.dependent_property
    def domain(self) -> Any:
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
