"""Tensors of other libraries over the same memory."""

from __future__ import annotations

from typing import Any

from tesserack import Tensor, from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule of the tensor's memory, to be taken once."""
    return tensor.__dlpack__()
