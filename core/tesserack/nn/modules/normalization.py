"""Normalisation of each sample by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import Tensor, arange, empty
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn._sizes import to_tuple
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


class LayerNorm(Module):
    """Normalise over the last dimensions, which must equal ``normalized_shape`` (Ba et al., arXiv:1607.06450).

    (*, *normalized_shape) -> the same shape, then times ``weight`` plus ``bias`` unless ``elementwise_affine=False``.

    >>> from tesserack import nn, ones
    >>> layer = nn.LayerNorm(8)
    >>> layer
    LayerNorm((8,), eps=1e-05, elementwise_affine=True, bias=True)
    >>> tuple(layer(ones(2, 5, 8)).shape)
    (2, 5, 8)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = to_tuple(normalized_shape, 1)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        for name, wanted in (("weight", elementwise_affine), ("bias", elementwise_affine and bias)):
            values = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"
        return f"{self.normalized_shape}, eps={self.eps}, {affine}"


class GroupNorm(Module):
    """Normalise over groups of channels of (N, C, *) (Wu and He, arXiv:1803.08494).

    Raises ``ValueError`` when ``num_channels`` is not divisible by ``num_groups``.

    >>> from tesserack import nn, ones
    >>> layer = nn.GroupNorm(2, 6)
    >>> layer
    GroupNorm(2, 6, eps=1e-05, affine=True, bias=True)
    >>> tuple(layer(ones(1, 6, 4)).shape)
    (1, 6, 4)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups <= 0 or num_channels % num_groups:
            raise ValueError(
                f"GroupNorm: expected num_channels divisible by num_groups={num_groups}, got {num_channels}"
            )
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            values = Parameter(empty((num_channels,), device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1, bias 0."""
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        affine = f"affine={self.affine}, bias={self.bias is not None}"
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, {affine}"


class RMSNorm(Module):
    """Divide by the root of the mean square over the last dimensions (Zhang and Sennrich, arXiv:1910.07467).

    (*, *normalized_shape) -> the same shape, then times ``weight`` unless ``elementwise_affine=False``. ``eps=None``
    is the smallest step of the dtype.

    >>> from tesserack import nn, tensor
    >>> nn.RMSNorm(2, eps=0.0)(tensor([3.0, 3.0])).tolist()
    [1.0, 1.0]
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape = to_tuple(normalized_shape, 1)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        values = Parameter(empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", values)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Weight 1."""
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class _ResponseNorm(Module):
    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_ResponseNorm):
    """Divide by a power of the mean square over ``size`` neighbouring channels of (N, C, *).

    >>> from tesserack import nn, ones
    >>> tuple(nn.LocalResponseNorm(2)(ones(1, 4, 2, 2)).shape)
    (1, 4, 2, 2)
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__(size, alpha, beta, k)


class CrossMapLRN2d(_ResponseNorm):
    """Divide images (N, C, H, W) by a power of a sum of squares over the channels within ``(size + 1) // 2`` of each.

    An older form of :class:`LocalResponseNorm`, with what it does in PyTorch: the first channel never leaves the sums.

    >>> from tesserack import nn, ones
    >>> tuple(nn.CrossMapLRN2d(2)(ones(1, 2, 1, 1)).shape)
    (1, 2, 1, 1)
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        channels, reach = input.shape[1], (self.size + 1) // 2
        squares = input.square()
        sums = F.pad(squares.cumsum(1), (0, 0, 0, 0, 1, 0))
        ends = [min(channels, c + reach) for c in range(channels)]
        starts = [max(0, c - reach + 1) for c in range(channels)]
        window = sums[:, ends] - sums[:, starts]
        stays = arange(channels, device=input.device).ge(reach).to(input.dtype).reshape(1, -1, 1, 1)
        total = window + squares[:, :1] * stays
        return input * (total * (self.alpha / self.size) + self.k) ** -self.beta
