"""Rows of a table: cut by columns, by what is looked up, or by rows, of which each rank adds those that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tesserack.distributed.tensor._call import Call, R, Strategy, compute, rule
from tesserack.distributed.tensor._spec import held_parts
from tesserack.distributed.tensor.placement_types import Partial, Shard

P = Partial("sum")


@rule("embedding")
def _embedding(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[0].shape)
    yield Strategy((Shard(ndim),), (R, Shard(1)))
    yield Strategy((P,), (R, Shard(0)))
    yield Strategy((P,), (R, P))
    for d in range(ndim):
        yield Strategy((Shard(d),), (Shard(d), R))


def _mine(plan: Any, sizes: Any, placements: Any) -> tuple[int, int] | None:
    """The first row of a rank's part of a table and how many it has; None if all ranks have all."""
    if not any(p.is_shard(0) for p in placements):
        return None
    parts = held_parts(sizes, plan.mesh, placements)[0]
    return (parts[0][0], sum(n for _, n in parts)) if parts else (0, 0)


@compute("embedding")
def _embedding_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    indices, weight = args[:2]
    mine = _mine(plan, plan.call.specs[1].shape, plan.targets[1])
    if mine is None:
        return func(*args, **kwargs)
    first, rows = mine
    if not rows:
        return weight.new_zeros((*indices.shape, weight.shape[1]))
    here = (indices >= first) & (indices < first + rows)
    found = func((indices - first).clamp(0, rows - 1), weight)
    return found.masked_fill(~here.unsqueeze(-1), 0)


@rule("embedding_backward", "embedding_dense_backward")
def _embedding_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[1].shape)
    yield Strategy((Shard(1),), (Shard(ndim), R))
    for d in range(ndim):
        yield Strategy((P,), (Shard(d), Shard(d)))
    yield Strategy((P,), (P, R))
