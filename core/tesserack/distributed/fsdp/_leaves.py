"""What an optimizer has of a divided parameter: a ``DTensor`` over this rank's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, nn

__all__ = ["as_leaf_gradient", "divided_leaf", "local_of", "spec_like"]


def local_of(leaf: Any) -> Tensor:
    """This rank's elements."""
    return getattr(leaf, "_local_tensor", leaf)  # type: ignore[no-any-return]


def as_leaf_gradient(leaf: Any, local: Tensor) -> Any:
    """This rank's part of a gradient, of the leaf's kind."""
    return local if local_of(leaf) is leaf else type(leaf)(local, leaf._spec)


def spec_like(spec: Any, local: Tensor) -> Any:
    """A ``DTensor`` over this memory that lies as another does."""
    from tesserack.distributed.tensor import DTensor
    from tesserack.distributed.tensor._spec import DTensorSpec

    if spec.dtype != local.dtype:
        spec = DTensorSpec(spec.mesh, spec.placements, spec.tensor_meta._replace(dtype=local.dtype))
    return DTensor(local, spec)


def divided_leaf(local: Tensor, shape: Sequence[int], mesh: Any, placements: Sequence[Any], requires_grad: bool) -> Any:
    """A parameter over this rank's part of a whole."""
    from tesserack.distributed.tensor import DTensor

    stride, step = [], 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(length, 1)
    whole = DTensor.from_local(local, mesh, placements, shape=tuple(shape), stride=tuple(reversed(stride)))
    return nn.Parameter(whole, requires_grad=requires_grad)
