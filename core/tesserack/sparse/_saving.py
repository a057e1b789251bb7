"""Sparse tensors through ``pickle``, ``copy`` and ``save``."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, _native
from tesserack.sparse._parts import COMPRESSED, COO, make, parts_of

__all__ = ["rebuild", "rebuild_checked", "reduce"]


def reduce(self: Tensor) -> tuple[Any, ...]:
    """``Tensor.__reduce_ex__`` of a sparse tensor: its parts."""
    parts = parts_of(self)
    name = str(parts.layout).rpartition(".")[2]
    held = (*parts.indices, parts.values)
    arguments = (type(self), name, held, tuple(self.shape), parts.dense_dim, parts.coalesced, self.requires_grad)
    return (rebuild, arguments, self.__dict__) if self.__dict__ else (rebuild, arguments)


def rebuild(
    cls: type[Tensor],
    layout: str,
    held: tuple[Tensor, ...],
    size: tuple[int, ...],
    dense_dim: int,
    coalesced: bool,
    requires_grad: bool,
) -> Tensor:
    """What a pickled sparse tensor calls."""
    made = make(getattr(_native, layout), tuple(held[:-1]), held[-1], size, dense_dim, coalesced)
    return Tensor._make_subclass(cls, made, requires_grad)


def rebuild_checked(layout: Any, data: Any) -> Tensor:
    """What a file says a sparse tensor is, as PyTorch writes it, checked as to its invariants.

    ``ValueError`` or ``RuntimeError`` for anything that is none.
    """
    from tesserack.sparse._construct import sparse_compressed_tensor, sparse_coo_tensor

    if layout is COO:
        if len(data) not in (3, 4) or not all(isinstance(part, Tensor) for part in data[:2]):
            raise ValueError("a sparse tensor in it is not made of indices, values and a size")
        flag = bool(data[3]) if len(data) == 4 else False
        return sparse_coo_tensor(*data[:3], is_coalesced=flag or None, check_invariants=True)
    if layout not in COMPRESSED or len(data) != 4 or not all(isinstance(part, Tensor) for part in data[:3]):
        raise ValueError("a sparse tensor in it is not made of indices, values and a size")
    return sparse_compressed_tensor(*data, layout=layout, check_invariants=True)
