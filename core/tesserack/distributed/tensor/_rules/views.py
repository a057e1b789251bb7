"""Views, and what puts tensors side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tesserack.distributed.tensor._call import COMPUTE, Call, Strategy, compute, rule
from tesserack.distributed.tensor._rules.pointwise import along, shards_of
from tesserack.distributed.tensor._spec import local_shape
from tesserack.distributed.tensor.placement_types import Partial, Placement, Shard, _StridedShard


def _follow(call: Call, mesh_dim: int, turned: Any) -> Iterator[Strategy]:
    """What the first input is: a sum's part stays one, and a dim is where ``turned`` says (None: it may not be cut)."""
    now = call.now(0, mesh_dim)
    if isinstance(now, Partial):
        yield call.all(now, now)
    if isinstance(now, Shard):
        dim = turned(now.dim)
        if dim is not None:
            yield call.all(along(now, dim), now)


# --- other sizes for the same elements -------------------------------------------------------------------------------


def _group(before: Sequence[int], after: Sequence[int], dim: int) -> tuple[range, range] | None:
    """The dims, fewest as can be, that hold the same elements before and after, with ``dim`` among them."""
    i = j = 0
    while i < len(before):
        first, first_after = i, j
        inner, inner_after = before[i], after[j] if j < len(after) else 1
        i, j = i + 1, j + 1
        while inner != inner_after:
            if inner < inner_after and i < len(before):
                inner, i = inner * before[i], i + 1
            elif inner > inner_after and j < len(after):
                inner_after, j = inner_after * after[j], j + 1
            else:
                return None
        if first <= dim < i:
            return range(first, i), range(first_after, min(j, len(after)))
    return None


