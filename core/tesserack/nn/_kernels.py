"""Which kernels a tensor's card has."""

from __future__ import annotations

from tesserack import Tensor, _native

__all__ = ["has_kernel"]


def has_kernel(name: str, tensor: Tensor) -> bool:
    """Whether the card of a tensor brings its own kernel of that name."""
    return not tensor.is_meta and _native._has_kernel(tensor.device.type, name)
