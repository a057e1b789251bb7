"""The loss of sequences without alignment as a module."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.loss import _Loss

__all__ = ["CTCLoss"]


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
