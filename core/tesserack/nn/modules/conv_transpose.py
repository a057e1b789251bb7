"""Transposed convolution layers: the gradients of convolutions, as layers of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules.conv import _ConvNd

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTransposeNd(_ConvNd):
    """What the transposed convolutions share."""

    transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__}: expected padding_mode 'zeros', got {padding_mode!r}")
        if isinstance(padding, str):
            raise TypeError(f"{type(self).__name__}: expected padding as numbers, got {padding!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, device=device, dtype=dtype
        )
        self.output_padding = to_tuple(output_padding, self._spatial)

    def _weight_shape(self) -> tuple[int, ...]:
        return (self.in_channels, self.out_channels // self.groups, *self.kernel_size)

    def _output_padding(self, input: Tensor, output_size: Sequence[int] | None) -> tuple[int, ...]:
        """What makes the result as large as asked; strides leave several sizes possible."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-self._spatial :]
        if len(output_size) not in (self._spatial, input.ndim):
            raise ValueError(
                f"{type(self).__name__}: expected output_size of {self._spatial} or {input.ndim} sizes, "
                f"got {tuple(output_size)}"
            )
        extra = []
        for i, size in enumerate(input.shape[-self._spatial :]):
            reach = self.dilation[i] * (self.kernel_size[i] - 1) + 1
            least = (size - 1) * self.stride[i] - 2 * int(self.padding[i]) + reach
            if not least <= wanted[i] <= least + self.stride[i] - 1:
                raise ValueError(
                    f"{type(self).__name__}: expected an output size from {least} to {least + self.stride[i] - 1} "
                    f"along spatial dimension {i}, got {wanted[i]}"
                )
            extra.append(wanted[i] - least)
        return tuple(extra)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._spatial - 1]
        extra = self._output_padding(input, output_size)
        padding: Any = self.padding
        return transposed(input, self.weight, self.bias, self.stride, padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution along one dimension: (N, C, L) or (C, L) -> (N, out_channels, L').

    See :class:`ConvTranspose2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ConvTranspose1d(4, 6, 2, stride=2)(ones(2, 4, 5)).shape)
    (2, 6, 10)
    """

    _spatial = 1


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution over two dimensions: (N, C, H, W) or (C, H, W) -> (N, out_channels, H', W').

    ``weight`` is (in_channels, out_channels / groups, *kernel_size). A result has
    ``(H - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + output_padding + 1`` rows; ``output_size`` at the
    call chooses among the sizes that ``stride`` leaves possible. Raises ``ValueError`` when the channels are not
    divisible by ``groups``, for another ``padding_mode`` than zeros and for an impossible ``output_size``.

    >>> from tesserack import nn, ones
    >>> layer = nn.ConvTranspose2d(8, 3, kernel_size=4, stride=2, padding=1)
    >>> layer
    ConvTranspose2d(8, 3, kernel_size=(4, 4), stride=(2, 2), padding=(1, 1))
    >>> tuple(layer(ones(1, 8, 4, 4)).shape)
    (1, 3, 8, 8)
    """

    _spatial = 2


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution over three dimensions: (N, C, D, H, W) -> (N, out_channels, D', H', W').

    See :class:`ConvTranspose2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ConvTranspose3d(1, 2, 2)(ones(1, 1, 3, 3, 3)).shape)
    (1, 2, 4, 4, 4)
    """

    _spatial = 3