def _viewed(call: Call, mesh_dim: int, cut: Shard) -> Placement | None:
    """Where a cut of a dim is after a view; None where no dim is cut so."""
    before, after = call.specs[0].shape, tuple(call.outs[0].shape)
    found = None if 0 in before else _group(before, after, cut.dim)
    if found is None:
        return None
    dims, dims_after = found
    wide = [d for d in dims_after if after[d] != 1]
    if [d for d in dims if before[d] != 1] == [cut.dim] and len(wide) == 1:
        return along(cut, wide[0])
    sizes, even = call.before(0, mesh_dim)
    sizes_after, even_after = call.out_before(after, mesh_dim)
    if not even or not even_after:
        return None
    pieces = cut.split_factor if isinstance(cut, _StridedShard) else 1
    lead = math.prod(sizes[d] for d in dims if d < cut.dim) * pieces
    inner = math.prod(sizes[d] for d in dims if d > cut.dim)
    for d in dims_after:
        fit = _fitting(sizes_after, d, dims_after, lead, sizes[cut.dim] // pieces, inner, call.mesh.size(mesh_dim))
        if fit is not None:
            return fit
    return None


def _fitting(
    sizes: Sequence[int], dim: int, dims: range, lead: int, size: int, inner: int, ranks: int
) -> Placement | None:
    """The cut of ``dim`` that gives each rank its part of each of ``lead`` pieces of ``size * inner`` elements."""
    outer = math.prod(sizes[d] for d in dims if d < dim)
    if not outer or lead % outer or sizes[dim] % (lead // outer):
        return None
    pieces = lead // outer
    rest, rest_inner = sizes[dim] // pieces, math.prod(sizes[d] for d in dims if d > dim)
    if rest == 1 and size != 1:
        return None
    one, other = (Shard(0).parts(n, ranks) for n in (size, rest))
    ends = [
        [(start * k, length * k) for [(start, length)] in parts] for parts, k in ((one, inner), (other, rest_inner))
    ]
    if ends[0] != ends[1] or (pieces > 1 and size % ranks):
        return None
    return Shard(dim) if pieces == 1 else _StridedShard(dim, split_factor=pieces)


@rule("view", "_unsafe_view", "reshape")
def _view(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    now = call.now(0, mesh_dim)
    if isinstance(now, Partial):
        yield call.all(now, now)
    if isinstance(now, Shard):
        after = _viewed(call, mesh_dim, now)
        if after is not None:
            yield call.all(after, now)


@compute("view", "_unsafe_view", "reshape", "expand")
def _sized(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    size = list(local_shape(plan.outs[0].shape, plan.mesh, plan.placed[0])) if plan.outs else args[1]
    if func._packet.__name__ == "expand":
        return args[0].expand(size)
    return args[0].reshape(size)


@rule("view.dtype")
def _view_dtype(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    last = len(call.specs[0].shape) - 1
    same = call.args[1].itemsize == call.specs[0].dtype.itemsize
    now = call.now(0, mesh_dim)
    if isinstance(now, Shard) and (same or now.dim != last):
        yield call.all(now, now)


COMPUTE["view.dtype"] = None  # the operator itself, unlike view's


@rule("view_as_real", "view_as_complex")
def _view_complex(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    last = len(call.specs[0].shape) - (1 if call.name == "view_as_complex" else 0)
    yield from _follow(call, mesh_dim, lambda d: d if d != last else None)


@rule("expand")
def _expand(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    shape, after = call.specs[0].shape, tuple(call.outs[0].shape)
    more = len(after) - len(shape)
    yield from _follow(call, mesh_dim, lambda d: d + more if shape[d] == after[d + more] else None)


# --- dims in another order, or fewer, or more ------------------------------------------------------------------------


@rule("t", "numpy_T")
def _t(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    last = len(call.specs[0].shape) - 1
    yield from _follow(call, mesh_dim, lambda d: last - d)


@rule("transpose", "transpose.int")
def _transpose(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    a, b = (d % max(1, len(call.specs[0].shape)) for d in call.args[1:3])
    yield from _follow(call, mesh_dim, lambda d: b if d == a else a if d == b else d)


@rule("permute")
def _permute(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    order = [d % len(call.specs[0].shape) for d in call.args[1]]
    yield from _follow(call, mesh_dim, order.index)


@rule("squeeze", "squeeze.dim", "squeeze.dims")
def _squeeze(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    shape = call.specs[0].shape
    given = call.argument(1, "dim")
    dims = given if isinstance(given, (list, tuple)) else [*range(len(shape))] if given is None else [given]
    gone = {d % max(1, len(shape)) for d in dims if shape and shape[d] == 1}
    yield from _follow(call, mesh_dim, lambda d: None if d in gone else d - sum(g < d for g in gone))


@compute("squeeze")
def _squeeze_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    """A dim of which a rank holds one element is not one of size 1."""
    if not plan.outs:
        return func(*args, **kwargs)
    return args[0].reshape(local_shape(plan.outs[0].shape, plan.mesh, plan.placed[0]))


@rule("unsqueeze")
def _unsqueeze(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    at = call.args[1] % (len(call.specs[0].shape) + 1)
    yield from _follow(call, mesh_dim, lambda d: d + 1 if d >= at else d)


@rule("select", "select.int")
def _select(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    at = call.args[1] % len(call.specs[0].shape)
    yield from _follow(call, mesh_dim, lambda d: None if d == at else d - (d > at))


@rule("slice.Tensor", "slice")
def _slice(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    at = call.argument(1, "dim", 0) % len(call.specs[0].shape)
    # A slice of everything takes a rank's part as it is.
    whole = tuple(call.outs[0].shape) == call.specs[0].shape and call.argument(4, "step", 1) == 1
    yield from _follow(call, mesh_dim, lambda d: d if d != at or whole else None)


@compute("slice.Tensor", "slice")
def _slice_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    call = plan.call
    at = call.argument(1, "dim", 0) % len(call.specs[0].shape)
    if any(p.is_shard(at) for p in plan.targets[0]):
        return args[0].detach()
    return func(*args, **kwargs)


@rule("split", "split.Tensor", "split.sizes", "split_with_sizes", "unbind", "unbind.int")
def _split(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    one = call.name.startswith("unbind")
    at = call.argument(1 if one else 2, "dim", 0) % len(call.specs[0].shape)
    yield from _follow(call, mesh_dim, lambda d: None if d == at else d - (one and d > at))


@rule("diagonal")
def _diagonal(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    ndim = len(call.specs[0].shape)
    gone = {call.argument(2, "dim1", 0) % ndim, call.argument(3, "dim2", 1) % ndim}
    yield from _follow(call, mesh_dim, lambda d: None if d in gone else d - sum(g < d for g in gone))


@rule("unfold")
def _unfold(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    at = call.args[1] % len(call.specs[0].shape)
    yield from _follow(call, mesh_dim, lambda d: None if d == at else d)


# --- side by side ----------------------------------------------------------------------------------------------------


@rule("cat", "stack")
def _beside(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    new = call.name == "stack"
    ndim = len(call.outs[0].shape)
    at = call.argument(1, "dim", 0) % max(1, ndim)
    if any(len(s.shape) != ndim - new for s in call.specs):  # an empty tensor of one dim, as cat allows
        return
    for cut in shards_of(call, mesh_dim):
        if new:
            yield call.all(along(cut, cut.dim + (cut.dim >= at)), cut)
        elif cut.dim != at:
            yield call.all(cut, cut)
    for op in ("sum", "avg"):
        yield call.all(Partial(op), Partial(op))


# --- gradients of views ----------------------------------------------------------------------------------------------

_SELECT, _SLICE = 0, 1  # the kinds of items of basic_index, four numbers each


def _whole_dims(call: Call) -> dict[int, int]:
    """Of basic_index_backward: which dim of the gradient is which whole dim of the input."""
    sizes, items = call.args[1], call.args[2]
    found: dict[int, int] = {}
    dim = at = 0
    for k in range(0, len(items), 4):
        kind, start, length, step = items[k : k + 4]
        if kind == _SLICE and (start, length, step) == (0, sizes[dim], 1):
            found[at] = dim
        dim += kind in (_SELECT, _SLICE)
        at += kind != _SELECT
    while dim < len(sizes):
        found[at] = dim
        dim, at = dim + 1, at + 1
    return found


@rule("basic_index_backward")
def _index_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    yield from _follow(call, mesh_dim, _whole_dims(call).get)


@compute("basic_index_backward")
def _index_backward_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    grad, sizes, items = args
    local, items = [*local_shape(sizes, plan.mesh, plan.placed[0])], list(items)
    dim = 0
    for k in range(0, len(items), 4):
        if items[k] == _SLICE and local[dim] != sizes[dim]:
            items[k + 2] = local[dim]
        dim += items[k] in (_SELECT, _SLICE)
    return func(grad, local, items, **kwargs)


@rule("select_backward", "slice_backward", "diagonal_backward", "unfold_backward")
def _view_backward(call: Call, mesh_dim: int) -> Iterator[Strategy]:
    base, ndim = call.name, len(call.args[1])
    if base == "select_backward":
        at = call.args[2] % ndim
        yield from _follow(call, mesh_dim, lambda d: d + (d >= at))
    elif base == "slice_backward":
        at = call.args[2] % ndim
        yield from _follow(call, mesh_dim, lambda d: None if d == at else d)
    else:
        now = call.now(0, mesh_dim)
        if isinstance(now, Partial):
            yield call.all(now, now)


@compute("select_backward", "slice_backward")
def _view_backward_part(plan: Any, func: Any, args: Any, kwargs: Any) -> Any:
    sizes = local_shape(args[1], plan.mesh, plan.placed[0]) if plan.placed else args[1]
    return func(args[0], [*sizes], *args[2:], **kwargs)
