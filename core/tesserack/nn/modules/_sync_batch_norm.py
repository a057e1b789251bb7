"""Batch normalisation over the batches of several ranks."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack import distributed as dist
from tesserack.distributed.nn.functional import all_reduce

__all__ = ["joined", "ranks"]


def ranks(group: Any) -> int:
    """How many ranks share their statistics."""
    return dist.get_world_size(group) if dist.is_initialized() else 1


def joined(layer: Any, input: Tensor) -> Tensor:
    """The layer's result in training: counts, sums and squares of all ranks are added up, and so are their gradients.

    Squares are of distances from the mean, which takes a second collective: sums of squares alone would cancel.
    """
    dims = [0, *range(2, input.ndim)]
    wide = input.float() if input.dtype in (ts.float16, ts.bfloat16) else input
    count = wide.new_full((1,), input.numel() // input.shape[1])
    sums = all_reduce(ts.cat([wide.sum(dims), count]), group=layer.process_group)
    total = sums[-1].detach()
    if total.item() <= 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {list(input.shape)}")
    shape = [1, -1, *([1] * (input.ndim - 2))]
    mean = sums[:-1] / total
    centred = wide - mean.view(shape)
    var = all_reduce((centred * centred).sum(dims), group=layer.process_group) / total
    _track(layer, mean.detach(), var.detach(), float(total.item()))
    out: Tensor = centred * (var + layer.eps).rsqrt().view(shape)
    if layer.weight is not None:
        out = out * layer.weight.view(shape)
    if layer.bias is not None:
        out = out + layer.bias.view(shape)
    return out.to(input.dtype)


def _track(layer: Any, mean: Tensor, var: Tensor, total: float) -> None:
    if not layer.track_running_stats or layer.running_mean is None:
        return
    with ts.no_grad():
        layer.num_batches_tracked.add_(1)
        momentum = layer.momentum if layer.momentum is not None else 1.0 / float(layer.num_batches_tracked)
        layer.running_mean.lerp_(mean.to(layer.running_mean.dtype), momentum)
        layer.running_var.lerp_((var * (total / (total - 1))).to(layer.running_var.dtype), momentum)
