"""Reductions and scans over the elements where a mask is true; the others count as the identity of the operation.

Where a mask leaves nothing, a result is that identity, or NaN for means, variances and medians. Gradients of elements
left out are zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import tesserack as ts
from tesserack import Tensor
from tesserack._native import dtype as DType
from tesserack.ops.masked._sparse import of_sparse_too

__all__ = [
    "amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean", "median",
    "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var",
]  # fmt: skip

Dims: TypeAlias = int | Sequence[int] | None
INF = float("inf")


def _parts(op: str, input: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The plain values, and a mask of their shape."""
    masked: Any = input if hasattr(input, "get_mask") else None  # a MaskedTensor
    if masked is not None:
        own = masked.get_mask()
        mask, input = own if mask is None else own & mask, masked.get_data()
    if mask is None:
        return input, ts.ones(input.shape, dtype=ts.bool, device=input.device)
    if mask.dtype is not ts.bool:
        raise TypeError(f"masked.{op}: expected a mask of dtype bool, got {mask.dtype}")
    if mask.dim() > input.dim():
        raise IndexError(f"masked.{op}: expected a mask of at most {input.dim()} dims, got {mask.dim()}")
    mask = mask if mask.layout is ts.strided else mask.to_dense()
    return input, mask.expand(input.shape)


def filled(op: str, input: Tensor, mask: Tensor | None, value: float, dtype: DType | None = None) -> Tensor:
    """``input`` with ``value`` where the mask is false."""
    if mask is None and not hasattr(input, "get_mask"):
        return input if dtype is None else input.to(dtype)
    data, kept = _parts(op, input, mask)
    data = data if dtype is None else data.to(dtype)
    return ts.where(kept, data, ts.full((), value, dtype=data.dtype, device=data.device))


def limit(x: Tensor, lowest: bool) -> float:
    """Less, or more, than every number of the dtype."""
    if x.is_floating_point():
        return -INF if lowest else INF
    if x.dtype is ts.bool:
        return 0 if lowest else 1
    limits = ts.iinfo(x.dtype)
    return limits.min if lowest else limits.max


def checked_dims(ndim: int, dim: Dims) -> list[int]:
    """Every dim for None."""
    if dim is None:
        return list(range(ndim))
    dims = [dim] if isinstance(dim, int) else list(dim) or list(range(ndim))
    rank = max(ndim, 1)
    for d in dims:
        if not -rank <= d < rank:
            raise IndexError(f"masked: expected dims in the range of [{-rank}, {rank - 1}], got {d}")
        if [other % rank for other in dims].count(d % rank) > 1:
            raise RuntimeError(f"masked: dim={d % rank} appears multiple times in the list of dims {dims}")
    return dims


def _floating(op: str, input: Tensor, dtype: DType | None) -> DType:
    kind = dtype or input.dtype
    if not (kind.is_floating_point or kind.is_complex):
        raise ValueError(f"masked.{op}: Could not infer output dtype. Input dtype must be either a floating point or "
                         f"complex dtype. Got: {kind}")  # fmt: skip
    return kind


