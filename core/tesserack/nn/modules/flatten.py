"""Joining and splitting dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from tesserack import Tensor
from tesserack.nn.modules.module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """Join the dimensions from ``start_dim`` to ``end_dim``, both included, into one.

    >>> from tesserack import nn, zeros
    >>> tuple(nn.Flatten()(zeros(2, 3, 4)).shape)
    (2, 12)
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """Split dimension ``dim`` into the sizes ``unflattened_size``, of which one may be -1.

    >>> from tesserack import nn, zeros
    >>> tuple(nn.Unflatten(1, (3, 4))(zeros(2, 12)).shape)
    (2, 3, 4)
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(dim, int):
            raise TypeError(f"Unflatten: expected dim to be an int (named dimensions do not exist), got {dim!r}")
        if not isinstance(unflattened_size, Sequence) or not all(isinstance(size, int) for size in unflattened_size):
            raise TypeError(f"Unflatten: expected unflattened_size to be a tuple of ints, got {unflattened_size!r}")
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, tuple(self.unflattened_size))

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
