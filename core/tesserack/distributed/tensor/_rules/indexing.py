"""Elements by number: cut by the dims that no index goes along, or by those of the index."""

from __future__ import annotations

from collections.abc import Iterator

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
