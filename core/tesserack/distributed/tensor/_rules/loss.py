"""The loss of classes, over parts of a batch; with ``loss_parallel`` over parts of the classes, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.distributed.tensor import _comm
from tesserack.distributed.tensor._call import RULES, Call, R, Strategy, compute, rule
from tesserack.distributed.tensor._dispatch import implicit
from tesserack.distributed.tensor._rules.reductions import dims_of
from tesserack.distributed.tensor._spec import held_parts, local_shape
from tesserack.distributed.tensor.placement_types import Partial, Placement, Shard

P = Partial("sum")
_NONE, _MEAN, _SUM = 0, 1, 2

_ordinary = RULES["_log_softmax"]
_ordinary_backward = RULES["_log_softmax_backward_data"]


def _summed(part: Tensor, op: str, plan: Any, dims: list[int]) -> Tensor:
    for mesh_dim in dims:
        if plan.mesh.size(mesh_dim) > 1:
            part = _comm.all_reduce(part, op, plan.mesh.get_group(mesh_dim))
    return part


def _cut_at(placements: Any, dim: int) -> list[int]:
    """The dims of the mesh along which a tensor's dim is cut."""
    return [m for m, p in enumerate(placements) if p.is_shard(dim)]


# --- logarithms of probabilities -------------------------------------------------------------------------------------


@rule("_log_softmax", "_softmax")
def _log_softmax(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    now, (at,) = call.now(0, mesh_dim), dims_of(call.args[1], len(call.specs[0].shape))
    if implicit.loss and call.name == "_log_softmax" and now == Shard(at):
        yield call.all(now, now)
    yield from _ordinary(call, mesh_dim)


@compute("_log_softmax")
def _log_softmax_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    (at,) = dims_of(args[1], args[0].ndim)
    cut = _cut_at(plan.targets[0], at)
    if not cut:
        return func(*args, **kwargs)
    x = args[0]
    most = x.amax(at, True) if x.shape[at] else x.new_full([*x.shape[:at], 1, *x.shape[at + 1 :]], float("-inf"))
    x = x - _summed(most, "max", plan, cut)
    return x - _summed(x.exp().sum(at, True), "sum", plan, cut).log()


@rule("_log_softmax_backward_data")
def _log_softmax_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    (at,) = dims_of(call.args[2], len(call.specs[0].shape))
    if call.now(1, mesh_dim) == Shard(at):
        yield call.all(Shard(at), Shard(at))
    yield from _ordinary_backward(call, mesh_dim)


@compute("_log_softmax_backward_data")
def _log_softmax_backward_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    grad, output, dim, dtype = args
    (at,) = dims_of(dim, grad.ndim)
    cut = _cut_at(plan.targets[0], at)
    if not cut:
        return func(*args, **kwargs)
    return (grad - output.exp() * _summed(grad.sum(at, True), "sum", plan, cut)).to(dtype)


# --- what is lost ----------------------------------------------------------------------------------------------------


def _reduced(reduction: int, cut: Placement) -> Placement:
    return cut if reduction == _NONE else P


@rule("nll_loss_forward")
def _nll(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    """Tensors: probabilities, classes, perhaps a weight of each class."""
    reduction, ndim = call.args[3], len(call.specs[0].shape)
    at, rest = min(1, ndim - 1), (R,) * (len(call.specs) - 2)
    if call.now(0, mesh_dim) == Shard(at) and implicit.loss:
        yield Strategy((R, R), (Shard(at), R, *rest))
    for d in [d for d in range(ndim) if d != at]:
        cut = Shard(d if d < at else d - 1)
        yield Strategy((_reduced(reduction, cut), R), (Shard(d), cut, *rest))


def _kept(target: Tensor, ignore: int, weight: Tensor | None, dtype: Any) -> Tensor:
    """The weight of each sample: 0 for those to be ignored."""
    kept = target != ignore
    if weight is None:
        return kept.to(dtype)
    return weight[target.clamp(0, weight.shape[0] - 1)] * kept.to(dtype)


def _class_part(plan: Any, sizes: Any, placements: Any, at: int) -> tuple[int, int]:
    parts = held_parts(sizes, plan.mesh, placements)[at]
    return (parts[0][0], sum(n for _, n in parts)) if parts else (0, 0)


@compute("nll_loss_forward")
def _nll_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    given, target, weight, reduction, ignore = args
    at = min(1, given.ndim - 1)
    classes, samples = _cut_at(plan.targets[0], at), _cut_samples(plan.targets[0], at)
    if not classes and not samples:
        return func(*args, **kwargs)
    sample = _kept(target, ignore, weight, given.dtype)
    first, count = _class_part(plan, plan.call.specs[0].shape, plan.targets[0], at)
    here = (target >= first) & (target < first + count)
    picked = sample.new_zeros(sample.shape)
    if count:
        picked = given.gather(at, (target - first).clamp(0, count - 1).unsqueeze(at)).squeeze(at)
    lost = ts.where(here & (sample != 0), -picked * sample, 0)
    if reduction == _NONE:
        return _summed(lost, "sum", plan, classes), given.new_zeros(())
    total = _summed(sample.sum(), "sum", plan, samples)
    loss = _summed(lost.sum(), "sum", plan, classes)
    return (loss / total if reduction == _MEAN else loss), total


def _cut_samples(placements: Any, at: int) -> list[int]:
    return [m for m, p in enumerate(placements) if isinstance(p, Shard) and p.dim != at]


@rule("nll_loss_backward")
def _nll_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    """Tensors: gradient, classes, perhaps a weight of each class, total weight."""
    reduction, ndim = call.args[5], len(call.args[4])
    at, weights = min(1, ndim - 1), (R,) * (len(call.specs) - 2)
    if implicit.loss:
        yield Strategy((Shard(at),), (R, R, *weights))
    for d in [d for d in range(ndim) if d != at]:
        cut = Shard(d if d < at else d - 1)
        yield Strategy((Shard(d),), (cut if reduction == _NONE else R, cut, *weights))


@compute("nll_loss_backward")
def _nll_backward_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    grad, target, weight, total, sizes, reduction, ignore = args
    if not plan.placed:
        return func(*args, **kwargs)
    at, placed = min(1, len(sizes) - 1), plan.placed[0]
    local = [*local_shape(sizes, plan.mesh, placed)]
    if not _cut_at(placed, at):
        return func(grad, target, weight, total, local, reduction, ignore, **kwargs)
    sample = _kept(target, ignore, weight, grad.dtype) * (grad / total if reduction == _MEAN else grad)
    first, count = _class_part(plan, sizes, placed, at)
    out = grad.new_zeros(local)
    if not count:
        return out
    here = (target >= first) & (target < first + count)
    lost = ts.where(here, -sample, 0).unsqueeze(at)
    return out.scatter(at, (target - first).clamp(0, count - 1).unsqueeze(at), lost)
