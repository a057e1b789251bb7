"""Random zeroing during training."""

from __future__ import annotations

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    """Keeps the probability."""

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"{type(self).__name__}: dropout probability has to be between 0 and 1, but got {p}")
        self.p = p
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """In training, zero each element with probability ``p`` and scale the rest by ``1 / (1 - p)``; else the identity.

    Raises ``ValueError`` for ``p`` outside [0, 1]. From arXiv:1207.0580.

    >>> from tesserack import nn, ones
    >>> layer = nn.Dropout(0.5)
    >>> set(layer(ones(100)).tolist()) <= {0.0, 2.0}
    True
    >>> layer.eval()(ones(2)).tolist()
    [1.0, 1.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training, self.inplace)


class Dropout1d(_DropoutNd):
    """:class:`Dropout` of whole channels of (N, C, L): all of a channel is zeroed, or nothing of it.

    >>> from tesserack import nn, ones
    >>> y = nn.Dropout1d()(ones(1, 4, 3)).flatten(2)
    >>> bool((y == y[..., :1]).all())
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout1d(input, self.p, self.training, self.inplace)


class Dropout2d(_DropoutNd):
    """:class:`Dropout` of whole channels of (N, C, H, W): all of a channel is zeroed, or nothing of it.

    >>> from tesserack import nn, ones
    >>> y = nn.Dropout2d()(ones(1, 4, 3, 3)).flatten(2)
    >>> bool((y == y[..., :1]).all())
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout2d(input, self.p, self.training, self.inplace)


class Dropout3d(_DropoutNd):
    """:class:`Dropout` of whole channels of (N, C, D, H, W): all of a channel is zeroed, or nothing of it.

    >>> from tesserack import nn, ones
    >>> y = nn.Dropout3d()(ones(1, 4, 3, 3, 3)).flatten(2)
    >>> bool((y == y[..., :1]).all())
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout3d(input, self.p, self.training, self.inplace)


class AlphaDropout(_DropoutNd):
    """:class:`Dropout` that keeps mean and variance of the outputs of :class:`SELU` (arXiv:1706.02515).

    >>> from tesserack import nn, ones
    >>> len(set(nn.AlphaDropout()(ones(100)).tolist()))
    2
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.alpha_dropout(input, self.p, self.training)


class FeatureAlphaDropout(_DropoutNd):
    """:class:`AlphaDropout` of whole channels of (N, C, *).

    >>> from tesserack import nn, ones
    >>> y = nn.FeatureAlphaDropout()(ones(1, 4, 3, 3)).flatten(2)
    >>> bool((y == y[..., :1]).all())
    True
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.feature_alpha_dropout(input, self.p, self.training)
