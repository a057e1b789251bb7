"""Functions that give their values later: coroutines and generators, wrapped as what they are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

__all__ = ["Run", "kind_of", "like"]


class Run:
    """One call: what the function gave, and what is to be done with its values."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def yielded(self, value: Any) -> None:
        """Look at a value that it yields."""

    def done(self, value: Any) -> None:
        """Look at its result."""

    def failed(self, error: Exception) -> None:
        """Say more of an error of its own."""


Start = Callable[[tuple[Any, ...], dict[str, Any]], Run]


def kind_of(function: Any) -> str:
    """``coroutine``, ``generator``, ``async generator``; empty for a function that returns its value."""
    if inspect.iscoroutinefunction(function):
        return "coroutine"
    if inspect.isgeneratorfunction(function):
        return "generator"
    return "async generator" if inspect.isasyncgenfunction(function) else ""


def like(function: Callable[..., Any], start: Start) -> Callable[..., Any]:
    """A function of the same kind, whose calls ``start`` begins."""
    makers = {"coroutine": _coroutine, "generator": _generator, "async generator": _async_generator}
    return functools.update_wrapper(makers[kind_of(function)](start), function)


def _coroutine(start: Start) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        run = start(args, kwargs)
        try:
            result = await run.inner
        except Exception as error:
            run.failed(error)
            raise
        run.done(result)
        return result

    return call


def _generator(start: Start) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        run = start(args, kwargs)
        result = yield from _relayed(run)
        run.done(result)
        return result

    return call


def _relayed(run: Run) -> Generator[Any, Any, Any]:
    step: Callable[[], Any] = functools.partial(next, run.inner)
    while True:
        try:
            value = step()
        except StopIteration as stop:
            return stop.value
        except Exception as error:
            run.failed(error)
            raise
        run.yielded(value)
        try:
            sent = yield value
        except GeneratorExit:
            run.inner.close()
            raise
        except BaseException as error:
            step = functools.partial(run.inner.throw, error)
        else:
            step = functools.partial(run.inner.send, sent)


def _async_generator(start: Start) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        run = start(args, kwargs)
        step: Callable[[], Any] = run.inner.__anext__
        while True:
            try:
                value = await step()
            except StopAsyncIteration:
                return
            except Exception as error:
                run.failed(error)
                raise
            run.yielded(value)
            try:
                sent = yield value
            except GeneratorExit:
                await run.inner.aclose()
                raise
            except BaseException as error:
                step = functools.partial(run.inner.athrow, error)
            else:
                step = functools.partial(run.inner.asend, sent)

    return call
