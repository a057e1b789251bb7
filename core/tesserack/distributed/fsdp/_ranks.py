"""The ranks that share one parameter, and those that hold copies of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed import _collectives as over
from tesserack.distributed._reduce_op import ReduceOp
from tesserack.distributed._world import resolve

__all__ = ["Ranks", "chunk_sizes"]


def chunk_sizes(length: int, parts: int) -> list[int]:
    """How ``chunk`` divides a dim: the first parts are as long as the longest, the last may be empty."""
    each = -(-length // parts)
    return [max(0, min(each, length - each * k)) for k in range(parts)]


class Ranks:
    """``shard`` is the group whose ranks have a part each (None: this rank has all of it), ``replicate`` the one whose
    ranks have the same part (None: nobody else has)."""

    def __init__(self, shard: Any, replicate: Any = None) -> None:
        self.shard, self.replicate = (None if group is None else resolve(group) for group in (shard, replicate))
        self.divide_factor: float | None = None
        self.all_reduces = True  # whether gradients are reduced over copies too
        self.reduced_hook: Any = None

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return 1 if self.shard is None else self.shard.size()

    @property
    def part(self) -> int:
        """The number of this rank's."""
        return 0 if self.shard is None else self.shard.rank()

    def gather(self, targets: Sequence[Tensor], mine: Tensor, async_op: bool) -> Any:
        """Each rank's tensor, in ``targets``."""
        return over.all_gather(list(targets), mine, self.shard, async_op)

    def reduce(self, parts: Sequence[Tensor]) -> Tensor:
        """This rank's part of the mean over all ranks of a gradient, given as a tensor for each part."""
        mine = parts[self.part]
        op = ReduceOp.AVG if self.divide_factor is None else ReduceOp.SUM
        out = ts.empty_like(mine, memory_format=ts.contiguous_format)
        if self.parts > 1:
            over.reduce_scatter(out, list(parts), op, self.shard)
        else:
            out.copy_(mine)
        if self.divide_factor is not None:
            out.div_(self.divide_factor)
        return self.reduce_copies(out)

    def reduce_copies(self, part: Tensor) -> Tensor:
        """The mean over the ranks that hold the same part, in place."""
        if self.replicate is not None and self.replicate.size() > 1 and self.all_reduces:
            over.all_reduce(part, ReduceOp.AVG if self.divide_factor is None else ReduceOp.SUM, self.replicate)
        if self.reduced_hook is not None:
            self.reduced_hook(part)
        return part
