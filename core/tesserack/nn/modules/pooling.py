"""Pooling layers."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules.module import Module

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveMaxPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "MaxPool1d",
    "MaxPool2d",
    "MaxUnpool1d",
    "MaxUnpool2d",
]


class _MaxPoolNd(Module):
    """What maxima of windows of any number of dims keep."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool2d(_MaxPoolNd):
    """Maximum of each window: (N, C, H, W) or (C, H, W) -> (N, C, H', W').

    ``stride`` defaults to ``kernel_size``; ``padding`` adds minus infinity, at most half the kernel. ``ceil_mode``
    keeps windows that start inside and end outside. ``return_indices`` also returns where, in the H*W plane, each
    maximum was.

    >>> from tesserack import arange, nn
    >>> nn.MaxPool2d(2)(arange(16.0).reshape(1, 1, 4, 4)).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class MaxPool1d(_MaxPoolNd):
    """Maximum of each window: (N, C, L) or (C, L) -> (N, C, L'). Arguments as those of :class:`MaxPool2d`.

    >>> from tesserack import arange, nn
    >>> nn.MaxPool1d(2)(arange(4.0).reshape(1, 1, 4)).tolist()
    [[[1.0, 3.0]]]
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool1d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class _AvgPoolNd(Module):
    """What means of windows of any number of dims keep."""

    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPoolWhole(_AvgPoolNd):
    """Means of planes and blocks, which may be divided by any number."""

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override


class AvgPool2d(_AvgPoolWhole):
    """Mean of each window: (N, C, H, W) or (C, H, W) -> (N, C, H', W').

    ``count_include_pad`` lets padding zeros count in the mean; ``divisor_override`` divides by that number instead.

    >>> from tesserack import arange, nn
    >>> nn.AvgPool2d(2)(arange(16.0).reshape(1, 1, 4, 4)).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AvgPool1d(_AvgPoolNd):
    """Mean of each window: (N, C, L) or (C, L) -> (N, C, L').

    >>> from tesserack import arange, nn
    >>> nn.AvgPool1d(2)(arange(4.0).reshape(1, 1, 4)).tolist()
    [[[0.5, 2.5]]]
    """

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__()
        self.kernel_size = to_tuple(kernel_size, 1)
        self.stride = self.kernel_size if stride is None else to_tuple(stride, 1)
        self.padding = to_tuple(padding, 1)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AdaptiveNd(Module):
    """A grid of ``output_size`` windows that cover the input; ``None`` keeps that size."""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def sizes(self, input: Tensor, spatial: int) -> list[int]:
        """The output size, with the input's where it is ``None``."""
        wanted = self.output_size if isinstance(self.output_size, (tuple, list)) else (self.output_size,) * spatial
        if len(wanted) != spatial:
            raise ValueError(f"{type(self).__name__}: expected {spatial} output sizes, got {tuple(wanted)}")
        # Only the sizes that are kept are asked for: a proxy of the input does not tell them as numbers.
        return [input.shape[k - spatial] if want is None else want for k, want in enumerate(wanted)]

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveAvgPoolNd(_AdaptiveNd):
    """Means of any number of dims."""


class _AdaptiveMaxPoolNd(_AdaptiveNd):
    """Maxima of any number of dims, with their indices if asked for."""

    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices


class AdaptiveAvgPool1d(_AdaptiveAvgPoolNd):
    """Means over ``output_size`` windows that cover each line: (N, C, L) or (C, L) -> (N, C, output_size).

    >>> from tesserack import arange, nn
    >>> nn.AdaptiveAvgPool1d(2)(arange(4.0).reshape(1, 1, 4)).tolist()
    [[[0.5, 2.5]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.sizes(input, 1))


class AdaptiveAvgPool2d(_AdaptiveAvgPoolNd):
    """Means over a grid of ``output_size`` windows that cover each plane of (N, C, H, W) or (C, H, W).

    >>> from tesserack import arange, nn
    >>> nn.AdaptiveAvgPool2d((1, None))(arange(4.0).reshape(1, 1, 2, 2)).tolist()
    [[[[1.0, 2.0]]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.sizes(input, 2))


class AdaptiveMaxPool2d(_AdaptiveMaxPoolNd):
    """Maxima over a grid of ``output_size`` windows that cover each plane of (N, C, H, W) or (C, H, W).

    ``return_indices`` also returns where, in the H*W plane, each maximum was.

    >>> from tesserack import arange, nn
    >>> nn.AdaptiveMaxPool2d(1)(arange(4.0).reshape(1, 1, 2, 2)).tolist()
    [[[[3.0]]]]
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool2d(input, self.sizes(input, 2), self.return_indices)


class _MaxUnpoolNd(Module):
    """What the inverses of maxima keep."""

    _spatial: int

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        self.kernel_size = to_tuple(kernel_size, self._spatial)
        self.stride = to_tuple(kernel_size if stride is None else stride, self._spatial)
        self.padding = to_tuple(padding, self._spatial)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool2d(_MaxUnpoolNd):
    """The partial inverse of :class:`MaxPool2d`: maxima put back at their indices, zeros elsewhere.

    >>> from tesserack import arange, nn
    >>> pooled, indices = nn.MaxPool2d(2, return_indices=True)(arange(4.0).reshape(1, 1, 2, 2))
    >>> nn.MaxUnpool2d(2)(pooled, indices).tolist()
    [[[[0.0, 0.0], [0.0, 3.0]]]]
    """

    _spatial = 2

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool2d(input, indices, self.kernel_size, self.stride, self.padding, output_size)


class MaxUnpool1d(_MaxUnpoolNd):
    """The partial inverse of :class:`MaxPool1d`.

    >>> from tesserack import arange, nn
    >>> pooled, indices = nn.MaxPool1d(2, return_indices=True)(arange(4.0).reshape(1, 1, 4))
    >>> nn.MaxUnpool1d(2)(pooled, indices).tolist()
    [[[0.0, 1.0, 0.0, 3.0]]]
    """

    _spatial = 1

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool1d(input, indices, self.kernel_size, self.stride, self.padding, output_size)
