"""Masked reductions of sparse tensors: an element that the mask takes and the tensor does not have is a zero."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tesserack as ts
from tesserack import Tensor

__all__ = ["in_layout", "of_sparse_too"]

Reduction: TypeAlias = Callable[..., Tensor]


def of_sparse_too(without_mask: bool) -> Callable[[Reduction], Reduction]:
    """Decorator of a masked reduction: of a sparse tensor it is sparse, of that layout, and has the elements that
    something is reduced to. ``without_mask`` takes all the tensor has where there is no mask.
    """

    def decorate(reduce: Reduction) -> Reduction:
        @functools.wraps(reduce)
        def run(
            input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None, mask: Any = None
        ) -> Tensor:
            if hasattr(input, "get_mask") or input.layout is ts.strided:
                return reduce(input, dim, keepdim=keepdim, dtype=dtype, mask=mask)
            if mask is None and not without_mask:
                raise ValueError(f"masked.{reduce.__name__}: expected a mask beside a sparse tensor, got None")
            kept = _pattern(input) if mask is None else _dense_mask(mask).expand(input.shape)
            result = reduce(input.to_dense(), dim, keepdim=keepdim, dtype=dtype, mask=kept)
            there = _any(kept, dim, keepdim)
            if result.numel() == 1:  # of all: a zero is none, as in PyTorch
                there = there & (result != 0)
            return in_layout(input.layout, result, there)

        return run

    return decorate


def _dense_mask(mask: Tensor) -> Tensor:
    return mask if mask.layout is ts.strided else mask.to_dense()


def _pattern(input: Tensor) -> Tensor:
    """Where a sparse tensor has elements."""
    places = input.to_sparse().coalesce().indices()
    there = ts.zeros(input.shape, dtype=ts.bool, device=input.device)
    if not len(places):
        return there.fill_(places.shape[1] > 0)
    return there.index_put(tuple(places), ts.tensor(True, device=input.device))


def _any(kept: Tensor, dim: int | Sequence[int] | None, keepdim: bool) -> Tensor:
    if not kept.dim():
        return kept
    dims = [dim] if isinstance(dim, int) else list(dim or range(kept.dim()))
    return kept.sum(dims, keepdim) > 0


def in_layout(layout: Any, result: Tensor, there: Tensor) -> Tensor:
    """The elements of a strided ``result`` where ``there`` is true."""
    places = there.nonzero().t()
    coo: Tensor = ts.sparse_coo_tensor(places, result[there], tuple(result.shape), is_coalesced=True)
    return coo if layout is ts.sparse_coo else coo.to_sparse(layout=layout)
