"""Functions of ``torch`` whose arguments come in another order or number than in ``torch.nn.functional``."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import _embedding

__all__ = ["batch_norm", "embedding", "group_norm", "instance_norm", "layer_norm"]


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """:func:`tesserack.batch_norm`; which library computes it is not chosen here."""
    return ts.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """:func:`tesserack.instance_norm`."""
    return ts.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """:func:`tesserack.layer_norm`."""
    return ts.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    """:func:`tesserack.group_norm`."""
    return ts.group_norm(input, num_groups, weight, bias, eps)


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """The rows of ``weight``, the first argument here; a negative ``padding_idx`` is none."""
    padding = padding_idx if padding_idx >= 0 else None
    return _embedding.embedding(indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)
