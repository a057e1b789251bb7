"""Random zeroing during training."""

from __future__ import annotations

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.module import Module

__all__ = ["Dropout"]


class Dropout(Module):
    """In training, zero each element with probability ``p`` and scale the rest by ``1 / (1 - p)``; else the identity.

    Raises ``ValueError`` for ``p`` outside [0, 1]. From arXiv:1207.0580.

    >>> from tesserack import nn, ones
    >>> layer = nn.Dropout(0.5)
    >>> set(layer(ones(100)).tolist()) <= {0.0, 2.0}
    True
    >>> layer.eval()(ones(2)).tolist()
    [1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"Dropout: expected a probability between 0 and 1, got {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"
