"""Mapping a function over a dimension of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any

import tesserack as ts
from tesserack import Tensor, _native
from tesserack.autograd._whole import whole_made
from tesserack.autograd.function import VmapInfo, batching
from tesserack.func._batched import (
    BadOutput,
    Batched,
    NoTensor,
    SharedDraw,
    SharedWrite,
    Unbatchable,
    draws_refused,
    entries,
    whole,
)
from tesserack.func._draws import Draws
from tesserack.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["vmap"]


def _hides_itself(x: Any) -> bool:
    """Whether it is a container whose class hides a dim of its tensors, and shows it again, as TensorDict's does."""
    return hasattr(type(x), "_add_batch_dim") and hasattr(type(x), "_maybe_remove_batch_dim")


def _spread(dims: Any, tree: Any, what: str) -> list[Any]:
    """A dimension, or None, for each leaf of ``tree``: ``dims`` may name one for a whole part of it."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree, _hides_itself)[0])
    parts = tree.values() if isinstance(tree, dict) else tree
    fits = isinstance(tree, (tuple, list, dict)) and type(dims) is type(tree)
    if isinstance(dims, dict) and isinstance(tree, dict):
        fits = fits and dims.keys() == tree.keys()
        dims = {key: dims[key] for key in tree if key in dims}
    given = dims.values() if isinstance(dims, dict) else dims
    if not fits or len(dims) != len(tree):
        raise ValueError(f"vmap: {what}={dims!r} does not have the structure of what it is for")
    return [dim for d, part in zip(given, parts, strict=True) for dim in _spread(d, part, what)]


def _out_places(out_dims: Any, flat: list[Any], spec: Any) -> list[Any]:
    """A dimension, or None, for each result; a row of one is for the only result too."""
    if spec.is_leaf() and isinstance(out_dims, tuple) and len(out_dims) == 1:
        return [*out_dims]
    return _spread(out_dims, tree_unflatten(flat, spec), "out_dims")


def _hidden(x: Any, dim: int | None, level: int) -> Any:
    """``x``, each entry along ``dim`` standing for itself."""
    if dim is None:
        return _shared(x)
    if _hides_itself(x):
        return x._add_batch_dim(in_dim=dim % x.dim(), vmap_level=level)
    return Batched(x.movedim(dim, 0), level)


def _shared(x: Any) -> Any:
    """``x``, the same for all entries; of a container another one of the same tensors, which the function may fill."""
    return x.clone(False) if _hides_itself(x) else x


def _entry(x: Any, dim: int | None, k: int) -> Any:
    if dim is None:
        return _shared(x)
    return x[(slice(None),) * (dim % x.dim()) + (k,)] if _hides_itself(x) else x.select(dim, k)


def _check(leaf: Any, dim: Any) -> None:
    if dim is None:
        return
    if not isinstance(leaf, Tensor) and not _hides_itself(leaf):
        raise ValueError(f"vmap: got in_dim={dim} for an input that is no tensor but {type(leaf).__name__}; use None")
    if not -leaf.dim() <= dim < leaf.dim():
        raise ValueError(
            f"vmap: got in_dim={dim} for a tensor of {leaf.dim()} dims; expected one in [{-leaf.dim()}, {leaf.dim()})"
        )


def _count(leaves: list[Any], dims: list[Any]) -> int:
    sizes = {leaf.shape[dim] for leaf, dim in zip(leaves, dims, strict=True) if dim is not None}
    if not sizes:
        raise ValueError("vmap: at least one input must have a dimension to map over; all in_dims are None")
    if len(sizes) > 1:
        raise ValueError(
            f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}"
        )
    return int(*sizes)


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """``func`` for each entry along a dimension of its arguments, results stacked along ``out_dims``.

    The function is called once, on all entries. Operators without a batching rule run entry by entry, elementwise
    functions, products, reductions, views, convolutions on all entries together. Where the function asks for the truth
    or the number of an entry, draws random numbers, or takes gradients, it is called once more for each entry, with the
    same values and gradients in the time of single calls; ``RuntimeError`` if it had written to its arguments by then.

    ``in_dims`` is a dimension, or a structure of dimensions and None (not mapped) like the arguments; keyword arguments
    are not mapped. A result whose ``out_dims`` is None is the same for all entries, and need be no tensor. Random
    numbers are refused with ``RuntimeError`` under ``randomness="error"``, and "same" gives every entry the same ones.
    ``chunk_size`` changes nothing. ``ValueError`` for dims that do not fit.

    >>> import tesserack as ts
    >>> ts.vmap(ts.dot)(ts.ones(2, 3), ts.ones(2, 3))
    tensor([3., 3.])
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @wraps(func)
    @whole_made
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        leaves, spec = tree_flatten(args, _hides_itself)
        if not isinstance(in_dims, (int, tuple)):
            raise ValueError(f"vmap: expected in_dims to be an int or a tuple as the arguments, got {in_dims!r}")
        dims = _spread(in_dims, args, "in_dims")
        for leaf, dim in zip(leaves, dims, strict=True):
            _check(leaf, dim)
        count = _count(leaves, dims)
        with draws_refused(randomness == "error"):
            found = _at_once(func, leaves, dims, spec, kwargs, out_dims, VmapInfo(count, randomness))
            if isinstance(found, tuple):
                return found[0]
            if count == 0:
                raise ValueError("vmap: the mapped dimension has size 0, so that the shapes of results are not known")
            results: list[list[Any]] = []
            before = ts.get_rng_state()
            mapped = _mapped(leaves, dims)
            for k in range(count):
                if randomness == "same":
                    ts.set_rng_state(before)
                picked = [_entry(x, dim, k) for x, dim in zip(leaves, dims, strict=True)]
                with _only_own_writes(mapped):
                    flat, out_spec = tree_flatten(func(*tree_unflatten(picked, spec), **kwargs), _hides_itself)
                results.append(flat)
        return _stacked(results, out_spec, out_dims, found)

    return wrapper


