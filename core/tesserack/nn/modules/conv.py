"""Convolution layers."""

from __future__ import annotations

import math
from typing import Any

from tesserack import Tensor, empty
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules._common import uniform_bias_
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["Conv1d", "Conv2d", "Conv3d"]

_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """What the convolutions share; a subclass sets the number of spatial dimensions and defines ``forward``."""

    _spatial: int
    transposed = False
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = to_tuple(kernel_size, self._spatial)
        self.stride = to_tuple(stride, self._spatial)
        self.padding = padding if isinstance(padding, str) else to_tuple(padding, self._spatial)
        self.dilation = to_tuple(dilation, self._spatial)
        self.output_padding: tuple[int, ...] = (0,) * self._spatial
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._edges = self._padding_of_each_edge()
        shape = self._weight_shape()
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.out_channels, self.in_channels // self.groups, *self.kernel_size)

    def _check(self) -> None:
        name = type(self).__name__
        if self.groups <= 0:
            raise ValueError(f"{name}: expected groups > 0, got {self.groups}")
        for what in ("in_channels", "out_channels"):
            if getattr(self, what) % self.groups:
                raise ValueError(
                    f"{name}: expected {what} divisible by groups={self.groups}, got {getattr(self, what)}"
                )
        if self.padding_mode not in _PADDING_MODES:
            raise ValueError(f"{name}: expected padding_mode in {_PADDING_MODES}, got {self.padding_mode!r}")
        if isinstance(self.padding, str):
            if self.padding not in ("same", "valid"):
                raise ValueError(f"{name}: expected padding 'same', 'valid' or numbers, got {self.padding!r}")
            if self.padding == "same" and any(step != 1 for step in self.stride):
                raise ValueError(f"{name}: padding='same' needs stride 1, got {self.stride}")

    def _padding_of_each_edge(self) -> list[int]:
        """What ``F.pad`` takes: (before, after) of the last dimension first."""
        edges: list[int] = []
        for i in reversed(range(self._spatial)):
            if self.padding == "valid":
                edges += [0, 0]
            elif self.padding == "same":
                total = self.dilation[i] * (self.kernel_size[i] - 1)
                edges += [total // 2, total - total // 2]
            else:
                edges += [int(self.padding[i])] * 2
        return edges

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            uniform_bias_(self.bias, math.prod(self.weight.shape[1:]))

    def _padded(self, input: Tensor) -> Tensor:
        """The input padded as ``padding_mode`` says; convolved without padding after that."""
        return F.pad(input, self._edges, mode=self.padding_mode)

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}",
            f"padding={self.padding}" if self.padding != (0,) * self._spatial else "",
            f"dilation={self.dilation}" if self.dilation != (1,) * self._spatial else "",
            f"output_padding={self.output_padding}" if self.output_padding != (0,) * self._spatial else "",
            f"groups={self.groups}" if self.groups != 1 else "",
            "bias=False" if self.bias is None else "",
            f"padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "",
        ]
        return ", ".join(part for part in parts if part)


class Conv1d(_ConvNd):
    """Cross-correlation along one dimension: (N, C, L) or (C, L) -> (N, out_channels, L').

    See :class:`Conv2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.Conv1d(4, 6, 3, padding=1)(ones(2, 4, 10)).shape)
    (2, 6, 10)
    """

    _spatial = 1

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv1d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return F.conv1d(self._padded(input), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Conv2d(_ConvNd):
    """Cross-correlation over two dimensions: (N, C, H, W) or (C, H, W) -> (N, out_channels, H', W').

    ``weight`` is (out_channels, in_channels / groups, *kernel_size). ``padding`` is a number, one per dimension,
    ``"same"`` or ``"valid"``; ``padding_mode`` zeros, reflect, replicate or circular. Raises ``ValueError`` when the
    channels are not divisible by ``groups``.

    >>> from tesserack import nn, ones
    >>> layer = nn.Conv2d(3, 8, kernel_size=3, stride=2, padding=1)
    >>> layer
    Conv2d(3, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1))
    >>> tuple(layer(ones(1, 3, 8, 8)).shape)
    (1, 8, 4, 4)
    """

    _spatial = 2

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv2d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return F.conv2d(self._padded(input), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class Conv3d(_ConvNd):
    """Cross-correlation over three dimensions: (N, C, D, H, W) or (C, D, H, W) -> (N, out_channels, D', H', W').

    See :class:`Conv2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.Conv3d(1, 2, 2)(ones(1, 1, 3, 3, 3)).shape)
    (1, 2, 2, 2, 2)
    """

    _spatial = 3

    def forward(self, input: Tensor) -> Tensor:
        if self.padding_mode == "zeros":
            return F.conv3d(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
        return F.conv3d(self._padded(input), self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
