"""Normalisations together with the statistics they used: ``native_layer_norm`` and its like."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tesserack as ts
from tesserack import Tensor

__all__ = ["batch_norm_update_stats", "native_batch_norm", "native_group_norm", "native_layer_norm"]


def _wide(x: Tensor) -> Tensor:
    """Statistics of half precision are single."""
    return x.float() if x.dtype in (ts.float16, ts.bfloat16) else x


def native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``layer_norm`` over the last dims, and the mean and 1 / sqrt(variance + eps) it used, those dims being 1.

    >>> import tesserack as ts
    >>> ts.native_layer_norm(ts.tensor([[1.0, 3.0]]), [2], None, None, 0.0)[1:]
    (tensor([[2.]]), tensor([[1.]]))
    """
    result = ts.nn.functional.layer_norm(input, list(normalized_shape), weight, bias, eps)
    dims = list(range(input.dim() - len(normalized_shape), input.dim()))
    with ts.no_grad():
        wide = _wide(input.detach())
        mean = wide.mean(dims, True)
        rstd = (wide.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return result, mean.to(input.dtype), rstd.to(input.dtype)


def native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``group_norm`` of (N, C, *) with ``HxW`` positions, and the (N, group) means and 1 / sqrt(variance + eps)."""
    if group < 1 or C % group:
        raise RuntimeError(f"native_group_norm: expected a number of groups that divides {C} channels, got {group}")
    if input.numel() != N * C * HxW:
        raise RuntimeError(f"native_group_norm: expected {N} * {C} * {HxW} elements, got shape {tuple(input.shape)}")
    result = ts.nn.functional.group_norm(input, group, weight, bias, eps)
    wide = _wide(input).reshape(N, group, math.prod((C // group, HxW)))
    mean, rstd = wide.mean(-1), (wide.var(-1, correction=0) + eps).rsqrt()
    return result, mean.to(input.dtype), rstd.to(input.dtype)


def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """``batch_norm`` of (N, C, *), and in training the (C) means and 1 / sqrt(variance + eps), else nothing."""
    result = ts.nn.functional.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    wide = _wide(input.detach())
    mixed = any(x is not None and x.dtype is not input.dtype for x in (weight, bias, running_mean, running_var))
    kept = wide.dtype if mixed else input.dtype
    if not training:
        return result, wide.new_empty(0, dtype=kept), wide.new_empty(0, dtype=kept)
    mean, var = _channel_moments(wide)
    return result, mean.to(kept), (var + eps).rsqrt().to(kept)


def _channel_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    dims = [d for d in range(x.dim()) if d != 1]
    return x.mean(dims), x.var(dims, correction=0)


def batch_norm_update_stats(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> tuple[Tensor, Tensor]:
    """The means and variances of the channels of (N, C, *), mixed into the running ones if given.

    >>> import tesserack as ts
    >>> ts.batch_norm_update_stats(ts.tensor([[1.0], [3.0]]), None, None, 0.1)
    (tensor([2.]), tensor([1.]))
    """
    if input.dim() < 2:
        raise RuntimeError(f"batch_norm_update_stats: expected at least 2 dims, got shape {tuple(input.shape)}")
    with ts.no_grad():
        mean, var = _channel_moments(_wide(input.detach()))
        count = input.numel() // max(input.shape[1], 1)
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(mean, alpha=momentum)
        if running_var is not None:
            unbiased = var * (count / (count - 1)) if count > 1 else var * float("nan")
            running_var.mul_(1 - momentum).add_(unbiased, alpha=momentum)
    return mean, var
