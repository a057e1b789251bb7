"""Losses of margins over several classes as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.distance import PairwiseDistance
from tesserack.nn.modules.loss import NLLLoss, _Loss
from tesserack.nn.modules.module import Module

__all__ = [
    "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss",
    "MultiMarginLoss",
    "NLLLoss2d",
    "TripletMarginWithDistanceLoss",
]


class MultiMarginLoss(_Loss):
    """``sum_j max(0, margin - input[target] + input[j]) ** p / C`` over the other classes j; p is 1 or 2.

    >>> from tesserack import nn, tensor
    >>> nn.MultiMarginLoss()(tensor([[1.0, 0.5]]), tensor([0])).item()
    0.25
    """

    weight: Tensor | None

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        if p not in (1, 2):
            raise ValueError("only p == 1 and p == 2 supported")
        if weight is not None and weight.ndim != 1:
            raise ValueError(f"MultiMarginLoss: expected weight to be None or 1D tensor, got {weight.ndim}D instead")
        self.register_buffer("weight", weight)
        self.p = p
        self.margin = margin

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multi_margin_loss(input, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(_Loss):
    """Margins between the classes listed in ``target``, up to the first -1, and all others.

    >>> from tesserack import nn, tensor
    >>> nn.MultiLabelMarginLoss()(tensor([0.5, 1.0]), tensor([0, -1])).item()
    0.75
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_margin_loss(input, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Loss):
    """The mean over classes of the binary cross entropy of ``sigmoid(input)``.

    >>> from tesserack import nn, tensor, zeros
    >>> round(nn.MultiLabelSoftMarginLoss()(zeros(1, 2), tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.multilabel_soft_margin_loss(input, target, self.weight, reduction=self.reduction)


class TripletMarginWithDistanceLoss(Module):
    """``max(0, distance(anchor, positive) - distance(anchor, negative) + margin)`` by any distance.

    >>> from tesserack import nn, ones, zeros
    >>> nn.TripletMarginWithDistanceLoss()(zeros(1, 1), ones(1, 1), ones(1, 1)).item()
    1.0
    """

    def __init__(
        self,
        *,
        distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        if margin <= 0:
            raise ValueError(
                f"TripletMarginWithDistanceLoss: expected margin to be greater than 0, got {margin} instead"
            )
        self.reduction = reduction
        self.distance_function: Any = PairwiseDistance() if distance_function is None else distance_function
        self.margin = margin
        self.swap = swap

    def forward(self, anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        return F.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class NLLLoss2d(NLLLoss):
    """:class:`NLLLoss` under an old name."""
