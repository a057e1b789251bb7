"""``torch._vmap_internals``: ``vmap`` by the name that it had before it was public."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack.func import vmap

__all__ = ["vmap"]


def _vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False
) -> Callable[..., Any]:
    """``func`` for each entry; results that are None stay so with ``allow_none_pass_through``."""
    return vmap(func, in_dims, out_dims)
