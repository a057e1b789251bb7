"""Losses of margins, of pairs and triplets, and of counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.amp._autocast import widened
from tesserack.nn._losses import asked_reduction
from tesserack.nn._shown import shown

__all__ = [
    "cosine_embedding_loss",
    "hinge_embedding_loss",
    "margin_ranking_loss",
    "multi_margin_loss",
    "multilabel_margin_loss",
    "multilabel_soft_margin_loss",
    "poisson_nll_loss",
    "soft_margin_loss",
    "triplet_margin_loss",
    "triplet_margin_with_distance_loss",
]


def reduced(name: str, loss: Tensor, reduction: str) -> Tensor:
    """The loss of each element, or their mean or sum. ``ValueError`` for another word."""
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{name}: {reduction} is not a valid value for reduction")
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_j max(0, margin - input[target] + input[j]) ** p / C`` over the other classes j; p is 1 or 2.

    ``input`` is (N, C) or (C), ``target`` (N) or a single class; ``weight`` (C) weighs the classes of the targets.

    >>> import tesserack as ts
    >>> multi_margin_loss(ts.tensor([[1.0, 0.5]]), ts.tensor([0])).item()
    0.25
    """
    name = "multi_margin_loss"
    reduction = asked_reduction(reduction, size_average, reduce)
    input = widened(input)
    if p not in (1, 2):
        raise ValueError(f"{name}: only p == 1 and p == 2 supported")
    if weight is not None and weight.ndim != 1:
        raise ValueError(f"{name}: weight must be one-dimensional")
    rows = input if input.ndim == 2 else input.reshape(1, -1)
    labels = target.reshape(-1)
    if input.ndim > 2 or rows.shape[1] == 0 or labels.shape[0] != rows.shape[0]:
        raise RuntimeError(f"{name}: expected input (N, C) and target (N), got {tuple(input.shape)} and "
                           f"{tuple(target.shape)}")  # fmt: skip
    if weight is not None and weight.shape[0] != rows.shape[1]:
        raise RuntimeError(f"{name}: inconsistent weight size, expected {rows.shape[1]} but got {tuple(weight.shape)}")
    losses = (margin - rows.gather(1, labels.unsqueeze(1)) + rows).clamp(min=0)
    losses = losses if p == 1 else losses * losses
    if weight is not None:
        losses = losses * weight[labels].unsqueeze(1)
    own = ts.zeros_like(losses).scatter_(1, labels.unsqueeze(1), 1).bool()
    loss = losses.masked_fill(own, 0.0).sum(1) / rows.shape[1]
    loss = reduced(name, loss, reduction)
    return loss.squeeze(0) if input.ndim < 2 and target.ndim == 0 and reduction == "none" else loss


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``sum_ij max(0, 1 - (input[target[j]] - input[i])) / C`` over targets j and classes i that are none.

    ``input`` is (N, C) or (C), ``target`` of the same shape: classes, up to the first -1.

    >>> import tesserack as ts
    >>> multilabel_margin_loss(ts.tensor([0.5, 1.0]), ts.tensor([0, -1])).item()
    0.75
    """
    name = "multilabel_margin_loss"
    reduction = asked_reduction(reduction, size_average, reduce)
    input = widened(input)
    if input.ndim > 2 or target.shape != input.shape or (input.ndim and input.shape[-1] == 0):
        raise RuntimeError(f"{name}: expected input (N, C) or (C) and target alike, got {tuple(input.shape)} and "
                           f"{tuple(target.shape)}")  # fmt: skip
    rows, labels = input.reshape(-1, input.shape[-1] if input.ndim else 1), target
    labels = labels.reshape(rows.shape)
    if labels.numel() and (int(labels.max().item()) >= rows.shape[1] or int(labels.min().item()) < -1):
        raise RuntimeError(f"{name}: argument target is out of range, expected classes below {rows.shape[1]} or -1")
    known = (labels >= 0).to(ts.int64).cumprod(1).bool()
    safe = ts.where(known, labels, ts.zeros_like(labels))
    wanted = ts.zeros_like(rows, dtype=ts.int64).scatter_add(1, safe, known.to(ts.int64)) > 0
    gaps = (1 - rows.gather(1, safe).unsqueeze(2) + rows.unsqueeze(1)).clamp(min=0)  # (N, targets, classes)
    counted = known.unsqueeze(2) & ~wanted.unsqueeze(1)
    loss = reduced(name, gaps.masked_fill(~counted, 0.0).sum((1, 2)) / rows.shape[1], reduction)
    return loss.squeeze(0) if input.ndim < 2 and reduction == "none" else loss


def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over classes of the binary cross entropy of ``sigmoid(input)``; shapes (N, C), ``weight`` (C).

    >>> import tesserack as ts
    >>> round(multilabel_soft_margin_loss(ts.zeros(1, 2), ts.tensor([[1.0, 0.0]])).item(), 4)
    0.6931
    """
    reduction = asked_reduction(reduction, size_average, reduce)
    logs: Any = shown("logsigmoid")
    loss = -(target * logs(input) + (1 - target) * logs(-input))
    loss = loss if weight is None else loss * weight
    return reduced("multilabel_soft_margin_loss", loss.mean(-1), reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, distance(anchor, positive) - distance(anchor, negative) + margin)``; 2-norm if no distance is given.

    ``swap`` takes the distance between positive and negative where it is smaller.

    >>> import tesserack as ts
    >>> triplet_margin_with_distance_loss(ts.zeros(1, 1), ts.ones(1, 1), ts.ones(1, 1)).item()
    1.0
    """
    name = "triplet_margin_with_distance_loss"
    if margin <= 0:
        raise ValueError(f"{name}: margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            f"{name}: The anchor, positive, and negative tensors are expected to have the same number of dimensions, "
            f"but got: anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance: Any = shown("pairwise_distance") if distance_function is None else distance_function
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ts.minimum(far, distance(positive, negative))
    return reduced(name, (margin + near - far).clamp(min=0), reduction)


# --- operators, with the arguments that older programs pass -----------------------------------------------------------


def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, -target * (input1 - input2) + margin)``."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.margin_ranking_loss(input1, input2, target, margin, reduction=reduction)


def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``input`` where the target is 1, ``max(0, margin - input)`` where it is -1."""
    return ts.hinge_embedding_loss(input, target, margin, reduction=asked_reduction(reduction, size_average, reduce))


def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``1 - cos`` of pairs with target 1, ``max(0, cos - margin)`` of pairs with target -1."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.cosine_embedding_loss(input1, input2, target, margin, reduction=reduction)


def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``log(1 + exp(-target * input))``."""
    return ts.soft_margin_loss(input, target, reduction=asked_reduction(reduction, size_average, reduce))


def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-6,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``max(0, d(anchor, positive) - d(anchor, negative) + margin)`` with the distance of order ``p``."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.triplet_margin_loss(anchor, positive, negative, margin, p, eps, swap, reduction=reduction)


def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-8,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood of counts ``target`` under Poisson distributions of (log) rates ``input``."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=reduction)
