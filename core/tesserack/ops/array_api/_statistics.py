"""The standard's reductions, sums along an axis, sorting and sets."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.registry import operators

Axis: TypeAlias = int | Sequence[int] | None


def _axes(x: Tensor, axis: Axis) -> list[int]:
    return list(range(x.dim())) if axis is None else [axis] if isinstance(axis, int) else list(axis)


def _sum_dtype(x: Tensor, dtype: Any) -> Any:
    """Integers are added up in the default integer, or in its unsigned counterpart."""
    if dtype is not None or x.is_floating_point() or x.is_complex():
        return dtype or x.dtype
    return ts.uint64 if x.dtype in (ts.uint8, ts.uint16, ts.uint32, ts.uint64) else ts.int64


def _kept(x: Tensor, axis: Axis) -> bool:
    """Whether no axis is given to reduce: the empty tuple."""
    return axis is not None and not isinstance(axis, int) and len(axis) == 0


def sum(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The sum along axes, or of everything; integers add up in 64 bits, unsigned ones unsigned.

    >>> import tesserack as ts
    >>> ts.array_api.sum(ts.ones(2, 3), axis=1).tolist()
    [3.0, 3.0]
    """
    kind = _sum_dtype(x, dtype)
    if _kept(x, axis) or x.dim() == 0:
        return x.to(kind).clone()
    wide = ts.int64 if kind is ts.uint64 else kind  # sums wrap alike
    return x.to(wide).sum(_axes(x, axis), keepdims).to(kind)


def prod(x: Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Tensor:
    """The product along axes, or of everything; dtypes as of :func:`sum`."""
    kind = _sum_dtype(x, dtype)
    found = x.to(ts.int64 if kind is ts.uint64 else kind)
    for d in sorted((d % (x.dim() or 1) for d in _axes(x, axis)), reverse=True):
        found = found.prod(d, keepdim=keepdims)
    return found.to(kind) if found is not x else x.clone()


def _extremum(name: str, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def call(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
        return x.clone() if _kept(x, axis) or x.dim() == 0 else function(x, _axes(x, axis), keepdims)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"The {name} along axes, or of everything."
    return call


max = _extremum("max", ts.amax)
min = _extremum("min", ts.amin)


def mean(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The mean along axes, or of everything, of floating or complex elements."""
    return x.clone() if _kept(x, axis) or x.dim() == 0 else x.mean(_axes(x, axis), keepdims)


def var(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The squared distance from the mean, over count - ``correction``, along axes or of everything."""
    if _kept(x, axis):  # of one element each
        return (x - x) / builtins.max(1 - correction, 0)
    return ts.var(x, _axes(x, axis), correction=correction, keepdim=keepdims)


def std(x: Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The root of :func:`var`."""
    return var(x, axis=axis, correction=correction, keepdims=keepdims).sqrt()


def all(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether every element is true, along axes or of everything."""
    flags = x.to(ts.bool)
    return flags.clone() if _kept(x, axis) or x.dim() == 0 else flags.all(_axes(x, axis), keepdims)


def any(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether an element is true, along axes or of everything."""
    flags = x.to(ts.bool)
    return flags.clone() if _kept(x, axis) or x.dim() == 0 else flags.any(_axes(x, axis), keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero, along axes or of everything."""
    return sum((x != 0).to(ts.int64), axis=axis, keepdims=keepdims)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first place of the maximum."""
    return ts.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first place of the minimum."""
    return ts.argmin(x, axis, keepdims)


def _cumulative(name: str, first: int) -> Callable[..., Tensor]:
    def call(x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Tensor:
        if axis is None and x.dim() > 1:
            raise ValueError(f"{name}: expected an axis for an array of {x.dim()} dimensions")
        kind = _sum_dtype(x, dtype)
        along = 0 if axis is None else axis
        wide = x.to(ts.int64 if kind is ts.uint64 else kind)
        found = (wide.cumsum(along) if first == 0 else wide.cumprod(along)).to(kind)
        if include_initial and x.dim():
            shape = list(x.shape)
            shape[along] = 1
            found = ts.cat([ts.full(shape, first, dtype=kind, device=x.device), found], along)
        return found

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{name} of the elements up to each, along an axis; ``include_initial`` puts {first} before them."
    return call


cumulative_sum = _cumulative("cumulative_sum", 0)
cumulative_prod = _cumulative("cumulative_prod", 1)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The ``n``-th differences of neighbours along an axis."""
    return ts.diff(x, n, axis, prepend, append)


# --- sorting and searching -----------------------------------------------------------------------------------------


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis."""
    return ts.sort(x, dim=axis, descending=descending, stable=stable)[0]


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The places of the elements in order along an axis."""
    return ts.sort(x, dim=axis, descending=descending, stable=stable)[1]


def top_k(x: Tensor, k: int, /, *, axis: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The ``k`` largest or smallest elements along an axis, and their places."""
    values, indices = ts.topk(x, k, axis, largest)
    return values, indices


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of the elements that are not zero, one tensor for each axis; ``ValueError`` without axes."""
    if x.dim() == 0:
        raise ValueError("nonzero: expected an array with axes, got one of 0 dimensions; try reshape(x, (1,))")
    return tuple(operators()["nonzero_numpy"](x))


def searchsorted(x1: Tensor, x2: Tensor | float, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """Where elements go into the ascending ``x1``."""
    values = x2 if isinstance(x2, Tensor) else ts.tensor(x2, dtype=x1.dtype, device=x1.device)
    return ts.searchsorted(x1, values, side=side, sorter=sorter)


def isin(x1: Tensor | int, x2: Tensor | int, /, *, invert: bool = False) -> Tensor:
    """Whether each element of ``x1`` is in ``x2``."""
    found: Tensor = operators()["isin"](x1, x2, invert=invert)
    return found


# --- sets ----------------------------------------------------------------------------------------------------------


class UniqueAllResult(NamedTuple):
    """What :func:`unique_all` returns."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCountsResult(NamedTuple):
    """What :func:`unique_counts` returns."""

    values: Tensor
    counts: Tensor


class UniqueInverseResult(NamedTuple):
    """What :func:`unique_inverse` returns."""

    values: Tensor
    inverse_indices: Tensor


def unique_all(x: Tensor, /) -> UniqueAllResult:
    """The distinct elements, where each is first, which one each element is, and their counts; NaNs differ.

    Complex numbers go by their real parts first.
    """
    if x.is_complex():
        pairs = ts.view_as_real(x.reshape(-1).resolve_conj())
        rows, inverse, counts = ts.unique(pairs, return_inverse=True, return_counts=True, dim=0)
        values = ts.view_as_complex(rows.contiguous())
    else:
        values, inverse, counts = ts.unique(x, return_inverse=True, return_counts=True)
    places = ts.arange(x.numel(), device=x.device)
    first = ts.full((values.numel(),), x.numel(), dtype=ts.int64, device=x.device)
    first = first.scatter_reduce(0, inverse.reshape(-1), places, "amin")
    return UniqueAllResult(values, first, inverse.reshape(x.shape), counts)


def unique_counts(x: Tensor, /) -> UniqueCountsResult:
    """The distinct elements and their counts."""
    found = unique_all(x)
    return UniqueCountsResult(found.values, found.counts)


def unique_inverse(x: Tensor, /) -> UniqueInverseResult:
    """The distinct elements, and which one each element is."""
    found = unique_all(x)
    return UniqueInverseResult(found.values, found.inverse_indices)


def unique_values(x: Tensor, /) -> Tensor:
    """The distinct elements."""
    return unique_all(x).values
