"""Gradient modes as decorators: each call of the function enters a fresh mode."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts

__all__ = ["decorate", "without_acting"]


def decorate(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` running under ``mode.clone()``; generators run every step under it.

    A class that a gradient mode decorates is a function that makes instances under it, as in PyTorch, with a
    ``FutureWarning``. ``TypeError`` for a device around a class.
    """
    if inspect.isclass(function) and isinstance(mode, ts.device):
        raise TypeError(
            f"device: cannot decorate the class {function.__name__}; decorate the methods that it is meant for"
        )
    if inspect.isclass(function):
        warnings.warn(
            f"a gradient mode around the class {function.__name__} is in force only while one is made; "
            "decorate the methods that it is meant for",
            FutureWarning,
            stacklevel=2,
        )
    if inspect.isgeneratorfunction(function):
        return _decorate_generator(mode, function)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with mode.clone():
            return function(*args, **kwargs)

    return wrapped


def _decorate_generator(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        generator = function(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                with mode.clone():
                    item = step()
                try:
                    sent = yield item
                except GeneratorExit:
                    with mode.clone():
                        generator.close()
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
                else:
                    step = functools.partial(generator.send, sent)
        except StopIteration as stop:
            return stop.value

    return wrapped


def without_acting(kind: Any, mode: bool) -> Any:
    """A ``set_grad_enabled(mode)``, or one of a class made from it, that switches when it is entered: a copy of one."""
    before = ts.is_grad_enabled()
    made = kind.__new__(kind, mode)
    ts.set_grad_enabled(before)
    return made.clone()
