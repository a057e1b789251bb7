"""Normalisations over the last dims or over channels, convolutions and pooling: cut by their first dims."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tesserack.distributed.tensor._call import Call, R, Strategy, compute, rule
from tesserack.distributed.tensor._rules.pointwise import along, shards_of
from tesserack.distributed.tensor._spec import local_shape
from tesserack.distributed.tensor.placement_types import Partial, Placement, Shard

P = Partial("sum")


def _cuts(call: Call, mesh_dim: int, first: int) -> list[Shard]:
    """Cuts of the dims before ``first`` that there are."""
    return [c for c in shards_of(call, mesh_dim) if c.dim < first]


@rule("native_layer_norm")
def _layer_norm(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    first = len(call.specs[0].shape) - len(call.args[1])
    for cut in _cuts(call, mesh_dim, first):
        yield Strategy((cut,), (cut, *(R,) * (len(call.specs) - 1)))


@rule("native_layer_norm_backward")
def _layer_norm_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    first = len(call.specs[0].shape) - len(call.args[2])
    for cut in _cuts(call, mesh_dim, first):
        rest = (R,) * (len(call.specs) - 4)
        yield Strategy((cut, *(P,) * (len(call.outs) - 1)), (cut, cut, cut, cut, *rest))


@rule("_group_norm")
def _group_norm(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    yield Strategy((Shard(0),), (Shard(0), *(R,) * (len(call.specs) - 1)))


@rule("_group_norm_backward")
def _group_norm_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    inputs = (Shard(0),) * 4 + (R,) * (len(call.specs) - 4)
    yield Strategy((Shard(0), *(P,) * (len(call.outs) - 1)), inputs)


@rule("convolution")
def _convolution(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    rest = (R,) * (len(call.specs) - 2)
    yield Strategy((Shard(0),), (Shard(0), R, *rest))
    transposed, groups = call.args[6], call.args[8]
    if groups == 1:
        to, of = (1, 0) if transposed else (0, 1)
        yield Strategy((Shard(1),), (R, Shard(to), *(Shard(0),) * len(rest)))
        yield Strategy((P,), (Shard(1), Shard(of), *(P,) * len(rest)))


@rule("convolution_backward")
def _convolution_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    mask = call.args[10]
    wanted = [p for p, asked in zip((Shard(0), P, P), mask, strict=True) if asked]
    yield Strategy(tuple(wanted), (Shard(0), Shard(0), R))


@rule("max_pool2d_with_indices", "avg_pool2d", "max_pool2d_backward", "avg_pool2d_backward")
def _pooling(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    for cut in _cuts(call, mesh_dim, len(call.specs[0].shape) - 2):
        yield call.all(cut, cut)


@compute("max_pool2d_backward", "avg_pool2d_backward")
def _pooling_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    at = 2 if func._packet.__name__ == "max_pool2d_backward" else 1
    if not plan.placed:
        return func(*args, **kwargs)
    sizes = [*local_shape(args[at], plan.mesh, plan.placed[0])]
    return func(*args[:at], sizes, *args[at + 1 :], **kwargs)


@rule("constant_pad_nd")
def _pad(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    padded = len(call.args[1]) // 2
    for cut in _cuts(call, mesh_dim, len(call.specs[0].shape) - padded):
        yield call.all(cut, cut)


@rule(
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_trilinear3d",
)  # fmt: skip
def _upsample(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    for cut in _cuts(call, mesh_dim, 2):
        yield call.all(cut, cut)


@rule("_one_hot", "one_hot")
def _one_hot(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    now: Placement = call.now(0, mesh_dim)
    if isinstance(now, Shard):
        yield call.all(along(now, now.dim), now)
