"""Elements by number: cut by the dims that no index goes along, or by those of the index."""

from __future__ import annotations

from collections.abc import Iterator

import tesserack as ts
from tesserack.distributed.tensor._call import Call, R, Strategy, rule
from tesserack.distributed.tensor.placement_types import Partial, Shard

P = Partial("sum")


@rule("index_select")
def _index_select(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[0].shape)
    at = call.args[1] % max(1, ndim)
    for d in range(ndim):
        if d != at:
            yield Strategy((Shard(d),), (Shard(d), R))
    if call.specs[1].shape:
        yield Strategy((Shard(at),), (R, Shard(0)))
    yield Strategy((P,), (P, R))


@rule("gather")
def _gather(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[0].shape)
    at = call.args[1] % max(1, ndim)
    for d in range(ndim):
        if d != at and call.specs[0].shape[d] == call.specs[1].shape[d]:
            yield call.all(Shard(d), Shard(d))
    for d in range(len(call.specs[1].shape)):
        if d == at:
            yield Strategy((Shard(d),), (R, Shard(d)))


@rule("scatter.src", "scatter.value", "scatter_add", "scatter_.src", "scatter_.value", "scatter_add_")
def _scatter(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[0].shape)
    at = call.args[1] % max(1, ndim)
    for d in range(ndim):
        if d != at and len({s.shape[d] if d < len(s.shape) else -1 for s in call.specs}) == 1:
            yield call.all(Shard(d), Shard(d))


@rule("index_add", "index_add_", "index_copy", "index_copy_")
def _index_add(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[0].shape)
    at = call.args[1] % max(1, ndim)
    for d in range(ndim):
        if d != at:
            yield Strategy((Shard(d),), (Shard(d), R, Shard(d)))
    if call.name.startswith("index_add"):
        yield Strategy((P,), (P, Shard(0), Shard(at)))
        yield Strategy((P,), (P, R, P))


def _single(call: Call) -> tuple[int, int] | None:
    """Of a call by one tensor of numbers: along which dim it indexes, and how many dims it has."""
    given = [(k, index) for k, index in enumerate(call.args[1]) if index is not None]
    if len(given) != 1 or given[0][1].dtype is ts.bool:
        return None
    return given[0][0], len(given[0][1].shape)


def _elsewhere(dim: int, at: int, count: int) -> int:
    """Where a dim that is not indexed is in the result."""
    return dim if dim < at else dim + count - 1


@rule("index.Tensor", "_index_positions")
def _index(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    found = _single(call)
    if found is None:
        return
    at, count = found
    for d in range(len(call.specs[0].shape)):
        if d != at:
            yield Strategy((Shard(_elsewhere(d, at, count)),), (Shard(d), R))
    for j in range(count):
        yield Strategy((Shard(at + j),), (R, Shard(j)))
    yield Strategy((P,), (P, R))


@rule("index_put", "index_put_")
def _index_put(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    """Tensors: what is written to, the index, the values, which may have to be broadcast."""
    found = _single(call)
    if found is None:
        return
    at, count = found
    shape = list(call.specs[0].shape)
    whole = [*shape[:at], *call.specs[1].shape, *shape[at + 1 :]]
    if list(call.specs[2].shape) != whole:
        return
    for d in range(len(shape)):
        if d != at:
            yield Strategy((Shard(d),), (Shard(d), R, Shard(_elsewhere(d, at, count))))
    if call.argument(3, "accumulate", False):
        for j in range(count):
            yield Strategy((P,), (P, Shard(j), Shard(at + j)))
        yield Strategy((P,), (P, R, P))