@of_sparse_too(without_mask=True)
def sum(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The sum of the elements where ``mask`` is true, along ``dim`` or all; 0 where there are none.

    ``mask`` broadcasts to ``input``. ``TypeError`` unless it is of bools.

    >>> import tesserack as ts
    >>> ts.masked.sum(ts.tensor([[1, 2], [3, 4]]), 1, mask=ts.tensor([True, False]))
    tensor([1, 3])
    """
    x = filled("sum", input, mask, 0, dtype)
    return x.sum(checked_dims(x.dim(), dim), keepdim) if x.dim() else x.sum()


@of_sparse_too(without_mask=False)
def prod(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The product; 1 where there is nothing."""
    x = filled("prod", input, mask, 1, dtype)
    x = x if x.is_floating_point() or x.is_complex() or dtype is not None else x.long()
    for d in sorted((d % max(x.dim(), 1) for d in checked_dims(x.dim(), dim)), reverse=True):
        x = x.prod(d, keepdim=keepdim)
    return x


@of_sparse_too(without_mask=False)
def amax(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The maximum; the lowest number of the dtype where there is nothing."""
    x = filled("amax", input, mask, limit(input if dtype is None else input.to(dtype), True), dtype)
    return x.amax(checked_dims(x.dim(), dim), keepdim)


@of_sparse_too(without_mask=False)
def amin(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The minimum; the highest number of the dtype where there is nothing."""
    x = filled("amin", input, mask, limit(input if dtype is None else input.to(dtype), False), dtype)
    return x.amin(checked_dims(x.dim(), dim), keepdim)


def argmax(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The index of the maximum, of the input's dtype unless told, as PyTorch's; 0 where there is nothing."""
    x = filled("argmax", input, mask, limit(input, True))
    return x.argmax(dim, keepdim).to(dtype or x.dtype)


def argmin(
    input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The index of the minimum, of the input's dtype unless told, as PyTorch's; 0 where there is nothing."""
    x = filled("argmin", input, mask, limit(input, False))
    return x.argmin(dim, keepdim).to(dtype or x.dtype)


def _count(op: str, input: Tensor, mask: Tensor | None, dims: list[int], kind: DType) -> Tensor:
    kept = _parts(op, input, mask)[1]
    return kept.sum(dims, True).to(kind) if kept.dim() else kept.to(kind)


def _mean(op: str, input: Tensor, dim: Dims, dtype: DType, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Mean and count, the reduced dims being 1."""
    x = filled(op, input, mask, 0, dtype)
    dims = checked_dims(x.dim(), dim)
    count = _count(op, input, mask, dims, x.dtype)
    return (x.sum(dims, True) if x.dim() else x) / count, count


def _without(x: Tensor, dim: Dims, keepdim: bool) -> Tensor:
    return x if keepdim or x.dim() == 0 else x.squeeze(checked_dims(x.dim(), dim))


@of_sparse_too(without_mask=False)
def mean(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The mean; NaN where there is nothing. ``ValueError`` for integers, unless a floating ``dtype`` is given."""
    return _without(_mean("mean", input, dim, _floating("mean", input, dtype), mask)[0], dim, keepdim)


def var(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum of squared distances from the mean over count - ``correction``, which is 1, or 0 if not ``unbiased``.

    Of complex numbers it is complex, with no imaginary part, as in PyTorch.
    """
    if unbiased is not None and correction is not None:
        raise RuntimeError("masked.var: expected unbiased or correction, got both")
    less = correction if correction is not None else 1 if unbiased is None else int(unbiased)
    kind = dtype or (input.dtype if input.is_floating_point() or input.is_complex() else ts.get_default_dtype())
    middle, count = _mean("var", input, dim, kind, mask)
    data, kept = _parts("var", input, mask)
    distance = ts.where(kept, data.to(kind) - middle, ts.zeros((), dtype=kind, device=data.device))
    squares = distance.abs() ** 2 if kind.is_complex else distance * distance
    total = squares.sum(checked_dims(data.dim(), dim), True) if data.dim() else squares
    counts = (count.real if kind.is_complex else count) - less
    return _without((total / counts.clamp(min=0)).to(kind), dim, keepdim)


def std(
    input: Tensor,
    dim: Dims = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The root of :func:`var`."""
    return var(input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask).sqrt()


def median(
    input: Tensor, dim: int = -1, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The lower of the middle elements along ``dim``; NaN where there is nothing, ``ValueError`` there for integers."""
    kind = dtype or input.dtype
    data, kept = _parts("median", input, mask)
    floats = data.to(kind) if kind.is_floating_point else data.double()
    found = ts.where(kept, floats, ts.full_like(floats, float("nan"))).nanmedian(dim, keepdim)[0]
    if not kind.is_floating_point and bool(found.isnan().any()):
        raise ValueError("masked.median: masked median expects no fully masked out rows if dtype is not floating point")
    return found.to(kind)


def logsumexp(
    input: Tensor, dim: Dims = None, *, keepdim: bool = False, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """The log of the sum of exponentials; minus infinity where there is nothing. Integers give integers."""
    whole = not (input.is_floating_point() or input.is_complex())
    x = filled("logsumexp", input, mask, -INF, dtype or (ts.get_default_dtype() if whole else input.dtype))
    return ts.logsumexp(x, checked_dims(x.dim(), dim), keepdim).to(dtype or input.dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)), each of them minus infinity where its mask is false."""
    kind = dtype or input.dtype
    return ts.logaddexp(
        filled("logaddexp", input, input_mask, -INF, kind), filled("logaddexp", other, other_mask, -INF, kind)
    )


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dims = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The vector norm of order ``ord``; 0 where there is nothing, infinity for a negative order."""
    power = 2.0 if ord is None else float(ord)
    x = filled("norm", input, mask, 0.0 if power >= 0 else INF, _floating("norm", input, dtype))
    size: Tensor = ts.linalg.vector_norm(x, power, checked_dims(x.dim(), dim) or None, keepdim)
    return size


def normalize(
    input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Divided by the larger of :func:`norm` along ``dim`` and ``eps``; zeros where ``mask`` is false."""
    kind = _floating("normalize", input, dtype)
    size = norm(input, ord, dim, keepdim=True, dtype=kind, mask=mask).clamp(min=eps)
    return filled("normalize", input, mask, 0, kind) / size


def softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Exponentials over their sum along ``dim``: 0 where ``mask`` is false, NaN where there is nothing."""
    return filled("softmax", input, mask, -INF, _floating("softmax", input, dtype)).softmax(dim)


def log_softmax(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """The log of :func:`softmax`."""
    return filled("log_softmax", input, mask, -INF, _floating("log_softmax", input, dtype)).log_softmax(dim)


def softmin(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """:func:`softmax` of the negated input."""
    return (-filled("softmin", input, mask, INF, _floating("softmin", input, dtype))).softmax(dim)


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Sums up to each element along ``dim``, in which those left out are 0."""
    return filled("cumsum", input, mask, 0, dtype).cumsum(dim, dtype=dtype or input.dtype)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None) -> Tensor:
    """Products up to each element along ``dim``, in which those left out are 1."""
    return filled("cumprod", input, mask, 1, dtype).cumprod(dim, dtype=dtype or input.dtype)
