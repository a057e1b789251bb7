"""``torch.backends.opt_einsum``: the order of products in ``einsum`` is the operator's own."""

from __future__ import annotations

from typing import Any

__all__ = ["get_opt_einsum", "is_available"]

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """Always False."""
    return False


def get_opt_einsum() -> Any:
    """None: the package is not used."""
    return None
