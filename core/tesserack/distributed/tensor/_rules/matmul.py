"""Products of matrices."""

from __future__ import annotations

from collections.abc import Iterator

from tesserack.distributed.tensor._call import Call, R, Strategy, rule
from tesserack.distributed.tensor._rules.pointwise import broadcast, shards_of
from tesserack.distributed.tensor.placement_types import Partial, Shard

P = Partial("sum")
_FAMILY = tuple[Shard | Partial, tuple[Shard | Partial, ...]]


def _products(call: Call, mesh_dim: int, batch: bool) -> Iterator[Strategy]:
    """Of two matrices, or two batches of them: rows, columns, what is summed over, the batch."""
    rows, columns = (1, 2) if batch else (0, 1)
    if batch:
        for cut in [*(c for c in shards_of(call, mesh_dim) if c.dim == 0), Shard(0)]:
            yield Strategy((cut,), (cut, cut))
    yield Strategy((Shard(rows),), (Shard(rows), R))
    yield Strategy((Shard(columns),), (R, Shard(columns)))
    yield Strategy((P,), (Shard(columns), Shard(rows)))
    yield Strategy((P,), (P, R))
    yield Strategy((P,), (R, P))


@rule("mm", "bmm")
def _mm(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    yield from _products(call, mesh_dim, call.name == "bmm")


@rule("addmm", "baddbmm", "_addmm_activation", "addmm_", "baddbmm_")
def _addmm(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    shape = call.specs[0].shape if call.written else tuple(call.outs[0].shape)
    for strategy in _products(call, mesh_dim, len(shape) == 3):
        out = strategy.outputs[0]
        if out.is_partial() and call.name == "_addmm_activation":
            continue
        bias = broadcast(call.specs[0], shape, out) if isinstance(out, Shard) else out
        yield Strategy((out,), (bias, *strategy.inputs))


@rule("mv")
def _mv(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    yield Strategy((Shard(0),), (Shard(0), R))
    yield Strategy((P,), (Shard(1), Shard(0)))
    yield Strategy((P,), (P, R))
    yield Strategy((P,), (R, P))


@rule("addmv")
def _addmv(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    for strategy in _mv(call, mesh_dim):
        out = strategy.outputs[0]
        bias = broadcast(call.specs[0], tuple(call.outs[0].shape), out) if isinstance(out, Shard) else out
        yield Strategy((out,), (bias, *strategy.inputs))


@rule("dot", "vdot")
def _dot(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    yield Strategy((P,), (Shard(0), Shard(0)))
    yield Strategy((P,), (P, R))
    yield Strategy((P,), (R, P))
