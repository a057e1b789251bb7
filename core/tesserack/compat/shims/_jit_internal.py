"""``torch._jit_internal``: what packages take from it, as :mod:`tesserack.jit` has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tesserack.jit import export, ignore, is_scripting, unused

__all__ = ["BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "Final", "boolean_dispatch"]
__all__ += ["export", "ignore", "is_scripting", "unused"]

BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list


def _copy_to_script_wrapper(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return fn


def _overload(func: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return func


_overload_method = _overload


def boolean_dispatch(
    arg_name: str, arg_index: int, default: bool, if_true: Any, if_false: Any, module_name: str, func_name: str
) -> Callable[..., Any]:
    """A function that calls one of two others, by the truth of an argument."""

    def call(*args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(arg_name, args[arg_index] if arg_index < len(args) else default)
        return (if_true if chosen else if_false)(*args, **kwargs)

    call.__name__, call.__module__ = func_name, module_name
    return call
