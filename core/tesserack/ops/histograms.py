"""Weighted counts of points in bins: ``histogram`` and ``histogramdd``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor import return_types
from tesserack.autograd._underived import underived
from tesserack.library.whole_operator import is_looked_on
from tesserack.ops.results import deliver

__all__ = ["histogram", "histogramdd"]


def _check(op: str, points: Tensor, weight: Tensor | None) -> None:
    if points.dtype not in (ts.float32, ts.float64):
        raise RuntimeError(f"{op}: expected a float32 or float64 tensor, got {points.dtype}")
    if weight is None:
        return
    if weight.dtype is not points.dtype:
        raise RuntimeError(f"{op}: if weight tensor is provided, input tensor and weight tensor should have the same "
                           f"dtype, got {points.dtype} and {weight.dtype}")  # fmt: skip
    if weight.shape != points.shape[:-1]:
        raise RuntimeError(f"{op}: if weight tensor is provided its shape should be that of the input tensor "
                           f"excluding its innermost dimension, got "
                           f"{tuple(points.shape)} and {tuple(weight.shape)}")  # fmt: skip


def _limits(op: str, columns: Tensor, range: Sequence[float] | None) -> list[tuple[float, float]]:
    """The outermost edges along each dimension, from ``range`` or from the points."""
    dims = columns.shape[1]
    if range is not None:
        if len(range) != 2 * dims:
            raise RuntimeError(f"{op}: for a {dims}-dimensional histogram range should have {2 * dims} elements, but "
                               f"got {len(range)}")  # fmt: skip
        pairs = [(float(range[2 * d]), float(range[2 * d + 1])) for d in _count(dims)]
    elif columns.shape[0] == 0:
        pairs = [(0.0, 1.0)] * dims
    else:
        lowest, highest = columns.amin(0).tolist(), columns.amax(0).tolist()
        pairs = list(zip(lowest, highest, strict=True))
    for low, high in pairs:
        if not (abs(low) < float("inf") and abs(high) < float("inf")):
            raise RuntimeError(f"{op}: dimension's range [{low}, {high}] is not finite")
        if low > high:
            raise RuntimeError(f"{op}: min should not exceed max, but got min {low} max {high}")
    return [(low - 0.5, high + 0.5) if low == high else (low, high) for low, high in pairs]


def _limits_in_tensors(columns: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The outermost edges by the points, without asking for numbers."""
    low, high = columns.amin(0), columns.amax(0)
    half = ts.where(low == high, 0.5, 0.0).to(low.dtype)
    return list(zip((low - half).unbind(), (high + half).unbind(), strict=True))


def _count(n: int) -> Any:
    import builtins

    return builtins.range(n)  # the public functions have an argument of that name


def _edges(op: str, columns: Tensor, bins: Any, range: Sequence[float] | None) -> list[Tensor]:
    """Edges along each dimension: those given, or evenly spaced ones."""
    dims = columns.shape[1]
    if isinstance(bins[0], Tensor) if bins else False:
        if range is not None:
            raise TypeError(f"{op}: expected either edges or a range, got both")
        for edges in bins:
            if edges.dim() != 1 or edges.numel() < 2:
                raise RuntimeError(f"{op}: bins tensor should have one dimension and at least two edges, got shape "
                                   f"{tuple(edges.shape)}")  # fmt: skip
            if edges.dtype is not columns.dtype:
                raise RuntimeError(f"{op}: input tensor and bins tensors should have the same dtype, but got input "
                                   f"with dtype {columns.dtype} and bins with dtype {edges.dtype}")  # fmt: skip
        return [edges.contiguous() for edges in bins]
    for count in bins:
        if count < 1:
            raise RuntimeError(f"{op}: bins must be positive, got {count}")
    by_points = range is None and columns.shape[0] > 0
    limits: list[Any] = (
        _limits_in_tensors(columns) if by_points and is_looked_on(columns) else _limits(op, columns, range)
    )
    spaced = [
        ts.linspace(low, high, int(bins[d]) + 1, dtype=columns.dtype, device=columns.device)
        for d, (low, high) in enumerate(limits)
    ]
    return spaced if dims else []


