"""Losses as modules: ``loss(input, target)``, reduced by ``reduction`` to a mean, a sum, or not at all ("none")."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._linear_cross_entropy import LinearCrossEntropyOptions
from tesserack.nn._losses import asked_reduction
from tesserack.nn.modules.linear import Linear
from tesserack.nn.modules.module import Module

__all__ = [
    "BCELoss",
    "BCEWithLogitsLoss",
    "CTCLoss",
    "CrossEntropyLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "LinearCrossEntropyLoss",
    "LinearCrossEntropyOptions",
    "MSELoss",
    "NLLLoss",
    "SmoothL1Loss",
]


class _Loss(Module):
    """Keeps the reduction; ``size_average`` and ``reduce`` are its older spelling."""

    reduction: str

    def __init__(self, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> None:
        super().__init__()
        older = size_average is not None or reduce is not None
        # A word that none knows is refused when the loss is computed: programs set it in between.
        self.reduction = asked_reduction(reduction, size_average, reduce) if older else reduction


class _WeightedLoss(_Loss):
    """A loss with a weight per class (or per element), kept as a buffer."""

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


class L1Loss(_Loss):
    """``abs(input - target)``.

    >>> from tesserack import nn, tensor
    >>> nn.L1Loss()(tensor([1.0, 2.0]), tensor([0.0, 4.0])).item()
    1.5
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class MSELoss(_Loss):
    """``(input - target) ** 2``.

    >>> from tesserack import nn, tensor
    >>> nn.MSELoss()(tensor([1.0, 2.0]), tensor([0.0, 4.0])).item()
    2.5
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(_Loss):
    """With ``d = abs(input - target)``: ``d ** 2 / (2 * beta)`` where ``d < beta``, else ``d - beta / 2``.

    >>> from tesserack import nn, tensor
    >>> nn.SmoothL1Loss()(tensor([0.0, 0.0]), tensor([1.0, 3.0])).item()
    1.5
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(_Loss):
    """With ``d = abs(input - target)``: ``d ** 2 / 2`` where ``d < delta``, else ``delta * (d - delta / 2)``.

    >>> from tesserack import nn, tensor
    >>> nn.HuberLoss()(tensor([0.0, 0.0]), tensor([1.0, 3.0])).item()
    1.5
    """

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(delta, (int, float)):
            raise TypeError(f"delta must be a float or int, got: {type(delta)}")
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class NLLLoss(_WeightedLoss):
    """``-weight[target] * input[target]`` for log probabilities (N, C, *) and class indices (N, *).

    >>> from tesserack import nn, tensor
    >>> nn.NLLLoss()(tensor([[-1.0, -2.0]]), tensor([1])).item()
    2.0
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction)


class CrossEntropyLoss(_WeightedLoss):
    """Negative log likelihood of class indices (N, *), or of probabilities (N, C, *), under logits (N, C, *).

    The arguments are those of :func:`tesserack.nn.functional.cross_entropy`.

    >>> from tesserack import nn, tensor, zeros
    >>> round(nn.CrossEntropyLoss()(zeros(2, 4), tensor([0, 3])).item(), 4)
    1.3863
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class BCELoss(_WeightedLoss):
    """``-(target * log(input) + (1 - target) * log(1 - input))`` for probabilities ``input``.

    >>> from tesserack import nn, tensor
    >>> round(nn.BCELoss()(tensor([0.5]), tensor([1.0])).item(), 4)
    0.6931
    """

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(_WeightedLoss):
    """:class:`BCELoss` of ``sigmoid(input)``, without overflow; ``pos_weight`` weighs the positive term.

    >>> from tesserack import nn, tensor
    >>> round(nn.BCEWithLogitsLoss()(tensor([0.0]), tensor([1.0])).item(), 4)
    0.6931
    """

    pos_weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        pos_weight: Tensor | None = None,
    ) -> None:
        super().__init__(weight, size_average, reduce, reduction)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, pos_weight=self.pos_weight, reduction=self.reduction
        )


class KLDivLoss(_Loss):
    """``target * (log(target) - input)`` for log probabilities ``input``; ``"batchmean"`` is the divergence itself.

    >>> from tesserack import nn, tensor
    >>> nn.KLDivLoss(reduction="batchmean")(tensor([[0.0]]), tensor([[1.0]])).item()
    0.0
    """

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        log_target: bool = False,
    ) -> None:
        super().__init__(size_average, reduce, reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Any:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)


class CTCLoss(_Loss):
    """Connectionist temporal classification (Graves et al., ICML 2006); see :func:`tesserack.nn.functional.ctc_loss`.

    >>> from tesserack import full, nn, tensor
    >>> round(nn.CTCLoss()(full((2, 1, 2), 0.5).log(), tensor([[1]]), [2], [1]).exp().item(), 4)
    1.3333
    """

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any) -> Tensor:
        return F.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )


class LinearCrossEntropyLoss(Module):
    """Cross entropy of a linear layer's outputs; see :func:`tesserack.nn.functional.linear_cross_entropy`.

    The layer is ``linear``, of ``num_classes * prod(out_features)`` outputs. Input: (in_features) or (N, in_features);
    target: class indices () or (N, *out_features), or probabilities (C) or (N, C, *out_features).

    >>> from tesserack import nn, ones, tensor
    >>> loss = nn.LinearCrossEntropyLoss(5, 10, options=nn.LinearCrossEntropyOptions(batch_chunk_size=1))
    >>> tuple(loss.linear.weight.shape), tuple(loss(ones(2, 5), tensor([3, 4])).shape)
    ((10, 5), ())
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: Any = None,
        reduction: str = "mean",
        weight: Tensor | None = None,
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: LinearCrossEntropyOptions | None = None,
    ) -> None:
        super().__init__()
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise RuntimeError(f"expected weight shape to be ({num_classes},), got {tuple(weight.shape)}")
        if not 0 <= label_smoothing <= 1:
            raise RuntimeError(f"expected label_smoothing to be in range [0, 1], got {label_smoothing}")
        self.in_features = in_features
        self.num_classes = num_classes
        self.out_features = tuple(out_features)
        self.linear = Linear(in_features, num_classes * math.prod(self.out_features), bias, device, dtype)
        self.register_buffer("weight", weight)
        self.reduction = reduction
        self.ignore_index = ignore_index
        self.label_smoothing = label_smoothing
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        outputs = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return F.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*outputs, self.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(outputs),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            options=self.options,
        )

    def extra_repr(self) -> str:
        names = "in_features", "num_classes", "out_features", "bias", "reduction", "ignore_index", "label_smoothing"
        shown = {**vars(self), "bias": self.linear.bias is not None}
        return ", ".join(f"{name}={shown[name]}" for name in (*names, "options"))
