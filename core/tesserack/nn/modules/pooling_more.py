"""Pooling layers of three dims, over windows drawn at random, and by powers."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules.module import Module
from tesserack.nn.modules.pooling import (
    _AdaptiveAvgPoolNd,
    _AdaptiveMaxPoolNd,
    _AvgPoolWhole,
    _MaxPoolNd,
    _MaxUnpoolNd,
)

__all__ = [
    "AdaptiveAvgPool3d",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool3d",
    "AvgPool3d",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "MaxPool3d",
    "MaxUnpool3d",
]


class MaxPool3d(_MaxPoolNd):
    """Maximum of each window of (N, C, D, H, W) or (C, D, H, W). Arguments as those of :class:`MaxPool2d`.

    >>> from tesserack import arange, nn
    >>> nn.MaxPool3d(2)(arange(8.0).reshape(1, 2, 2, 2)).tolist()
    [[[[7.0]]]]
    """

    def forward(self, input: Tensor) -> Any:
        return F.max_pool3d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )


class AvgPool3d(_AvgPoolWhole):
    """Mean of each window of (N, C, D, H, W) or (C, D, H, W). Arguments as those of :class:`AvgPool2d`.

    >>> from tesserack import arange, nn
    >>> nn.AvgPool3d(2)(arange(8.0).reshape(1, 2, 2, 2)).tolist()
    [[[[3.5]]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool3d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )


class AdaptiveAvgPool3d(_AdaptiveAvgPoolNd):
    """Means over a grid of ``output_size`` windows that cover each block of (N, C, D, H, W) or (C, D, H, W).

    >>> from tesserack import arange, nn
    >>> nn.AdaptiveAvgPool3d(1)(arange(8.0).reshape(1, 2, 2, 2)).tolist()
    [[[[3.5]]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveMaxPool1d(_AdaptiveMaxPoolNd):
    """Maxima of ``output_size`` windows that cover each line of (N, C, L) or (C, L).

    >>> from tesserack import arange, nn
    >>> nn.AdaptiveMaxPool1d(2)(arange(4.0).reshape(1, 4)).tolist()
    [[1.0, 3.0]]
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool1d(input, self.output_size, self.return_indices)


class AdaptiveMaxPool3d(_AdaptiveMaxPoolNd):
    """Maxima over a grid of ``output_size`` windows that cover each block of (N, C, D, H, W) or (C, D, H, W).

    >>> from tesserack import arange, nn
    >>> nn.AdaptiveMaxPool3d(1)(arange(8.0).reshape(1, 2, 2, 2)).tolist()
    [[[[7.0]]]]
    """

    def forward(self, input: Tensor) -> Any:
        return F.adaptive_max_pool3d(input, self.output_size, self.return_indices)


class _FractionalMaxPoolNd(Module):
    """What both keep, and check."""

    _spatial: int

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ValueError(f"{name} requires specifying either an output size, or a pooling ratio, and not both")
        self.kernel_size = to_tuple(kernel_size, self._spatial)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else to_tuple(output_size, self._spatial)
        self.output_ratio: tuple[float, ...] | None = None
        if output_ratio is not None:
            many = isinstance(output_ratio, (tuple, list))
            self.output_ratio = tuple(output_ratio) if many else (output_ratio,) * self._spatial
            if not all(0 < ratio < 1 for ratio in self.output_ratio):
                raise ValueError(f"output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        pool = F.fractional_max_pool2d if self._spatial == 2 else F.fractional_max_pool3d
        return pool(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima of windows whose steps are drawn at random (Graham, arXiv:1412.6071), in evaluation as well.

    To ``output_size``, or to the fraction ``output_ratio`` of the input: give one of them, ``ValueError`` otherwise.

    >>> from tesserack import nn, ones
    >>> tuple(nn.FractionalMaxPool2d(2, output_ratio=0.5)(ones(1, 3, 8, 8)).shape)
    (1, 3, 4, 4)
    """

    _spatial = 2


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """:class:`FractionalMaxPool2d` of (N, C, D, H, W) or (C, D, H, W).

    >>> from tesserack import nn, ones
    >>> tuple(nn.FractionalMaxPool3d(2, 3)(ones(1, 1, 5, 5, 5)).shape)
    (1, 1, 3, 3, 3)
    """

    _spatial = 3


class _LPPoolNd(Module):
    """What pooling by powers keeps."""

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def extra_repr(self) -> str:
        return (
            f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"ceil_mode={self.ceil_mode}"
        )


class LPPool1d(_LPPoolNd):
    """The ``norm_type``-th root of the sum of that power of each window of (N, C, L) or (C, L).

    >>> from tesserack import nn, tensor
    >>> nn.LPPool1d(2, 2)(tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool1d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool2d(_LPPoolNd):
    """:class:`LPPool1d` of planes (N, C, H, W) or (C, H, W).

    >>> from tesserack import nn, ones
    >>> nn.LPPool2d(2, 2)(ones(1, 2, 2)).tolist()
    [[[2.0]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool2d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class LPPool3d(_LPPoolNd):
    """:class:`LPPool1d` of blocks (N, C, D, H, W) or (C, D, H, W).

    >>> from tesserack import nn, ones
    >>> nn.LPPool3d(1, 2)(ones(1, 2, 2, 2)).tolist()
    [[[[8.0]]]]
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.lp_pool3d(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)


class MaxUnpool3d(_MaxUnpoolNd):
    """The partial inverse of :class:`MaxPool3d`.

    >>> from tesserack import arange, nn
    >>> pooled, indices = nn.MaxPool3d(2, return_indices=True)(arange(8.0).reshape(1, 1, 2, 2, 2))
    >>> nn.MaxUnpool3d(2)(pooled, indices).sum().item()
    7.0
    """

    _spatial = 3

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return F.max_unpool3d(input, indices, self.kernel_size, self.stride, self.padding, output_size)
