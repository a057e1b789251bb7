"""``torch.utils._triton``: no kernels are made by Triton here."""

from __future__ import annotations

__all__ = ["has_triton", "has_triton_package"]


def has_triton() -> bool:
    """False: nothing is compiled with it."""
    return False


def has_triton_package() -> bool:
    """False, as :func:`has_triton`."""
    return False
