"""Gradient modes as decorators: each call of the function enters a fresh mode."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

__all__ = ["decorate"]


def decorate(mode: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` running under ``mode.clone()``; generators run every step under it."""
    if inspect.isclass(function):
        raise TypeError(f"a gradient mode decorates functions, not the class {function.__name__}; decorate its methods")
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
                    generator.close()
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
                else:
                    step = functools.partial(generator.send, sent)
        except StopIteration as stop:
            return stop.value

    return wrapped
