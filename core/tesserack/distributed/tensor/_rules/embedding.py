"""Rows of a table: cut by columns, by what is looked up, or by rows, of which each rank adds those that it has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tesserack.distributed.tensor._api import DTensor
from tesserack.distributed.tensor._call import NOTED, Call, R, Strategy, compute, handler, rule
from tesserack.distributed.tensor._dispatch import dispatch
from tesserack.distributed.tensor._spec import held_parts
from tesserack.distributed.tensor.placement_types import Partial, Shard

P = Partial("sum")


@rule("embedding")
def _embedding(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[1].shape)  # of the indices, which ATen takes after the table
    yield Strategy((Shard(ndim),), (Shard(1), R))
    yield Strategy((P,), (Shard(0), R))
    yield Strategy((P,), (P, R))
    for d in range(ndim):
        yield Strategy((Shard(d),), (R, Shard(d)))


@handler("embedding")
def _noted(func: Any, args: Any, kwargs: Any) -> Any:
    """Has the table's gradient lie as the table does: it is as large."""
    if isinstance(args[0], DTensor) and isinstance(args[1], DTensor):
        args[1]._note = args[0].placements  # type: ignore[attr-defined]
    return dispatch(func, args, kwargs, whole=False)


NOTED.add("embedding_backward")


def _mine(plan: Any, sizes: Any, placements: Any) -> tuple[int, int] | None:
    """The first row of a rank's part of a table and how many it has; None if all ranks have all."""
    if not any(p.is_shard(0) for p in placements):
        return None
    parts = held_parts(sizes, plan.mesh, placements)[0]
    return (parts[0][0], sum(n for _, n in parts)) if parts else (0, 0)


@compute("embedding")
def _embedding_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    weight, indices = args[:2]
    mine = _mine(plan, plan.call.specs[0].shape, plan.targets[0])
    if mine is None:
        return func(*args, **kwargs)
    first, rows = mine
    if not rows:
        return weight.new_zeros((*indices.shape, weight.shape[1]))
    here = (indices >= first) & (indices < first + rows)
    found = func(weight, (indices - first).clamp(0, rows - 1))
    return found.masked_fill(~here.unsqueeze(-1), 0)


@rule("embedding_backward", "embedding_dense_backward")
def _embedding_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim, note = len(call.specs[1].shape), call.notes[1]
    if note and note[mesh_dim] == Shard(0):
        yield Strategy((Shard(0),), (R, R))
    yield Strategy((Shard(1),), (Shard(ndim), R))
    for d in range(ndim):
        yield Strategy((P,), (Shard(d), Shard(d)))
    yield Strategy((P,), (P, R))


@compute("embedding_backward")
def _embedding_backward_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    grad, indices, _, padding = args
    mine = _mine(plan, plan.outs[0].shape, plan.placed[0]) if plan.placed else None
    if mine is None:
        return func(*args, **kwargs)
    first, count = mine
    if not count:
        return grad.new_zeros((0, grad.shape[-1]))
    here = (indices >= first) & (indices < first + count) & (indices != padding)
    kept = grad.masked_fill(~here.unsqueeze(-1), 0)
    return func(kept, (indices - first).clamp(0, count - 1), count, -1, **kwargs)
