"""Losses as modules, of pairs and of distributions; see :mod:`tesserack.nn.modules.loss` for the commoner ones."""

from __future__ import annotations

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.loss import _Loss

__all__ = [
    "CosineEmbeddingLoss",
    "GaussianNLLLoss",
    "HingeEmbeddingLoss",
    "MarginRankingLoss",
    "PoissonNLLLoss",
    "SoftMarginLoss",
    "TripletMarginLoss",
]


class _MarginLoss(_Loss):
    """Also keeps the margin."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.margin = margin


class MarginRankingLoss(_MarginLoss):
    """``max(0, -target * (input1 - input2) + margin)``; target 1 wants the first larger, -1 the second.

    >>> from tesserack import nn, tensor
    >>> nn.MarginRankingLoss()(tensor([1.0]), tensor([3.0]), tensor([1.0])).item()
    2.0
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.margin_ranking_loss(input1, input2, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(_MarginLoss):
    """``1 - cos`` of pairs with target 1, ``max(0, cos - margin)`` of pairs with target -1.

    >>> from tesserack import nn, ones, tensor
    >>> nn.CosineEmbeddingLoss()(ones(1, 4), -ones(1, 4), tensor([1])).item()
    2.0
    """

    def forward(self, input1: Tensor, input2: Tensor, target: Tensor) -> Tensor:
        return F.cosine_embedding_loss(input1, input2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(_MarginLoss):
    """The distances ``input`` with target 1, ``max(0, margin - input)`` with target -1.

    >>> from tesserack import nn, tensor
    >>> nn.HingeEmbeddingLoss()(tensor([0.5, 0.5]), tensor([1.0, -1.0])).item()
    0.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.hinge_embedding_loss(input, target, self.margin, reduction=self.reduction)


class SoftMarginLoss(_Loss):
    """``log(1 + exp(-target * input))`` for targets 1 and -1.

    >>> from tesserack import nn, tensor
    >>> round(nn.SoftMarginLoss()(tensor([0.0]), tensor([1.0])).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.soft_margin_loss(input, target, reduction=self.reduction)


class TripletMarginLoss(_Loss):
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)``, d the p-norm along the last dimension.

    ``swap`` takes the distance of positive and negative where that is smaller.

    >>> from tesserack import nn, tensor, zeros
    >>> round(nn.TripletMarginLoss()(zeros(1, 2), zeros(1, 2), tensor([[0.0, 0.5]])).item(), 3)
    0.5
    """

    def __init__(
        self,
        margin: float = 1.0,
        p: float = 2.0,
        eps: float = 1e-6,
        swap: bool = False,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if margin <= 0:
            raise ValueError(f"TripletMarginLoss: expected margin to be greater than 0, got {margin}")
        self.margin = margin
        self.p = p
        self.eps = eps
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_loss(
            anchor, positive, negative, self.margin, self.p, self.eps, self.swap, reduction=self.reduction
        )


class PoissonNLLLoss(_Loss):
    """Negative log-likelihood of counts under Poisson distributions; ``log_input``: the input is the rate's logarithm.

    ``full`` adds Stirling's term, which does not depend on the input.

    >>> from tesserack import nn, tensor
    >>> nn.PoissonNLLLoss()(tensor([0.0]), tensor([3.0])).item()
    1.0
    """

    def __init__(
        self,
        log_input: bool = True,
        full: bool = False,
        size_average: bool | None = None,
        eps: float = 1e-8,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_input = log_input
        self.full = full
        self.eps = eps

    def forward(self, log_input: Tensor, target: Tensor) -> Tensor:
        return F.poisson_nll_loss(
            log_input, target, log_input=self.log_input, full=self.full, eps=self.eps, reduction=self.reduction
        )


class GaussianNLLLoss(_Loss):
    """Negative log-likelihood of targets under normal distributions of mean ``input`` and variance ``var``.

    >>> from tesserack import nn, tensor
    >>> nn.GaussianNLLLoss()(tensor([1.0]), tensor([3.0]), tensor([1.0])).item()
    2.0
    """

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(None, None, reduction)
        self.full = full
        self.eps = eps

    def forward(self, input: Tensor, target: Tensor, var: Tensor | float) -> Tensor:
        return F.gaussian_nll_loss(input, target, var, full=self.full, eps=self.eps, reduction=self.reduction)
