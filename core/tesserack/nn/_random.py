"""Random activations and dropouts, and names kept for old programs."""

from __future__ import annotations

import math
from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = [
    "alpha_dropout",
    "conv_tbc",
    "feature_alpha_dropout",
    "rrelu",
    "rrelu_",
]

# Minus scale times alpha of selu: what a dropped unit is set to.
_SATURATED = -1.7580993408473766


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """``input`` where positive, elsewhere times a slope: drawn from [lower, upper] in training, else their mean.

    From arXiv:1505.00853. Raises ``RuntimeError`` unless lower <= upper.

    >>> import tesserack as ts
    >>> rrelu(ts.tensor([2.0, -2.0]), 0.25, 0.75).tolist()
    [2.0, -1.0]
    """
    if lower > upper:
        raise RuntimeError(
            f"rrelu: Lower bound should be less than or equal to the upper bound, got {lower} and {upper}"
        )
    if training:
        substitute = None if input.is_meta else ts.random.substitutes.samplers.get("rrelu")
        if substitute is not None:
            slopes = substitute(input, lower, upper).to(input.dtype)
        else:
            slopes = ts.empty_like(input.detach()).uniform_(lower, upper)
        factors = ts.where(input.detach() <= 0, slopes, 1.0)
        return input.mul_(factors) if inplace else input * factors
    slope = (lower + upper) / 2
    return ts.leaky_relu_(input, slope) if inplace else ts.leaky_relu(input, slope)


def rrelu_(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False) -> Tensor:
    """:func:`rrelu` in place."""
    return rrelu(input, lower, upper, training, True)


def _alpha_dropout(name: str, input: Tensor, p: float, training: bool, inplace: bool, shape: Any) -> Tensor:
    if not 0 <= p <= 1:
        raise ValueError(f"{name}: dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        result = input * 0
    else:
        whole = shape == input.shape  # drawn in the order of memory, as PyTorch does
        kept = ts.empty_like(input.detach()) if whole else ts.empty(shape, dtype=input.dtype, device=input.device)
        kept = kept.bernoulli_(1 - p)
        scale = 1 / math.sqrt((_SATURATED * _SATURATED * p + 1) * (1 - p))
        result = input * (kept * scale) + ((kept - 1) * (-_SATURATED * scale) - _SATURATED * scale * p)
    return input.copy_(result) if inplace else result


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of selu's outputs (arXiv:1706.02515); the identity if not training.

    >>> import tesserack as ts
    >>> len(set(alpha_dropout(ts.ones(100), 0.5, True).tolist()))
    2
    """
    return _alpha_dropout("alpha_dropout", input, p, training, inplace, input.shape)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """:func:`alpha_dropout` of whole channels of (N, C, *)."""
    if input.ndim < 2 and training:
        raise RuntimeError(f"feature_alpha_dropout: expected at least 2 dims, got {tuple(input.shape)}")
    shape = (*input.shape[:2], *[1] * (input.ndim - 2))
    return _alpha_dropout("feature_alpha_dropout", input, p, training, inplace, shape)


def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """A convolution along time of (time, batch, channels) by ``weight`` (width, channels, outputs).

    >>> import tesserack as ts
    >>> tuple(conv_tbc(ts.ones(5, 2, 3), ts.ones(2, 3, 4), ts.zeros(4)).shape)
    (4, 2, 4)
    """
    if input.ndim != 3 or weight.ndim != 3 or bias.ndim != 1:
        raise RuntimeError("conv_tbc: expected input and weight of 3 dims and a bias of 1")
    result = ts.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad)
    return result.permute(2, 0, 1)
