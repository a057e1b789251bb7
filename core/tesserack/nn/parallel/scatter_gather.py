"""Parts of a batch to devices, and results back to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.parallel._places import place_of

__all__ = ["gather", "scatter", "scatter_kwargs"]


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> list[Any]:
    """One copy of ``inputs`` per device, every tensor in it cut along ``dim`` and moved there, other objects shared.

    >>> import tesserack as ts
    >>> [part.tolist() for part in scatter(ts.arange(4), ["cpu", "cpu"])]
    [[0, 1], [2, 3]]
    """
    if isinstance(inputs, Tensor):
        parts = inputs.chunk(len(target_gpus), dim)
        return [part.to(place_of(place)) for part, place in zip(parts, target_gpus)]  # noqa: B905
    if _is_namedtuple(inputs):
        return [type(inputs)(*row) for row in zip(*(scatter(item, target_gpus, dim) for item in inputs))]  # noqa: B905
    if isinstance(inputs, (tuple, list)) and inputs:
        return [type(inputs)(row) for row in zip(*(scatter(item, target_gpus, dim) for item in inputs))]  # noqa: B905
    if isinstance(inputs, dict) and inputs:
        rows = zip(*(scatter(item, target_gpus, dim) for item in inputs.values()))  # noqa: B905
        return [type(inputs)(zip(inputs, row, strict=True)) for row in rows]
    return [inputs for _ in target_gpus]


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """:func:`scatter` of positional and of named arguments; the shorter of both is filled with empty ones."""
    rows = scatter(inputs, target_gpus, dim) if inputs else []
    named = scatter(kwargs, target_gpus, dim) if kwargs else []
    longest = max(len(rows), len(named))
    return (*rows, *[()] * (longest - len(rows))), (*named, *[{}] * (longest - len(named)))


def gather(outputs: Sequence[Any], target_device: Any, dim: int = 0) -> Any:
    """Results of several devices as one on ``target_device``: tensors joined along ``dim``, within dicts and sequences.

    Tensors of no dims become a vector. ``ValueError`` for dicts of different keys, ``TypeError`` for other objects.

    >>> import tesserack as ts
    >>> gather([ts.arange(2), ts.arange(1)], "cpu").tolist()
    [0, 1, 0]
    """
    first = outputs[0]
    if isinstance(first, Tensor):
        moved = [output.to(place_of(target_device)) for output in outputs]
        return ts.stack(moved) if all(output.ndim == 0 for output in outputs) else ts.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        if any(output.keys() != first.keys() for output in outputs):
            raise ValueError("All dicts must have the same number of keys")
        return type(first)((key, gather([output[key] for output in outputs], target_device, dim)) for key in first)
    if not isinstance(first, (tuple, list)):
        raise TypeError(f"gather: expected tensors, or dicts, lists or tuples of them, got {type(first).__name__}")
    joined = [gather(row, target_device, dim) for row in zip(*outputs, strict=True)]
    return type(first)(*joined) if _is_namedtuple(first) else type(first)(joined)
