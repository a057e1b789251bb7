"""Functions tried without computing: on the outlines of their arguments, for the outlines of their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.aten.modes import TorchDispatchMode, disabled_modes
from tesserack.utils._pytree import tree_map

__all__ = ["Outlines", "outlines_of"]


class Outlines(TorchDispatchMode):
    """Within it operators give outlines, on the meta device, whatever they are given; nothing is written to."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tree_map(_outline, dict(kwargs or {}))
        if given.get("device") is not None:
            given["device"] = ts.device("meta")
        return func(*tree_map(_outline, tuple(args)), **given)


def _outline(x: Any) -> Any:
    if not isinstance(x, Tensor) or x.device.type == "meta":
        return x
    return ts.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="meta")


def outlines_of(function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The results of a function as outlines; None if it cannot be tried, as where it asks for a value."""
    if any(isinstance(x, Tensor) and not issubclass(type(x), Tensor) for x in args):
        return None  # entries under vmap
    with disabled_modes(), ts.no_grad(), Outlines():
        try:
            return function(*map(_outline, args))
        except Exception:  # whatever it asks for is not known without data; it speaks for itself when it runs
            return None
