"""Operators that take a dim together, or go along it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor._call import Call, R, Strategy, compute, rule
from tesserack.distributed.tensor._rules.pointwise import along, shards_of
from tesserack.distributed.tensor.placement_types import Partial, Shard

__all__ = ["dims_of"]

_COMBINED = {
    "sum": "sum", "nansum": "sum", "_nansum": "sum", "count_nonzero": "sum", "mean": "avg", "prod": "product",
    "max": "max", "amax": "max", "min": "min", "amin": "min",
}  # fmt: skip


def dims_of(dims: Any, ndim: int) -> list[int]:
    """Dims counted from the first; all of them for None and for none."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return [*range(ndim)]
    return [d % max(ndim, 1) for d in (dims if isinstance(dims, (list, tuple)) else [dims])]


def _kept(dim: int, dims: Sequence[int], call: Call) -> int:
    """Where a dim that is not reduced is in the result."""
    if len(call.outs[0].shape) == len(call.specs[0].shape):
        return dim
    return dim - sum(d < dim for d in dims)


@rule(*_COMBINED)
def _reduction(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    base, now = call.name.partition(".")[0], call.now(0, mesh_dim)
    if len(call.specs) > 1:  # max.other is written as maximum
        return
    dims = dims_of(call.argument(1, "dim"), len(call.specs[0].shape))
    if isinstance(now, Shard):
        if now.dim not in dims:
            yield call.all(along(now, _kept(now.dim, dims, call)), now)
        elif type(now) is Shard and len(call.outs) == 1 and _whole_parts(call, mesh_dim, now, base):
            yield call.all(Partial(_COMBINED[base]), now)
    if isinstance(now, Partial) and base in ("sum", "mean") and now.reduce_op in ("sum", "avg"):
        yield call.all(now, now)


def _whole_parts(call: Call, mesh_dim: int, cut: Shard, base: str) -> bool:
    """Whether the ranks' parts may be combined: averages need equal ones, extremes some elements in each."""
    sizes, even = call.before(0, mesh_dim)
    ranks = call.mesh.size(mesh_dim)
    if base == "mean":
        return even and sizes[cut.dim] % ranks == 0 and sizes[cut.dim] > 0
    if base in ("sum", "nansum", "_nansum", "count_nonzero", "prod"):
        return True
    smallest = cut.parts(sizes[cut.dim], ranks)[-1][0][1]
    return even and smallest > 0


@rule(
    "_softmax", "_log_softmax", "cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "argsort", "topk",
    "argmax", "argmin", "any", "all", "var", "std", "var_mean", "logsumexp", "kthvalue", "mode", "median", "flip",
    "cumsum_", "cumprod_", "aminmax",
)  # fmt: skip
def _by_lines(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    base, ndim = call.name.partition(".")[0], len(call.specs[0].shape)
    at, default = (2, -1) if base in ("topk", "kthvalue") else (1, -1 if base in ("sort", "argsort", "mode") else None)
    dims = dims_of(call.argument(at, "dims" if base == "flip" else "dim", default), ndim)
    now = call.now(0, mesh_dim)
    if isinstance(now, Shard) and now.dim not in dims:
        yield call.all(along(now, _kept(now.dim, dims, call)), now)
    if base in ("flip", "cumsum") and isinstance(now, Partial) and now.reduce_op in ("sum", "avg"):
        yield call.all(now, now)


@rule("_softmax_backward_data", "_log_softmax_backward_data")
def _softmax_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    dims = dims_of(call.args[2], len(call.specs[0].shape))
    for cut in shards_of(call, mesh_dim):
        if cut.dim not in dims:
            yield call.all(cut, cut)


@rule("tril", "triu")
def _triangle(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    for cut in shards_of(call, mesh_dim):
        if cut.dim < len(call.specs[0].shape) - 2:
            yield call.all(cut, cut)
    yield call.all(Partial("sum"), Partial("sum"))


@rule("linalg_vector_norm")
def _norm(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    """Parts that are reduced give the whole norm on every rank: they are combined where they are computed."""
    now, ndim = call.now(0, mesh_dim), len(call.specs[0].shape)
    dims = dims_of(call.argument(2, "dim"), ndim)
    for cut in [now] if isinstance(now, Shard) else []:
        yield call.all(R if cut.dim in dims else along(cut, _kept(cut.dim, dims, call)), cut)


@compute("linalg_vector_norm")
def _norm_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    call = plan.call
    dims = dims_of(call.argument(2, "dim"), len(call.specs[0].shape))
    cut = [m for m, p in enumerate(plan.targets[0]) if isinstance(p, Shard) and p.dim in dims]
    if not cut:
        return func(*args, **kwargs)
    order = float(call.argument(1, "ord", 2))
    keepdim, dtype = call.argument(3, "keepdim", False), kwargs.get("dtype")
    x = args[0].abs() if dtype is None else args[0].to(dtype).abs()
    extreme = {float("inf"): "max", float("-inf"): "min"}.get(order)
    if extreme is not None:
        filler = 0.0 if extreme == "max" else float("inf")
        part = (x.amax if extreme == "max" else x.amin)(dims, keepdim) if x.numel() else x.sum(dims, keepdim) + filler
    else:
        part = (x != 0).to(x.dtype).sum(dims, keepdim) if order == 0 else x.pow(order).sum(dims, keepdim)
    for mesh_dim in cut:
        if plan.mesh.size(mesh_dim) > 1:
            part = _comm.all_reduce(part, extreme or "sum", plan.mesh.get_group(mesh_dim))
    return part if extreme is not None or order == 0 else part.pow(1.0 / order)
