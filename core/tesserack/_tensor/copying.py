"""Copies of tensors for :func:`copy.deepcopy`."""

from __future__ import annotations

from tesserack import _native
from tesserack._native import Tensor

TYPE_CHECKING = False  # typing takes a good part of the time to import the package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["deep_copy_of"]


def deep_copy_of(x: Tensor, memo: dict[Any, Any]) -> Tensor:
    """A copy whose memory is shared with the copies of all tensors that share this one's."""
    from tesserack.storage._untyped import copied_memory

    if x.layout is not _native.strided or getattr(x, "is_nested", False) or x.is_meta or not x.numel():
        return x.clone()
    if x.is_conj() or x.is_neg() or not x.data_ptr():
        return x.clone()
    memory = copied_memory(x, memo)
    whole = len(memory) - len(memory) % x.element_size()
    return memory[:whole].view(x.dtype).as_strided(tuple(x.shape), x.stride(), x.storage_offset())
