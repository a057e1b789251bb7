"""Results that come later."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["Future", "collect_all", "wait_all"]

T = TypeVar("T")
S = TypeVar("S")


class Future(Generic[T]):
    """A value that some thread will set, once.

    >>> future = Future()
    >>> doubled = future.then(lambda done: 2 * done.value())
    >>> future.set_result(21)
    >>> doubled.wait()
    42
    """

    def __init__(self, *, devices: Any = None) -> None:
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[Future[T]], None]] = []

    def done(self) -> bool:
        """Whether the result, or an error, is there."""
        return self._done.is_set()

    def wait(self) -> T:
        """The result, when it is there; raises the error if there is one instead."""
        self._done.wait()
        return self.value()

    def value(self) -> T:
        """The result. ``RuntimeError`` if it is not there yet."""
        if not self.done():
            raise RuntimeError("Future.value: the result is not there yet; use wait()")
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[no-any-return]

    def set_result(self, result: T) -> None:
        """Set the result and call what waits for it. ``RuntimeError`` if that was done."""
        self._finish(result, None)

    def set_exception(self, result: BaseException) -> None:
        """Set an error, which ``wait`` raises."""
        if not isinstance(result, BaseException):
            raise AssertionError(f"set_exception: expected an exception, got {type(result).__name__}")
        self._finish(None, result)

    def _finish(self, result: Any, error: BaseException | None) -> None:
        with self._lock:
            if self.done():
                raise RuntimeError("Future can only be marked completed once: the result was set already")
            self._result, self._error = result, error
            self._done.set()
            callbacks, self._callbacks = self._callbacks, []
        self._call_back(callbacks)

    def _call_back(self, callbacks: list[Callable[[Future[T]], None]]) -> None:
        for callback in callbacks:
            try:
                callback(self)
            except Exception:  # there is nobody to raise it to: whoever sets the result is not to blame
                logging.getLogger("tesserack").exception("a callback of a Future failed")

    def add_done_callback(self, callback: Callable[[Future[T]], None]) -> None:
        """Call ``callback(self)`` when the result is there, at once if it is. An error of it is logged: use
        :meth:`then` to have it raised."""
        with self._lock:
            if not self.done():
                self._callbacks.append(callback)
                return
        self._call_back([callback])

    def __reduce__(self) -> Any:
        raise RuntimeError("Can not pickle torch.futures.Future: other processes cannot wait for it")

    def then(self, callback: Callable[[Future[T]], S]) -> Future[S]:
        """A future of ``callback(self)``; an error of it is raised as the cause of a ``RuntimeError``."""
        following: Future[S] = Future()

        def run(done: Future[T]) -> None:
            try:
                following.set_result(callback(done))
            except BaseException as error:
                told = RuntimeError(
                    f"Got the following error when running the callback: {type(error).__name__}: {error}"
                )
                told.__cause__ = error
                following.set_exception(told)

        self.add_done_callback(run)
        return following


def collect_all(futures: list[Future[Any]]) -> Future[list[Future[Any]]]:
    """A future of the list itself, done when all of them are."""
    if any(future is None for future in futures):
        raise RuntimeError("Future can't be None")
    collected: Future[list[Future[Any]]] = Future()
    left = [len(futures)]
    lock = threading.Lock()

    def finish(_: Future[Any]) -> None:
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            collected.set_result(futures)

    if not futures:
        collected.set_result(futures)
    for future in futures:
        future.add_done_callback(finish)
    return collected


def wait_all(futures: list[Future[Any]]) -> list[Any]:
    """The results of all, when all are there; the first error is raised at once, whatever is still to come."""
    ended: Future[None] = Future()

    def look(future: Future[Any]) -> None:
        if future._error is not None:
            with contextlib.suppress(RuntimeError):  # another was first
                ended.set_exception(future._error)

    for future in futures:
        future.add_done_callback(look)

    def end(_: Any) -> None:
        with contextlib.suppress(RuntimeError):
            ended.set_result(None)

    collect_all(futures).add_done_callback(end)
    ended.wait()
    return [future.wait() for future in futures]
