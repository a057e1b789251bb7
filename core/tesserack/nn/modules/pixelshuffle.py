"""Moving values between channels and space."""

from __future__ import annotations

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.module import Module

__all__ = ["ChannelShuffle", "PixelShuffle", "PixelUnshuffle"]


class PixelShuffle(Module):
    """(*, C * r * r, H, W) -> (*, C, H * r, W * r) for ``r = upscale_factor`` (Shi et al., arXiv:1609.05158).

    >>> from tesserack import nn, ones
    >>> tuple(nn.PixelShuffle(2)(ones(1, 8, 3, 3)).shape)
    (1, 2, 6, 6)
    """

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"


class PixelUnshuffle(Module):
    """The inverse of :class:`PixelShuffle`: (*, C, H * r, W * r) -> (*, C * r * r, H, W).

    >>> from tesserack import nn, ones
    >>> tuple(nn.PixelUnshuffle(2)(ones(1, 2, 6, 6)).shape)
    (1, 8, 3, 3)
    """

    def __init__(self, downscale_factor: int) -> None:
        super().__init__()
        self.downscale_factor = downscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_unshuffle(input, self.downscale_factor)

    def extra_repr(self) -> str:
        return f"downscale_factor={self.downscale_factor}"


class ChannelShuffle(Module):
    """Interleave the channels of ``groups`` groups (Zhang et al., arXiv:1707.01083).

    >>> from tesserack import arange, nn
    >>> nn.ChannelShuffle(2)(arange(4.0).view(1, 4, 1, 1)).flatten().tolist()
    [0.0, 2.0, 1.0, 3.0]
    """

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.groups = groups

    def forward(self, input: Tensor) -> Tensor:
        return F.channel_shuffle(input, self.groups)

    def extra_repr(self) -> str:
        return f"groups={self.groups}"
