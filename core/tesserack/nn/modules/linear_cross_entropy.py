"""A last layer and its loss in one."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._linear_cross_entropy import LinearCrossEntropyOptions
from tesserack.nn.modules.linear import Linear
from tesserack.nn.modules.module import Module

__all__ = ["LinearCrossEntropyLoss", "LinearCrossEntropyOptions"]


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
