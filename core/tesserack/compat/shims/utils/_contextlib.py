"""``torch.utils._contextlib``: context managers that decorate functions and generators, a fresh one for each call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from typing import Any

__all__: list[str] = []


def _wrap_generator(make: Callable[[], Any], func: Callable[..., Any]) -> Callable[..., Any]:
    """A generator that runs within a context, and leaves it whenever it hands out a value."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = func(*args, **kwargs)
        step: Callable[[], Any] = functools.partial(next, generator)
        try:
            while True:
                try:
                    with make():
                        value = step()
                except StopIteration as end:
                    return end.value
                try:
                    sent = yield value
                    step = functools.partial(generator.send, sent)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
        finally:
            with make():
                generator.close()

    return wrapper


def context_decorator(ctx: Any, func: Callable[..., Any]) -> Callable[..., Any]:
    """``func`` called within ``ctx``: a context manager, or a function that makes one for each call.

    ``RuntimeError`` for one that is both, ``TypeError`` for a class of context managers that has to be called first.
    """
    if callable(ctx) and hasattr(ctx, "__enter__"):
        raise RuntimeError(
            f"context_decorator: expected a context manager or a function that makes one, got {ctx!r}, which is both"
        )
    make = ctx if callable(ctx) else lambda: ctx
    if inspect.isclass(func):
        raise RuntimeError(
            f"context_decorator: expected a function, got the class {func.__name__}; decorate its methods one by one"
        )
    if inspect.isgeneratorfunction(func):
        return _wrap_generator(make, func)

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with make():
            return func(*args, **kwargs)

    return wrapper


class _DecoratorContextManager:
    """A context manager whose objects decorate: each call runs within a ``clone()`` of it."""

    def __call__(self, orig_func: Callable[..., Any]) -> Callable[..., Any]:
        return context_decorator(self.clone, orig_func)

    def __enter__(self) -> Any:
        raise NotImplementedError("__enter__ is for the subclass to say")

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        raise NotImplementedError("__exit__ is for the subclass to say")

    def clone(self) -> Any:
        """Another like it; a subclass with arguments hands them on here."""
        return self.__class__()


class _NoParamDecoratorContextManager(_DecoratorContextManager):
    """One that decorates with and without parentheses."""

    def __new__(cls, orig_func: Any = None) -> Any:
        made = super().__new__(cls)
        return made if orig_func is None else made(orig_func)
