"""What an optimizer has of a divided parameter: a ``DTensor`` over this rank's part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, nn

__all__ = ["as_leaf_gradient", "as_placed", "divided_leaf", "local_of", "part_of_placed"]


def local_of(leaf: Any) -> Tensor:
    """This rank's elements."""
    return getattr(leaf, "_local_tensor", leaf)  # type: ignore[no-any-return]


def as_placed(full: Tensor, spec: Any) -> Any:
    """A whole parameter as the module knows it: a DTensor along another dim of the mesh, if there is a ``spec``."""
    if spec is None:
        return full
    from tesserack.distributed.tensor import DTensor

    return DTensor(full, spec)


def part_of_placed(grad: Any, spec: Any) -> Any:
    """This rank's part of a gradient of such a parameter."""
    if spec is None or grad is None:
        return grad
    return grad.redistribute(placements=spec.placements).to_local()


def as_leaf_gradient(leaf: Any, local: Tensor) -> Any:
    """This rank's part of a gradient, of the leaf's kind."""
    return local if local_of(leaf) is leaf else type(leaf)(local, leaf._spec)


def divided_leaf(local: Tensor, shape: Sequence[int], mesh: Any, placements: Sequence[Any], requires_grad: bool) -> Any:
    """A parameter over this rank's part of a whole."""
    from tesserack.distributed.tensor import DTensor

    stride, step = [], 1
    for length in reversed(shape):
        stride.append(step)
        step *= max(length, 1)
    whole = DTensor.from_local(local, mesh, placements, shape=tuple(shape), stride=tuple(reversed(stride)))
    return nn.Parameter(whole, requires_grad=requires_grad)
