"""Normalisation of each channel of each sample by itself."""

from __future__ import annotations

import warnings
from typing import Any

from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn.modules.batchnorm import _NormBase

__all__ = ["InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"]


class _InstanceNorm(_NormBase):
    """What the instance normalisations share; ``_dimensions`` are those without and with a batch."""

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        batched = input if input.ndim == max(self._dimensions) else input.unsqueeze(0)
        if batched.shape[1] != self.num_features:
            self._tell_of_channels(input)
        own = self.training or not self.track_running_stats
        mean, var, momentum = self.running_mean, self.running_var, self.momentum or 0.0
        result = F.instance_norm(batched, mean, var, self.weight, self.bias, own, momentum, self.eps)
        return result if batched is input else result.squeeze(0)

    def _get_no_batch_dim(self) -> int:
        return min(self._dimensions)

    def _tell_of_channels(self, input: Tensor) -> None:
        if self.affine:
            raise ValueError(
                f"{type(self).__name__}: expected {self.num_features} channels, got shape {tuple(input.shape)}"
            )
        warnings.warn(
            f"input's size at dim={input.ndim - self._get_no_batch_dim()} does not match num_features. You can silence "
            "this warning by not passing in num_features, which is not used because affine=False",
            stacklevel=3,
        )


class InstanceNorm1d(_InstanceNorm):
    """Normalise each channel of each sample of (N, C, L) or (C, L); see :class:`InstanceNorm2d`.

    >>> from tesserack import nn, ones
    >>> nn.InstanceNorm1d(3)(ones(2, 3, 4)).abs().max().item() < 1e-6
    True
    """

    _dimensions = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """Normalise each channel of each sample of (N, C, H, W) or (C, H, W) (Ulyanov et al., arXiv:1607.08022).

    Without parameters and running statistics unless ``affine`` and ``track_running_stats`` ask for them.
    Raises ``ValueError`` for another number of dimensions.

    >>> from tesserack import nn, ones
    >>> layer = nn.InstanceNorm2d(3)
    >>> tuple(layer(ones(2, 3, 4, 4)).shape), len(layer.state_dict())
    ((2, 3, 4, 4), 0)
    """

    _dimensions = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """Normalise each channel of each sample of (N, C, D, H, W) or (C, D, H, W); see :class:`InstanceNorm2d`.

    >>> from tesserack import nn, ones
    >>> tuple(nn.InstanceNorm3d(2)(ones(1, 2, 3, 3, 3)).shape)
    (1, 2, 3, 3, 3)
    """

    _dimensions = (4, 5)
