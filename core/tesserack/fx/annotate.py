"""Types for traced values."""

from __future__ import annotations

from typing import Any

from tesserack.fx._compatibility import compatibility
from tesserack.fx.proxy import Proxy

__all__ = ["annotate"]


@compatibility(is_backward_compatible=False)
def annotate(val: Any, type: Any) -> Any:
    """The value, which the written program says to be of the type. ``RuntimeError`` if it has one already."""
    if not isinstance(val, Proxy):
        return val
    if val.node.type:
        raise RuntimeError(f"Tried to annotate a value that already had a type on it! Existing type is {val.node.type}")
    val.node.type = type
    return val