def _places(column: Tensor, edges: Tensor, even: bool) -> tuple[Tensor, Tensor]:
    """The bin of each point, and whether it is in any. The last bin holds its right edge too."""
    last = edges.numel() - 1
    inside = (column >= edges[0]) & (column <= edges[-1])
    if even and last > 0:
        # A first guess that rounding can put one bin off, as the division of PyTorch's does; the edges then decide.
        place = ((column - edges[0]) * (last / (edges[-1] - edges[0]))).where(inside, ts.zeros_like(column)).long()
        place = place.clamp(0, last - 1)
        place = place - (column < edges[place]).long()
        place = place + (column >= edges[place + 1]).long()
    else:
        place = ts.searchsorted(edges, column.contiguous(), right=True) - 1
    return place.clamp(0, max(last - 1, 0)), inside


def _counts(op: str, points: Tensor, bins: list[Any], range: Any, weight: Tensor | None, density: bool) -> Any:
    dims = points.shape[-1]
    columns = points.detach().reshape(-1, dims)
    even = not isinstance(bins[0], Tensor)
    edges = _edges(op, columns, bins, range)
    sizes = [e.numel() - 1 for e in edges]
    flat = ts.zeros(columns.shape[0], dtype=ts.int64, device=points.device)
    kept = ts.ones(columns.shape[0], dtype=ts.bool, device=points.device)
    for d, size in enumerate(sizes):
        place, inside = _places(columns[:, d], edges[d], even)
        flat, kept = flat * max(size, 1) + place, kept & inside
    amount = ts.ones_like(flat, dtype=points.dtype) if weight is None else weight.detach().reshape(-1)
    amount = amount.where(kept, ts.zeros_like(amount))
    total = math.prod(sizes)
    counted = ts.zeros(max(total, 1), dtype=points.dtype, device=points.device).index_add(0, flat, amount)
    hist = counted[:total].reshape(sizes)
    if density:
        hist = hist / hist.sum()
        for d, e in enumerate(edges):
            hist = hist / e.diff().reshape([-1 if k == d else 1 for k in _count(dims)])
    given = [b for b in bins if isinstance(b, Tensor)]
    hist, *edges = underived(op, (hist.detach(), *(e.detach() for e in edges)), points, weight, *given)
    return hist, tuple(edges)


def histogram(
    input: Tensor,
    bins: int | Tensor = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
    out: tuple[Tensor, Tensor] | None = None,
) -> return_types.histogram:
    """How much weight of ``input``, float32 or float64 of any shape, lies in each bin: ``(hist, bin_edges)``.

    ``bins`` counts bins of one width between the ends of ``range`` (else the smallest and largest element), or is the
    ascending edges themselves. A bin holds its left edge, the last one also its right. With ``density`` the area is 1.
    A backward pass through it raises, as do edges or weights of another dtype or shape, and a range that is not finite,
    with ``RuntimeError``.

    >>> import tesserack as ts
    >>> ts.histogram(ts.tensor([1.0, 2.0, 1.0]), bins=2, range=(0.0, 3.0)).hist
    tensor([2., 1.])
    """
    points = input.reshape(-1, 1)
    _check("histogram", points, None if weight is None else weight.reshape(-1))
    if weight is not None and weight.shape != input.shape:
        raise RuntimeError(f"histogram: expected a weight of the input's shape {tuple(input.shape)}, got "
                           f"{tuple(weight.shape)}")  # fmt: skip
    flat = None if weight is None else weight.reshape(-1)
    hist, edges = _counts("histogram", points, [bins], range, flat, density)
    if out is not None:
        hist, edges = deliver("histogram", hist, out[0]), (deliver("histogram", edges[0], out[1]),)
    return return_types.histogram((hist, edges[0]))


def histogramdd(
    input: Tensor,
    bins: int | Sequence[int] | Sequence[Tensor],
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> return_types.histogramdd:
    """A histogram of points (*, D) in D dimensions: ``(hist, bin_edges)``, one tensor of edges for each.

    ``bins`` is a number for all dimensions, one for each, or edges for each; ``range`` lists low and high end of each.

    >>> import tesserack as ts
    >>> points = ts.tensor([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [2.0, 2.0]])
    >>> ts.histogramdd(points, bins=[2, 2]).hist.tolist()
    [[0.0, 1.0], [2.0, 1.0]]
    """
    if input.dim() < 2:
        raise RuntimeError(f"histogramdd: input tensor should have at least 2 dimensions, but got {input.dim()}")
    _check("histogramdd", input, weight)
    dims = input.shape[-1]
    listed = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(listed) != dims:
        raise RuntimeError(
            f"histogramdd: bins should have one entry for each of the {dims} dimensions, got {len(listed)}"
        )
    if not listed:
        raise RuntimeError("histogramdd: expected points of at least one dimension, got none")
    return return_types.histogramdd(_counts("histogramdd", input, listed, range, weight, density))
