"""Functions of programs that stay calls when they are given a proxy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["wrap"]

# By the namespace they are read from, and their name.
_wrapped_fns_to_patch: dict[tuple[int, str], dict[str, Any]] = {}


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Have a function of the calling module stay one call in traces, by itself or by name; also a decorator.

    ``NotImplementedError`` unless called at a module's top level, ``RuntimeError`` for what is neither.
    """
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or string name, got "
            f"{type(fn_or_name).__name__}"
        )
    frame = sys._getframe(1)
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped_fns_to_patch[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


wrap.__module__ = "tesserack.fx._symbolic_trace"  # where PyTorch has it, as written programs say
