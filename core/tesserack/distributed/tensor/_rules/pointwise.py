"""Elementwise operators, and those that make a tensor like another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tesserack.distributed.tensor._call import Call, R, Strategy, compute, rule
from tesserack.distributed.tensor._spec import DTensorSpec, local_shape
from tesserack.distributed.tensor.placement_types import Partial, Placement, Shard, _StridedShard

__all__ = ["along", "broadcast", "shards_of"]

# Under another name than the registry's, or no function of elements, and yet element by element.
_MORE = (
    "complex", "polar", "smooth_l1_loss", "huber_loss", "threshold_backward", "sigmoid_backward", "tanh_backward",
    "clone", "_to_copy", "copy_", "fill_", "zero_", "native_dropout_backward", "real", "imag", "_conj", "_neg_view",
    "_physical", "resolve_conj", "resolve_neg", "lift_fresh", "_abs_complex", "alias", "detach", "contiguous",
)  # fmt: skip
_SUMS = frozenset({"add", "sub", "add_", "sub_", "copy_"})
_LINEAR = frozenset({"neg", "neg_", "clone", "_to_copy", "zero_", "real", "imag", "lift_fresh", "alias", "detach"})
_CARRIED = frozenset({"clone", "lift_fresh", "alias", "detach"})
_OF_GRAD = frozenset({"threshold_backward", "sigmoid_backward", "tanh_backward", "native_dropout_backward"})


def along(placement: Placement, dim: int) -> Placement:
    """A cut of one dim as the same cut of another."""
    if isinstance(placement, _StridedShard):
        return _StridedShard(dim, split_factor=placement.split_factor)
    return Shard(dim)


def shards_of(call: Call, mesh_dim: int) -> list[Shard]:
    """The ways in which inputs are cut along a dim of the mesh, each once."""
    found: list[Shard] = []
    for k in range(len(call.specs)):
        placement = call.now(k, mesh_dim)
        if isinstance(placement, Shard) and placement not in found:
            found.append(placement)
    return found


def broadcast(spec: DTensorSpec, shape: Sequence[int], cut: Shard) -> Placement:
    """How an operand lies where the result, of this shape, is cut."""
    dim = cut.dim - (len(shape) - len(spec.shape))
    if dim < 0 or (spec.shape[dim] == 1 and shape[cut.dim] != 1):
        return R
    return along(cut, dim)


@rule("pointwise", *_MORE)
def _pointwise(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    shape = call.specs[0].shape if call.written else tuple(call.outs[0].shape)
    cuts: list[Shard] = []
    for k in range(len(call.specs)):
        placement = call.now(k, mesh_dim)
        if isinstance(placement, Shard):
            cut = along(placement, placement.dim + len(shape) - len(call.specs[k].shape))
            if cut not in cuts:
                cuts.append(cut)  # type: ignore[arg-type]
    for cut in sorted(cuts, key=lambda c: c.dim):  # of cuts that cost the same the first dim's, as PyTorch has it
        inputs = tuple(broadcast(s, shape, cut) for s in call.specs)
        if any(isinstance(p, Shard) for p in inputs):
            yield Strategy((cut,), inputs)
    for op in ("sum", "avg"):
        for inputs in _partial(call, Partial(op)):
            yield Strategy((Partial(op),), inputs)
    for op in ("max", "min", "product"):
        if call.name.partition(".")[0] in _CARRIED:
            yield call.all(Partial(op), Partial(op))


def _partial(call: Call, p: Partial) -> Iterator[tuple[Placement, ...]]:
    """Which inputs may be parts of a sum so that results are, too."""
    base, count = call.name.partition(".")[0], len(call.specs)
    if base in _LINEAR or (base in _SUMS and count == 2):
        yield (p,) * count
    elif base in ("mul", "mul_") and count == 2:
        yield from ((p, R), (R, p))
    elif base in ("mul", "mul_", "div", "div_") and isinstance(call.args[0], DTensorSpec):
        if "rounding_mode" not in call.kwargs:
            yield (p, *(R,) * (count - 1))
    elif base == "where" and count == 3:
        yield R, p, p
    elif base in _OF_GRAD or "_grad" in base:
        yield (p, *(R,) * (count - 1))


@rule("zeros_like", "ones_like", "empty_like", "full_like")
def _like(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    now = call.now(0, mesh_dim)
    rest = (R,) * (len(call.specs) - 1)
    yield Strategy((now if isinstance(now, Shard) else R,), (now, *rest))


@rule("new_zeros", "new_ones", "new_empty", "new_full", "new_empty_strided")
def _new(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    now = call.now(0, mesh_dim)
    alike = tuple(call.args[1]) == tuple(call.specs[0].shape)
    rest = (R,) * (len(call.specs) - 1)
    yield Strategy((now if isinstance(now, Shard) and alike else R,), (now, *rest))


@compute("new_zeros", "new_ones", "new_empty", "new_full")
def _new_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    return func(args[0], [*local_shape(args[1], plan.mesh, plan.placed[0])], *args[2:], **kwargs)
