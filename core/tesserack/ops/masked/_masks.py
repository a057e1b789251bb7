"""The masks that reductions of masked elements take and leave, for those who check or extend them."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.masked import _reductions
from tesserack.ops.masked._sparse import in_layout

__all__ = ["_canonical_dim", "_combine_input_and_mask", "_input_mask", "_output_mask", "_where"]

_NORMALIZATIONS = {"softmax", "log_softmax", "softmin", "normalize", "cumsum", "cumprod"}
INF = float("inf")
_SPARSE = (ts.sparse_coo, ts.sparse_csr)


def _canonical_dim(dim: Any, ndim: int) -> tuple[int, ...]:
    """The dims that are reduced, not negative and in order: all of them for None."""
    if dim is None or (not isinstance(dim, int) and not len(dim)):
        return tuple(range(ndim)) or (0,)
    rank = max(ndim, 1)
    return tuple(sorted(d % rank for d in _reductions.checked_dims(ndim, dim)))


def _input_mask(input: Tensor, *args: Any, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
    """``mask`` as bools of the input's shape and layout. ``ValueError`` without one, ``IndexError`` with more dims.

    >>> import tesserack as ts
    >>> ts.masked._input_mask(ts.ones(2, 2), mask=ts.tensor([1, 0]))
    tensor([[ True, False],
            [ True, False]])
    """
    if input.layout is not ts.strided and input.layout not in _SPARSE:
        raise ValueError(f"_input_mask expects strided, sparse COO or sparse CSR tensors, got {input.layout}")
    if mask is None:
        raise ValueError("_input_mask requires explicit mask, got None")
    if mask.dim() > input.dim():
        raise IndexError(f"_input_mask: expected a mask of at most {input.dim()} dims, got {mask.dim()}")
    dense = (mask if mask.layout is ts.strided else mask.to_dense()).to(ts.bool).expand(input.shape)
    if input.layout is ts.strided:
        return dense
    return in_layout(input.layout, ts.ones(input.shape, dtype=ts.bool, device=mask.device), dense)


def _output_mask(op: Any, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Where a masked reduction or normalization, with these arguments, has something to give.

    >>> import tesserack as ts
    >>> ts.masked._output_mask(ts.masked.sum, ts.ones(2, 2), 1, mask=ts.tensor([[True, False], [False, False]]))
    tensor([ True, False])
    """
    name = getattr(op, "__name__", "")
    mask = _input_mask(input, mask=kwargs.get("mask"))
    if name in _NORMALIZATIONS or name == "logaddexp":
        return mask
    if name not in _reductions.__all__:
        raise ValueError(f"_output_mask: expected a masked reduction or normalization, got {op}")
    given = args[1:] if name == "norm" else args
    dims = _canonical_dim(given[0] if given else kwargs.get("dim"), input.dim())
    dense = mask if mask.layout is ts.strided else mask.to_dense()
    left = dense.any(dims, keepdim=bool(kwargs.get("keepdim", False))) if input.dim() else dense
    return left if mask.layout is ts.strided else in_layout(mask.layout, left, left)


def _where(mask: Tensor, input: Tensor, fill_value: Tensor) -> Tensor:
    """``input`` where ``mask`` is true, elsewhere ``fill_value``, 0-d; a sparse mask's places alone are stored."""
    true = mask if mask.layout is ts.strided else mask.to_dense()
    value: Any = ts.where(true, input if input.layout is ts.strided else input.to_dense(), fill_value)
    if mask.layout is ts.strided:
        return value  # type: ignore[no-any-return]
    there = true.flatten(-mask.dense_dim()).any(-1) if mask.dense_dim() else true
    return in_layout(mask.layout, value, there)


def _combine_input_and_mask(op: Any, input: Tensor, mask: Tensor | None, *args: Any) -> Tensor:
    """``input`` with the identity of the reduction ``op`` where the mask is false."""
    name = op if isinstance(op, str) else op.__name__
    return input if mask is None else _reductions.filled(name, input, mask, _identity(name, input, *args))


def _identity(name: str, input: Tensor, *args: Any) -> float:
    """What changes no result of the reduction."""
    if name in ("amax", "argmax", "amin", "argmin"):
        return _reductions.limit(input, lowest=name.endswith("max"))
    if name == "norm":
        return float("inf") if args and args[0] is not None and float(args[0]) < 0 else 0
    known = {"prod": 1, "cumprod": 1, "logsumexp": -INF, "logaddexp": -INF, "softmax": -INF, "log_softmax": -INF}
    known |= {"softmin": INF, "median": float("nan")}
    return known.get(name, 0)
