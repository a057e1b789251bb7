"""Tensors to several devices of one process, and back: the steps that :class:`DataParallel` is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.parallel._places import place_of

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def broadcast(tensor: Tensor, devices: Sequence[Any] | None = None, *, out: Sequence[Tensor] | None = None) -> Any:
    """A copy of a tensor on each device, or in each of ``out``. ``RuntimeError`` unless one of the two is given.

    >>> import tesserack as ts
    >>> [part.tolist() for part in broadcast(ts.arange(2), ["cpu", "cpu"])]
    [[0, 1], [0, 1]]
    """
    if (devices is None) == (out is None):
        raise RuntimeError(
            f"Exactly one of 'devices' and 'out' must be specified, but got devices={devices} and {out=}"
        )
    if out is not None:
        return tuple(target.copy_(tensor) for target in out)
    return tuple(tensor.to(place_of(device)) for device in devices or ())


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = 10485760) -> Any:
    """The list of the tensors on each device; ``buffer_size`` is PyTorch's, and has no effect."""
    return [[tensor.to(place) for tensor in tensors] for place in map(place_of, devices)]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape, on the device of the first unless given. ``ValueError`` for different shapes."""
    if any(tensor.shape != inputs[0].shape for tensor in inputs):
        raise ValueError(f"reduce_add: expected tensors of one shape, got {[tuple(tensor.shape) for tensor in inputs]}")
    place = inputs[0].device if destination is None else place_of(destination)
    total = inputs[0].to(place)
    for tensor in inputs[1:]:
        total = total + tensor.to(place)
    return total


def reduce_add_coalesced(inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = 0) -> Any:
    """The sums of tensors in the same places of several lists."""
    return tuple(reduce_add(row, destination) for row in zip(*inputs, strict=True))


def scatter(
    tensor: Tensor,
    devices: Sequence[Any] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> Any:
    """The parts of a tensor, each on its device: as equal as can be, or of the sizes given."""
    if out is not None:
        sizes = [target.shape[dim] for target in out]
        return tuple(target.copy_(part) for target, part in zip(out, tensor.split(sizes, dim), strict=True))
    places = [*map(place_of, devices or ())]
    parts = tensor.chunk(len(places), dim) if chunk_sizes is None else tensor.split(list(chunk_sizes), dim)
    return tuple(part.to(place) for part, place in zip(parts, places, strict=True))


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None, *, out: Tensor | None = None) -> Tensor:
    """The tensors joined along a dim, on the device of the first unless given, or in ``out``."""
    place = out.device if out is not None else tensors[0].device if destination is None else place_of(destination)
    joined = ts.cat([tensor.to(place) for tensor in tensors], dim)
    return joined if out is None else out.copy_(joined)
