"""Transposed convolution layers: the gradients of convolutions, as layers of their own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules.conv import _ConvNd

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTransposeNd(_ConvNd):
    """What the transposed convolutions share; made as :class:`_ConvNd` is."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: tuple[int, ...],
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ValueError(f"{type(self).__name__}: expected padding_mode 'zeros', got {padding_mode!r}")
        sizes = kernel_size, stride, padding, dilation, transposed, output_padding
        super().__init__(in_channels, out_channels, *sizes, groups, bias, padding_mode, device, dtype)

    def _output_padding(
        self,
        input: Tensor,
        output_size: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> Sequence[int]:
        """What makes the result as large as asked; strides leave several sizes possible."""
        if output_size is None:
            return self.output_padding
        wanted = tuple(output_size)[-num_spatial_dims:]
        if len(output_size) not in (num_spatial_dims, input.ndim):
            raise ValueError(
                f"{type(self).__name__}: expected output_size of {num_spatial_dims} or {input.ndim} sizes, "
                f"got {tuple(output_size)}"
            )
        extra = []
        for i, size in enumerate(input.shape[-num_spatial_dims:]):
            reach = (1 if dilation is None else dilation[i]) * (kernel_size[i] - 1) + 1
            least = (size - 1) * stride[i] - 2 * int(padding[i]) + reach
            if not least <= wanted[i] <= least + stride[i] - 1:
                raise ValueError(
                    f"{type(self).__name__}: expected an output size from {least} to {least + stride[i] - 1} "
                    f"along spatial dimension {i}, got {wanted[i]}"
                )
            extra.append(wanted[i] - least)
        return extra


class _ConvTransposeMixin(_ConvTransposeNd):
    """What :class:`_ConvTransposeNd` was called once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            "`_ConvTransposeMixin` is a deprecated internal class. Please consider using public APIs.", FutureWarning, 2
        )
        super().__init__(*args, **kwargs)


class _ConvTranspose(_ConvTransposeNd):
    """The transposed convolutions proper; a subclass sets the number of dimensions."""

    _spatial: int

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
        if isinstance(padding, str):
            raise TypeError(f"{type(self).__name__}: expected padding as numbers, got {padding!r}")
        given = kernel_size, stride, padding, dilation, output_padding
        kernel_size, stride, padding, dilation, output_padding = (to_tuple(size, self._spatial) for size in given)
        sizes = kernel_size, stride, padding, dilation, True, output_padding
        super().__init__(in_channels, out_channels, *sizes, groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        padding: Any = self.padding
        sizes = self.stride, padding, self.kernel_size, self._spatial, self.dilation
        extra = self._output_padding(input, output_size, *sizes)
        convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._spatial - 1]
        return convolve(input, self.weight, self.bias, self.stride, padding, extra, self.groups, self.dilation)


class ConvTranspose1d(_ConvTranspose):
    """Transposed convolution along one dimension: (N, C, L) or (C, L) -> (N, out_channels, L').

    See :class:`ConvTranspose2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ConvTranspose1d(4, 6, 2, stride=2)(ones(2, 4, 5)).shape)
    (2, 6, 10)
    """

    _spatial = 1


class ConvTranspose2d(_ConvTranspose):
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


class ConvTranspose3d(_ConvTranspose):
    """Transposed convolution over three dimensions: (N, C, D, H, W) -> (N, out_channels, D', H', W').

    See :class:`ConvTranspose2d` for the arguments.

    >>> from tesserack import nn, ones
    >>> tuple(nn.ConvTranspose3d(1, 2, 2)(ones(1, 1, 3, 3, 3)).shape)
    (1, 2, 4, 4, 4)
    """

    _spatial = 3
