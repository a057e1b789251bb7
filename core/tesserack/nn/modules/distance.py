"""Distances and similarities between vectors, pair by pair."""

from __future__ import annotations

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]


class CosineSimilarity(Module):
    """The cosine of the angle between vectors along ``dim``.

    >>> from tesserack import nn, tensor
    >>> nn.CosineSimilarity()(tensor([[3.0, 4.0]]), tensor([[4.0, 3.0]])).item() > 0.95
    True
    """

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)


class PairwiseDistance(Module):
    """The p-norm of differences along the last dimension.

    >>> from tesserack import nn, tensor
    >>> round(nn.PairwiseDistance()(tensor([[0.0, 0.0]]), tensor([[3.0, 4.0]])).item(), 3)
    5.0
    """

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)
