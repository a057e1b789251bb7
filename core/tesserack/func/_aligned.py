"""Operands of a call on all entries, brought to meet each other behind their hidden first dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tesserack import Tensor
from tesserack.func._batched import Batched, Unbatchable, is_batched
from tesserack.ops.registry import operators

__all__ = [
    "dim_of",
    "elementwise",
    "many_values",
    "padded",
    "rank_of",
    "refuse",
    "sizes_of",
    "spread",
    "wrapped",
]


def refuse(name: str) -> Any:
    raise Unbatchable(name)


def many_values(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether it fills with one value for each entry, of which the operator takes one alone."""
    return name.startswith("masked_fill") and any(map(is_batched, (*args[2:], kwargs.get("value"))))


def rank_of(x: Any) -> int:
    return int(x.ndim)


def padded(x: Any, rank: int) -> Any:
    """The tensor of an operand, with dims of size 1 behind the hidden one, to meet others of ``rank`` dims."""
    if not is_batched(x) or x.ndim == rank:
        return x.value if is_batched(x) else x
    return x.value.reshape((x.value.shape[0], *(1,) * (rank - x.ndim), *x.shape))


def elementwise(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Batched:
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if many_values(name, args, kwargs):
        raise Unbatchable("masked_fill with a value for each entry")
    ranks = {rank_of(x) for x in tensors}
    # A tensor without dims gives way to others in promotion; with the hidden dim it would not.
    if 0 in ranks and len({x.dtype for x in tensors}) > 1:
        raise Unbatchable(f"{name} of a 0-d tensor beside another dtype")
    rank = max(ranks)
    moved = [padded(x, rank) for x in args]
    return Batched(operators()[name](*moved, **{key: padded(x, rank) for key, x in kwargs.items()}))


def dim_of(x: Batched, dim: int) -> int:
    """A dim of an entry as one of the whole."""
    if isinstance(dim, bool) or not isinstance(dim, int) or not -max(x.ndim, 1) <= dim < max(x.ndim, 1):
        raise Unbatchable(f"dim {dim}")
    return dim % max(x.ndim, 1) + 1


def wrapped(result: Any) -> Any:
    if isinstance(result, Tensor):
        return Batched(result)
    return type(result)(map(Batched, result))


def sizes_of(sizes: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], Sequence) else sizes


def spread(x: Any, count: int) -> Any:
    """An operand's entries, of what all share too."""
    if is_batched(x):
        return x.value
    return x.expand(count, *x.shape) if isinstance(x, Tensor) else x
