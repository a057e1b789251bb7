"""The collectives that bring this rank's memory from one placement to another, along one dim of a mesh."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._reduce_op import RedOpType, ReduceOp

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "reduce_scatter", "watchers"]

# Called with the name of each collective: what counts them.
watchers: list[Callable[[str], None]] = []


def _tell(name: str) -> None:
    for watcher in watchers:
        watcher(name)


def _op(name: str) -> Any:
    return ReduceOp(RedOpType[name.upper()])


def _sized(tensor: Tensor, dim: int, size: int) -> list[int]:
    return [*tensor.shape[:dim], size, *tensor.shape[dim + 1 :]]


def all_gather(local: Tensor, dim: int, sizes: Sequence[int], group: Any) -> Tensor:
    """Each rank's part, of these sizes along a dim, side by side."""
    _tell("all_gather_into_tensor")
    mine = local.contiguous()
    if dim == 0:  # the parts lie in the whole as they come
        whole = mine.new_empty(_sized(mine, 0, sum(sizes)))
        over.all_gather(list(whole.split(list(sizes))), mine, group)
        return whole
    parts = [mine.new_empty(_sized(mine, dim, size)) for size in sizes]
    over.all_gather(parts, mine, group)
    return ts.cat(parts, dim)


def all_reduce(local: Tensor, op: str, group: Any) -> Tensor:
    """All ranks' tensors combined."""
    _tell("all_reduce")
    out = local.clone(memory_format=ts.contiguous_format)
    over.all_reduce(out, _op(op), group)
    return out


def reduce_scatter(parts: Sequence[Tensor], me: int, op: str, group: Any) -> Tensor:
    """This rank's of the parts of all ranks' tensors combined."""
    _tell("reduce_scatter_tensor")
    given = [part.contiguous() for part in parts]
    out = given[me].new_empty(given[me].shape)
    over.reduce_scatter(out, given, _op(op), group)
    return out


def all_to_all(parts: Sequence[Tensor], dim: int, sizes: Sequence[int], me: int, group: Any) -> Tensor:
    """Of each rank the part that is for this one, side by side along a dim where they have these sizes."""
    _tell("all_to_all_single")
    given = [part.contiguous() for part in parts]
    made = [given[me].new_empty(_sized(given[me], dim, size)) for size in sizes]
    over.all_to_all(made, given, group)
    return ts.cat(made, dim)


def broadcast(local: Tensor, group: Any, source: int = 0) -> Tensor:
    """The tensor of one rank of the group, in place."""
    _tell("broadcast")
    over.broadcast(local, group=group, group_src=source)
    return local
