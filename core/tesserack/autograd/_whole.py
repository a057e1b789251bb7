"""Calls that stand whole in graphs: steps of optimizers, backward passes, functions with gradients of their own.

Such a call runs as Python in every run of a graph, so that it sees all that Python has changed. Who captures a run puts
what takes such calls into ``takers``; all others only look whether there is one.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, TypeVar

from tesserack import _native

__all__ = ["add_entry", "entries", "item_takers", "keeps_itself", "own_state", "take", "takers", "whole", "whole_made"]

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)
Taker = Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any], bool, bool], Any]

takers: list[Taker] = []  # of runs that are captured; the innermost last
entries: set[types.CodeType] = set()  # of functions that ask whether they are taken
own_state: list[type] = []  # whose objects change from call to call, and are used by such calls alone


def take(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    computes: bool = False,
    divisible: bool = False,
) -> Any:
    """The result of the call by whoever captures the run; NotImplemented where it is to be made as ever.

    ``computes``: it changes nothing but its arguments. ``divisible``: what it does are steps of a graph, if they are
    known.
    """
    for taker in reversed(takers):  # of which each takes calls of its own thread
        found = taker(function, args, kwargs, computes, divisible)
        if found is not NotImplemented:
            return found
    return NotImplemented


def add_entry(function: Any) -> None:
    """Note that the function asks whether it is taken."""
    entries.add(function.__code__)


def whole(function: F, computes: bool = False) -> F:
    """Decorator: calls of the function stand whole in graphs. ``computes``: it changes nothing but its arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takers:
            found = take(function, args, kwargs, computes)
            if found is not NotImplemented:
                return found
        return function(*args, **kwargs)

    add_entry(call)
    return call  # type: ignore[return-value]


def whole_made(function: F) -> F:
    """Decorator: calls of the function, which the captured run itself may make, stand whole in graphs. It computes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if takers:
            found = take(_call, (call, args, kwargs), {}, computes=True)
            if found is not NotImplemented:
                return found
        return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def _call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def keeps_itself(cls: C) -> C:
    """Decorator: objects of the class change from call to call, and calls that use them stand whole."""
    own_state.append(cls)
    return cls


def _method(name: str, tensor: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
    return take(getattr(_native.Tensor, name), (tensor, *args), kwargs or {})


item_takers: list[Callable[[Any], Any]] = []  # what is asked for numbers of tensors; the innermost last


def _item(tensor: Any) -> Any:
    for taker in reversed(item_takers):
        found = taker(tensor)
        if found is not NotImplemented:
            return found
    return NotImplemented


def watch_methods() -> None:
    """Have ``backward``, ``requires_grad_`` and ``item`` of tensors ask, too, as long as there is a taker."""
    _native._on_backward(_method if takers else None)
    _native._on_item(_item if item_takers else None)
