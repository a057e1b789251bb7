"""Gradients sent as bytes, with a scale and a zero point: ``...algorithms.ddp_comm_hooks.quantization_hooks``.

Each rank gathers all others' bytes and takes the mean of what they stand for.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack import distributed as dist
from tesserack.distributed.algorithms.ddp_comm_hooks.default_hooks import _group
from tesserack.utils.futures import Future

__all__ = ["quantization_perchannel_hook", "quantization_pertensor_hook"]

LEVELS = 255
SMALLEST = ts.finfo(ts.float32).eps  # of a scale, as observers have it


def _average(rows: Tensor, group: Any) -> Tensor:
    """The mean over ranks of a matrix, of which each row has a scale of its own."""
    low = rows.amin(1, keepdim=True).clamp(max=0)
    high = rows.amax(1, keepdim=True).clamp(min=0)
    scale = ((high - low) / LEVELS).clamp(min=SMALLEST)
    zero = (-low / scale).round().clamp(0, LEVELS)
    levels = (rows / scale + zero).round().clamp(0, LEVELS).to(ts.uint8)
    size = dist.get_world_size(group)
    described = ts.cat([scale, zero], dim=1)
    scales, gathered = ([ts.empty_like(t) for _ in range(size)] for t in (described, levels))
    dist.all_gather(scales, described, group)
    dist.all_gather(gathered, levels, group)
    total = ts.zeros_like(rows)
    for told, bytes_of in zip(scales, gathered, strict=True):
        total += (bytes_of.to(rows.dtype) - told[:, 1:]) * told[:, :1]
    return total / size


def _done(buffer: Tensor, value: Tensor) -> Any:
    future: Any = Future()
    future.set_result(buffer.copy_(value))
    return future


def quantization_pertensor_hook(process_group: Any, bucket: Any) -> Any:
    """The average of gradients, with one scale for a rank's bucket."""
    buffer = bucket.buffer()
    return _done(buffer, _average(buffer.view(1, -1), _group(process_group)).view(-1))


def quantization_perchannel_hook(process_group: Any, bucket: Any, bucket_size: int = 512) -> Any:
    """The same with a scale for each ``bucket_size`` elements."""
    buffer = bucket.buffer()
    padded = ts.nn.functional.pad(buffer, (0, -buffer.numel() % bucket_size))
    averaged = _average(padded.view(-1, bucket_size), _group(process_group))
    return _done(buffer, averaged.view(-1)[: buffer.numel()])
