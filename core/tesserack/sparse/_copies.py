"""Copies, casts and moves of sparse tensors, and tensors like them."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.registry import said
from tesserack.sparse._dispatch import assign, empty_of, kernel, layout_name, pass_on, refuse
from tesserack.sparse._parts import build, is_sparse, like, make, parts_of, values_of

__all__: list[str] = []

# Made of _to_copy, or of nothing but metadata.
pass_on(
    *("to.dtype", "to.device", "to.other", "to.dtype_layout", "type_as", "cpu", *sorted(said("cast"))),
    *("detach", "is_conj", "is_neg"),
)


@kernel("clone")
def clone(self: Tensor, memory_format: Any = None) -> Tensor:
    parts = parts_of(self)
    indices = tuple(part.clone() for part in parts.indices)
    values = values_of(self).clone()
    if not values.requires_grad:
        return make(parts.layout, indices, values, self.shape, parts.dense_dim, parts.coalesced, exact=True)
    return build(parts.layout, indices, values, self.shape, parts.dense_dim, parts.coalesced)


@kernel("contiguous")
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    raise refuse("contiguous", self, "its parts have memory formats; see .values()")


@kernel("_to_copy")
def to_copy(
    self: Tensor, dtype: Any = None, device: Any = None, memory_format: Any = None, non_blocking: bool = False
) -> Tensor:
    parts = parts_of(self)
    place = self.device if device is None else device
    indices = tuple(part.to(place, copy=True) for part in parts.indices)
    values = values_of(self).to(place, dtype or self.dtype, non_blocking=non_blocking, copy=True)
    return build(parts.layout, indices, values, self.shape, parts.dense_dim, parts.coalesced)


@kernel("copy_")
def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if not (is_sparse(self) and is_sparse(src)):
        raise RuntimeError(
            f"copy_() between dense and sparse Tensors is not implemented! Found self type = {layout_name(self)} and "
            f"src type = {layout_name(src)}"
        )
    if self is src:
        return self
    copied = to_copy(src, self.dtype, self.device) if src.requires_grad else clone(src).to(self.device, self.dtype)
    return assign(self, copied, "copy_")


@kernel("zero_")
def zero_(self: Tensor) -> Tensor:
    return assign(self, empty_of(self), "zero_")


def _check_format(op: str, memory_format: Any) -> None:
    if memory_format is not None:
        raise RuntimeError(
            f"{op}: expected no memory_format of a sparse tensor, got {memory_format}; it has no strides"
        )


def _empty_like(
    self: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None
) -> Tensor:
    if self.layout is ts.sparse_coo:
        _check_format("empty_like", memory_format)
        made = empty_of(self, None, dtype, device)
    else:
        held = ts.zeros_like(parts_of(self).values, dtype=dtype)
        made = like(self.detach(), held).to(device or self.device)
    return made.requires_grad_() if requires_grad else made


kernel("empty_like")(_empty_like)


@kernel("randn_like")
def randn_like(
    self: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None
) -> Tensor:
    _check_format("randn_like", memory_format)
    if self.layout is ts.sparse_coo:
        raise refuse("randn_like", self)
    made = like(self.detach(), ts.randn_like(parts_of(self).values, dtype=dtype)).to(device or self.device)
    return made.requires_grad_() if requires_grad else made


@kernel("zeros_like")
def zeros_like(
    self: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None
) -> Tensor:
    _check_format("zeros_like", memory_format)
    made = empty_of(self, None, dtype, device)
    return made.requires_grad_() if requires_grad else made


@kernel("ones_like")
def ones_like(
    self: Tensor, dtype: Any = None, device: Any = None, requires_grad: bool = False, memory_format: Any = None
) -> Tensor:
    _check_format("ones_like", memory_format)
    return _full_like("ones_like", self, 1, dtype, device, requires_grad)


def _full_like(op: str, self: Tensor, value: Any, dtype: Any, device: Any, requires_grad: bool) -> Tensor:
    """One value in all places of a compressed tensor that hold elements."""
    if self.layout is ts.sparse_coo:
        raise refuse(op, self)
    held = ts.full_like(parts_of(self).values, value, dtype=dtype)
    made = like(self.detach(), held).to(device or self.device)
    return made.requires_grad_() if requires_grad else made


@kernel("full_like")
def full_like(
    self: Tensor, fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False,
    memory_format: Any = None,
) -> Tensor:  # fmt: skip
    _check_format("full_like", memory_format)
    return _full_like("full_like", self, fill_value, dtype, device, requires_grad)


def _new(self: Tensor, size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    if self.layout is not ts.sparse_coo:
        raise refuse("new_zeros", self)
    kind, place = dtype or self.dtype, device or self.device
    indices = ts.zeros((len(size), 0), dtype=ts.int64, device=place)
    made = make(ts.sparse_coo, (indices,), ts.zeros((0,), dtype=kind, device=place), size, 0, True)
    return made.requires_grad_() if requires_grad else made


kernel("new_zeros", "new_empty")(_new)
