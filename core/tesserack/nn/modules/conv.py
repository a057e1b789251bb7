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
    """What the convolutions share: sizes of every dimension, weight and bias. A subclass defines ``forward``."""

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...] | str,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._check()
        self._reversed_padding_repeated_twice = self._padding_of_each_edge()
        shape = self._weight_shape()
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty((out_channels,), device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels
        if self.transposed:
            first, second = second, first
        return (first, second // self.groups, *self.kernel_size)

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

    def _padding_of_each_edge(self) -> list[int] | tuple[int, ...]:
        """What ``F.pad`` takes: (before, after) of the last dimension first; a list where it follows from a word."""
        if not isinstance(self.padding, str):
            return tuple(int(size) for size in reversed(self.padding) for _ in range(2))
        edges: list[int] = []
        for i in reversed(range(len(self.kernel_size))):
            total = self.dilation[i] * (self.kernel_size[i] - 1) if self.padding == "same" else 0
            edges += [total // 2, total - total // 2]
        return edges

    def reset_parameters(self) -> None:
        """Draw new initial values, uniform in +-1/sqrt(fan_in)."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            uniform_bias_(self.bias, math.prod(self.weight.shape[1:]))

    def extra_repr(self) -> str:
        zeros, ones = (0,) * len(self.kernel_size), (1,) * len(self.kernel_size)
        parts = [
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}",
            f"padding={self.padding}" if self.padding != zeros else "",
            f"dilation={self.dilation}" if self.dilation != ones else "",
            f"output_padding={self.output_padding}" if self.output_padding != zeros else "",
            f"groups={self.groups}" if self.groups != 1 else "",
            "bias=False" if self.bias is None else "",
            f"padding_mode={self.padding_mode}" if self.padding_mode != "zeros" else "",
        ]
        return ", ".join(part for part in parts if part)


class _Conv(_ConvNd):
    """The convolutions proper; a subclass sets the number of dimensions."""

    _spatial: int

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
        kernel_size, stride, dilation = (to_tuple(size, self._spatial) for size in (kernel_size, stride, dilation))
        padding = padding if isinstance(padding, str) else to_tuple(padding, self._spatial)
        sizes = kernel_size, stride, padding, dilation, False, to_tuple(0, self._spatial)
        super().__init__(in_channels, out_channels, *sizes, groups, bias, padding_mode, device, dtype)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution with another weight and bias: what subclasses call and replace."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            edges, padding = self._reversed_padding_repeated_twice, 0
            input = F.pad(input, edges, mode=self.padding_mode)
        convolve = (F.conv1d, F.conv2d, F.conv3d)[self._spatial - 1]
        return convolve(input, weight, bias, self.stride, padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """Cross-correlation along one dimension: (N, C, L) or (C, L) -> (N, out_channels, L').

    See :class:`Conv2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.Conv1d(4, 6, 3, padding=1)(ones(2, 4, 10)).shape)
    (2, 6, 10)
    """

    _spatial = 1


class Conv2d(_Conv):
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


class Conv3d(_Conv):
    """Cross-correlation over three dimensions: (N, C, D, H, W) or (C, D, H, W) -> (N, out_channels, D', H', W').

    See :class:`Conv2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.Conv3d(1, 2, 2)(ones(1, 1, 3, 3, 3)).shape)
    (1, 2, 2, 2, 2)
    """

    _spatial = 3