def _mapped(leaves: list[Any], dims: list[Any]) -> list[Any]:
    """The tensors that are mapped over, those in containers too."""
    given = [x for x, dim in zip(leaves, dims, strict=True) if dim is not None]
    return [x for x in tree_flatten(given)[0] if isinstance(x, Tensor)]


@contextmanager
def _only_own_writes(mapped: list[Any]) -> Iterator[None]:
    """Within it, a function runs for one entry: what it wrote to and all share would be written to by each."""
    _native._push_write_guard(
        mapped,
        "vmap: in-place arithmetic is not possible on a tensor that all entries share: it would be written to once for "
        "each of them. Please use an out-of-place operator, or give vmap the tensor as an argument",
    )
    try:
        yield
    finally:
        _native._pop_write_guard()


def _at_once(
    func: Callable[..., Any], leaves: list[Any], dims: list[Any], spec: Any, kwargs: Any, out_dims: Any, info: VmapInfo
) -> tuple[Any] | Exception | None:
    """The results of one call on all entries, in a tuple; otherwise why the calls are to be made one by one: an
    operator without a rule for that, or None for random numbers."""
    before, drawn = ts.get_rng_state(), _native._draws()
    batching.append(info)
    level = len(batching)
    mode = Draws(level) if info.randomness != "error" else None
    drew = False
    try:
        with whole(level, _mapped(leaves, dims)) as state, mode or nullcontext():
            hidden = [_hidden(x, dim, level) for x, dim in zip(leaves, dims, strict=True)]
            flat, out_spec = tree_flatten(func(*tree_unflatten(hidden, spec), **kwargs), _hides_itself)
            places = _out_places(out_dims, flat, out_spec)
            made = [_shown(x, place, level, info.batch_size) for x, place in zip(flat, places, strict=True)]
    except (SharedWrite, SharedDraw, BadOutput):
        raise
    except Exception as error:  # whatever it is, the calls one by one say it as it is
        if not state.wrote:
            return error
        if not isinstance(error, Unbatchable):
            raise
        raise RuntimeError(
            f"vmap: expected a function that runs on all entries at once, since it writes to its arguments in place, "
            f"got {error} after that; copy the argument first"
        ) from None
    finally:
        batching.pop()
        drew = _native._draws() - drawn != (mode.known if mode else 0)  # by what was not seen to draw
        if drew and not state.wrote:
            ts.set_rng_state(before)
    if drew and state.wrote:
        raise RuntimeError(
            "vmap: expected a function that runs on all entries at once, since it writes to its arguments in place, "
            "got random numbers, which are drawn entry by entry; copy the argument first"
        )
    return None if drew else (tree_unflatten(made, out_spec),)


def _shown(result: Any, place: int | None, level: int, count: int) -> Any:
    """What the function gave, with the entries as its dim ``place``; as it is where that is None."""
    if _hides_itself(result):
        return result._maybe_remove_batch_dim("vmap", vmap_level=level, batch_size=count, out_dim=place)
    if place is not None:
        return entries(result, level, count).movedim(0, place)
    if isinstance(result, Batched) and result.level == level:
        raise BadOutput("vmap: can not return a BatchedTensor when out_dim is None")
    return result


def _stacked(results: list[list[Any]], spec: Any, out_dims: Any, why: Exception | None) -> Any:
    places = _out_places(out_dims, results[0], spec)
    for place, value in zip(places, results[0], strict=True):
        if place is not None and not isinstance(value, Tensor) and not _hides_itself(value):
            if why is not None and not isinstance(why, NoTensor):
                raise RuntimeError(
                    "vmap: It looks like you're calling .item() on a Tensor. Expected the function to return tensors, "
                    f"got {type(value).__name__} made of the values of one entry; return the tensor instead"
                )
            raise ValueError(f"vmap: expected the function to return tensors only, got {type(value).__name__}")
    joined = []
    for place, values in zip(places, zip(*results, strict=True), strict=True):
        joined.append(values[0] if place is None else ts.stack(values, place))
    return tree_unflatten(joined, spec)
