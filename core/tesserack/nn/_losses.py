"""The loss functions of ``nn.functional``: what a native signature does not have, older arguments included."""

from __future__ import annotations

import math
import warnings

import tesserack as ts
from tesserack import Tensor

__all__ = [
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cross_entropy",
    "gaussian_nll_loss",
    "huber_loss",
    "kl_div",
    "l1_loss",
    "mse_loss",
    "nll_loss",
    "smooth_l1_loss",
]


def asked_reduction(reduction: str, size_average: bool | None, reduce: bool | None) -> str:
    """The reduction asked for, also through the two arguments it replaced."""
    if size_average is None and reduce is None:
        if reduction not in ("none", "mean", "sum", "batchmean"):
            raise ValueError(f"{reduction} is not a valid value for reduction")
        return reduction
    warnings.warn("size_average and reduce are deprecated, use reduction=", stacklevel=3)
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Negative log likelihood of ``target`` under ``softmax(input)``.

    ``input`` holds logits (N, C), (C) or (N, C, d1, ...); ``target`` class indices int64 of the same shape without C,
    or probabilities of the shape of ``input``. ``weight`` (C) weighs the classes, ``ignore_index`` marks targets to
    leave out, ``label_smoothing`` in [0, 1] mixes in the uniform distribution. ``reduction``: mean, sum or none.

    >>> import tesserack
    >>> round(cross_entropy(tesserack.zeros(2, 4), tesserack.tensor([0, 3])).item(), 4)
    1.3863
    """
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.cross_entropy(input, target, weight, ignore_index=ignore_index, reduction=reduction,
                            label_smoothing=label_smoothing)  # fmt: skip


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-weight[target] * input[target]`` for log probabilities ``input`` (N, C), (C) or (N, C, d1, ...)."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """``(input - target) ** 2``, reduced; warns when the two shapes differ and are broadcast.

    ``weight``, of the same shape, multiplies each element; the mean is then over the sum of the weights.
    """
    _warn_broadcast("mse_loss", input, target)
    reduction = asked_reduction(reduction, size_average, reduce)
    if weight is None:
        return ts.mse_loss(input, target, reduction=reduction)
    return _weighted(ts.mse_loss(input, target, reduction="none"), weight, reduction)


def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:
    """``abs(input - target)``, reduced; ``weight`` as in :func:`mse_loss`."""
    _warn_broadcast("l1_loss", input, target)
    reduction = asked_reduction(reduction, size_average, reduce)
    if weight is None:
        return ts.l1_loss(input, target, reduction=reduction)
    return _weighted(ts.l1_loss(input, target, reduction="none"), weight, reduction)


def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:
    """With ``d = abs(input - target)``: ``d ** 2 / (2 * beta)`` where ``d < beta``, else ``d - beta / 2``."""
    _warn_broadcast("smooth_l1_loss", input, target)
    return ts.smooth_l1_loss(input, target, reduction=asked_reduction(reduction, size_average, reduce), beta=beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """With ``d = abs(input - target)``: ``d ** 2 / 2`` where ``d < delta``, else ``delta * (d - delta / 2)``.

    ``weight`` multiplies each element; unlike in :func:`mse_loss` the mean is over the number of elements.
    """
    _warn_broadcast("huber_loss", input, target)
    if weight is None:
        return ts.huber_loss(input, target, reduction=reduction, delta=delta)
    loss = ts.huber_loss(input, target, reduction="none", delta=delta)
    return _weighted(loss, weight, reduction, divide_by_weights=False)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """``-(target * log(input) + (1 - target) * log(1 - input))`` for probabilities; each log is cut off at -100."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.binary_cross_entropy(input, target, weight, reduction=reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """:func:`binary_cross_entropy` of ``sigmoid(input)``, without overflow; ``pos_weight`` weighs the positive term."""
    reduction = asked_reduction(reduction, size_average, reduce)
    return ts.binary_cross_entropy_with_logits(input, target, weight, reduction=reduction, pos_weight=pos_weight)


def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:
    """``target * (log(target) - input)`` for log probabilities ``input``; reduction may also be ``"batchmean"``."""
    reduction = asked_reduction(reduction, size_average, reduce)
    if reduction == "mean":
        warnings.warn(
            "reduction: 'mean' divides the total loss by both the batch size and the support size. 'batchmean' divides "
            "only by the batch size, and aligns with the KL div math definition. 'mean' will be changed to behave the "
            "same as 'batchmean' in the next major release.",
            stacklevel=2,
        )
    if reduction == "batchmean":
        total = ts.kl_div(input, target, reduction="sum", log_target=log_target)
        return total / input.shape[0] if input.ndim else total
    return ts.kl_div(input, target, reduction=reduction, log_target=log_target)


def _warn_broadcast(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        warnings.warn(
            # In PyTorch's words, which programs filter by.
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will "
            f"likely lead to incorrect results due to broadcasting. Please ensure they have the same size. ({name})",
            stacklevel=3,
        )


def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | float,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood of targets under normal distributions of mean ``input`` and variance ``var``.

    ``var`` has the input's shape, or is the same along one dim (of size 1, or missing if the last), and counts as
    ``eps`` at least. ``full`` adds the constant term. ``ValueError`` for another shape, a negative variance or another
    reduction.

    >>> import tesserack as ts
    >>> gaussian_nll_loss(ts.zeros(2), ts.ones(2), ts.ones(2)).item()
    0.5
    """
    spread = var if isinstance(var, Tensor) else ts.full_like(input, var)
    if spread.shape != input.shape and spread.shape == input.shape[:-1]:
        spread = spread.unsqueeze(-1)
    others = [have for want, have in zip(input.shape, spread.shape, strict=False) if have != want]
    if spread.ndim != input.ndim or others not in ([], [1]):
        raise ValueError(f"gaussian_nll_loss: var is of incorrect size, got {spread.shape} for input {input.shape}")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"gaussian_nll_loss: expected reduction 'none', 'mean' or 'sum', got {reduction!r}")
    if not spread.is_meta and (spread < 0).any():
        raise ValueError("gaussian_nll_loss: var has negative entry/entries")
    spread = spread.clone()
    with ts.no_grad():
        spread.clamp_(min=eps)
    loss = 0.5 * (spread.log() + (input - target) ** 2 / spread)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _weighted(loss: Tensor, weight: Tensor, reduction: str, divide_by_weights: bool = True) -> Tensor:
    if weight.shape != loss.shape:
        raise ValueError(f"weighted loss: expected a weight of shape {tuple(loss.shape)}, got {tuple(weight.shape)}")
    if reduction == "none":
        return loss * weight
    if reduction not in ("mean", "sum"):
        raise ValueError(f"weighted loss: expected reduction 'none', 'mean' or 'sum', got {reduction!r}")
    total = (loss * weight).sum()
    if reduction == "sum":
        return total
    return total / weight.sum() if divide_by_weights else total / loss.numel()
