"""What ``fully_shard`` is told about dtypes, offloading and meshes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["CPUOffloadPolicy", "DataParallelMeshDims", "MixedPrecisionPolicy", "OffloadPolicy"]


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of a module under ``fully_shard``; shards, and so the optimizer's step, keep the original one.

    Args:
        param_dtype: of the whole parameters, and so of computation and of what is gathered.
        reduce_dtype: in which gradients are reduced (and kept while they are not): by default ``param_dtype``.
        output_dtype: of floating-point outputs.
        cast_forward_inputs: whether floating-point inputs are cast to ``param_dtype``.
    """

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """No offloading; the base of policies that do."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Shards, their gradients and the optimizer's state stay in host memory. ``pin_memory`` has no effect."""

    pin_memory: bool = True


@dataclass
class DataParallelMeshDims:
    """Which dims of a larger mesh are for data: names of those to shard over, and of those to replicate over."""

    shard: str | tuple[str, ...] | None = None
    replicate: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.shard is None and self.replicate is None:
            raise ValueError("At least one of shard or replicate must be set in DataParallelMeshDims")

    @property
    def shard_names(self) -> tuple[str, ...]:
        """Names of dims to shard over."""
        return _names(self.shard)

    @property
    def replicate_names(self) -> tuple[str, ...]:
        """Names of dims to replicate over."""
        return _names(self.replicate)


def _names(given: str | tuple[str, ...] | None) -> tuple[str, ...]:
    if given is None:
        return ()
    return (given,) if isinstance(given, str) else tuple(given)
