"""The batching rules of what goes to places or along dims: indices, norms, repetitions, windows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.func._aligned import dim_of, padded, rank_of, refuse, sizes_of, spread, wrapped
from tesserack.func._batched import Batched, Unbatchable, is_batched
from tesserack.ops.registry import operators

__all__ = ["PLACES", "at_places"]


def _is_places(index: Any) -> bool:
    """Integers in a tensor or a list, of the same number of results for every entry."""
    if isinstance(index, list):
        return bool(index) and all(type(n) is int for n in index)
    return isinstance(index, Tensor) and index.ndim > 0 and not index.is_floating_point() and index.dtype is not ts.bool


def at_places(x: Any, items: tuple[Any, ...]) -> Batched:
    """An index with tensors in it: side by side, or one that every entry has of its own."""
    own = [item for item in items if is_batched(item)]
    if not own:
        at = [k for k, item in enumerate(items) if isinstance(item, (Tensor, list))]
        fits = all(_is_places(items[k]) for k in at) and at == list(range(at[0], at[-1] + 1))
        plain = all(isinstance(item, slice) or item is Ellipsis for k, item in enumerate(items) if k not in at)
        if not fits or not plain or items[0] is Ellipsis or not is_batched(x):
            raise Unbatchable("an index")
        return Batched(x.value[(slice(None), *items)])
    if len(items) > 1 or not _is_places(items[0]) or is_batched(items[0].value) or not rank_of(x):
        raise Unbatchable("an index of each entry")
    places = items[0].value
    if not is_batched(x):
        return Batched(x[places])
    entries = ts.arange(len(places), device=places.device).view(-1, *(1,) * (places.ndim - 1))
    return Batched(x.value[entries, places])


def _by_index(name: str, x: Any, dim: int, index: Any, *args: Any, **kwargs: Any) -> Batched:
    """``gather`` and its kin: of as many dims as the index."""
    tensors: list[Any] = [v for v in (x, index, *args) if isinstance(v, Tensor)]
    if not rank_of(x) or any(rank_of(v) != rank_of(x) for v in tensors):
        raise Unbatchable(name)
    like = next(v for v in tensors if is_batched(v))
    count, along = len(like.value), dim_of(like, dim)
    if any(is_batched(v) for v in kwargs.values()):
        raise Unbatchable(name)
    rest = (spread(v, count) for v in args)
    return Batched(operators()[name](spread(x, count), along, spread(index, count), *rest, **kwargs))


def _take_along(x: Any, indices: Any, dim: int | None = None) -> Batched:
    if dim is None or not rank_of(x) or rank_of(x) != rank_of(indices):
        raise Unbatchable("take_along_dim")
    like: Any = x if is_batched(x) else indices
    count = len(like.value)
    return Batched(operators()["take_along_dim"](spread(x, count), spread(indices, count), dim_of(like, dim)))


def _index_select(x: Any, dim: int, index: Any) -> Batched:
    if not is_batched(x) or is_batched(index) or not x.ndim:
        raise Unbatchable("index_select")
    return Batched(x.value.index_select(dim_of(x, dim), index))


def _with_dim(name: str, default: int, x: Any, *args: Any, dim: Any = None, **kwargs: Any) -> Any:
    """Along one dim, the last of the numbers before it or named."""
    before = 1 if name == "topk" else 0
    given, rest = list(args[:before]), list(args[before:])
    if dim is None:
        dim = rest.pop(0) if rest else default
    if not is_batched(x) or not x.ndim or any(map(is_batched, (*given, *rest, *kwargs.values()))) or rest:
        raise Unbatchable(name)
    return wrapped(operators()[name](x.value, *given, dim=dim_of(x, dim), **kwargs))


def _normalize(x: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12) -> Batched:
    if not is_batched(x) or not x.ndim:
        raise Unbatchable("normalize")
    dims = dim_of(x, dim) if isinstance(dim, int) else tuple(dim_of(x, d) for d in dim)
    return Batched(operators()["normalize"](x.value, p, dims, eps))


def _turned(name: str, x: Any, *args: Any, dims: Any = None) -> Batched:
    """``flip(dims)`` and ``roll(shifts, dims)``."""
    shifts = args[:1] if name == "roll" else ()
    rest = args[len(shifts) :]
    dims = dims if not rest else sizes_of(rest)
    if not is_batched(x) or not x.ndim or dims is None or (name == "roll" and not shifts):
        raise Unbatchable(name)
    dims = (dims,) if isinstance(dims, int) else tuple(dims)
    return Batched(operators()[name](x.value, *shifts, tuple(dim_of(x, d) for d in dims)))


def _diff(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Batched:
    if not is_batched(x) or not x.ndim or prepend is not None or append is not None:
        raise Unbatchable("diff")
    return Batched(x.value.diff(n, dim_of(x, dim)))


def _diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Batched:
    if not is_batched(x) or not x.ndim:
        raise Unbatchable("diag_embed")
    return Batched(ts.diag_embed(x.value, offset, *(d if d < 0 else d + 1 for d in (dim1, dim2))))


def _repeated(name: str, x: Any, *sizes: Any) -> Batched:
    """``repeat`` and ``tile``."""
    counts = sizes_of(sizes)
    if not is_batched(x) or not counts or not all(isinstance(n, int) for n in counts):
        raise Unbatchable(name)
    if len(counts) < x.ndim:
        if name == "repeat":
            raise Unbatchable(name)  # which the operator refuses
        counts = (*(1,) * (x.ndim - len(counts)), *counts)
    return Batched(padded(x, len(counts)).repeat(1, *counts))


def _interleaved(x: Any, repeats: Any = None, dim: int | None = None, **kwargs: Any) -> Batched:
    if not is_batched(x) or not isinstance(repeats, int) or dim is None or not x.ndim or kwargs:
        raise Unbatchable("repeat_interleave")
    return Batched(x.value.repeat_interleave(repeats, dim_of(x, dim)))


def _vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Batched:
    if not is_batched(x) or not x.ndim or 0 in x.shape or (dim is None and keepdim):
        raise Unbatchable("linalg_vector_norm")
    norm = operators()["linalg_vector_norm"]
    if dim is None:
        return Batched(norm(x.value.flatten(1), ord, 1, dtype=dtype))
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    return Batched(norm(x.value, ord, tuple(dim_of(x, d) for d in dims), keepdim, dtype=dtype))


def _norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Batched:
    if p == "nuc" or isinstance(p, Tensor) or dim == ():
        raise Unbatchable("norm")
    return _vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)


def _linalg_norm(x: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Batched:
    one = x.ndim == 1 if dim is None else isinstance(dim, int)
    if ord is not None and not (one and not isinstance(ord, str)):
        raise Unbatchable("linalg_norm")  # of matrices
    return _vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


def _cosine(x1: Any, x2: Any, dim: int = 1, eps: float = 1e-8) -> Batched:
    rank = max(rank_of(x1), rank_of(x2))
    if not -rank <= dim < rank:
        raise Unbatchable("cosine_similarity")
    wide = (padded(x1, rank), padded(x2, rank))
    return Batched(operators()["cosine_similarity"](*wide, dim % rank + is_batched(x1 if is_batched(x1) else x2), eps))


def _pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Batched:
    if not is_batched(x) or is_batched(value):
        raise Unbatchable("pad")
    pairs, widen = len(pad) // 2, operators()["pad"]
    if mode == "constant" or x.ndim == pairs + 1:
        return Batched(widen(x.value, pad, mode, value)) if len(pad) <= 2 * x.ndim else refuse("pad")
    if x.ndim != pairs + 2:
        raise Unbatchable("pad")
    return Batched(widen(x.value.flatten(0, 1), pad, mode, value).unflatten(0, x.value.shape[:2]))


def _leading(name: str, least: int, x: Any, *args: Any, **kwargs: Any) -> Batched:
    """What takes any dims before the last ones."""
    if not is_batched(x) or x.ndim < least or any(map(is_batched, (*args, *kwargs.values()))):
        raise Unbatchable(name)
    return Batched(operators()[name](x.value, *args, **kwargs))


def _one_hot(x: Any, num_classes: int = -1) -> Batched:
    return _leading("one_hot", 0, x, num_classes) if num_classes > 0 else refuse("one_hot of unknown classes")


def _bucketize(x: Any, boundaries: Any, **kwargs: Any) -> Batched:
    return _leading("bucketize", 0, x, boundaries, **kwargs)


PLACES: dict[str, Callable[..., Any]] = {
    **{name: functools.partial(_by_index, name) for name in ("gather", "scatter", "scatter_add")},
    "take_along_dim": _take_along,
    "index_select": _index_select,
    "topk": functools.partial(_with_dim, "topk", -1),
    "glu": functools.partial(_with_dim, "glu", -1),
    "normalize": _normalize,
    **{name: functools.partial(_turned, name) for name in ("flip", "roll")},
    "diff": _diff,
    "diag_embed": _diag_embed,
    **{name: functools.partial(_repeated, name) for name in ("repeat", "tile")},
    "repeat_interleave": _interleaved,
    "linalg_vector_norm": _vector_norm,
    "linalg_norm": _linalg_norm,
    "norm": _norm,
    "cosine_similarity": _cosine,
    "pad": _pad,
    **{name: functools.partial(_leading, name, 3) for name in ("pixel_shuffle", "pixel_unshuffle")},
    "one_hot": _one_hot,
    "bucketize": _bucketize,
}
