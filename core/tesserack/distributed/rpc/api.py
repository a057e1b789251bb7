"""Calls of functions in other processes, by name of the worker."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from tesserack.distributed.rpc._agent import Later, called
from tesserack.distributed.rpc._current import current, is_current, make_current
from tesserack.distributed.rpc._workers import WorkerInfo
from tesserack.distributed.rpc.constants import DEFAULT_SHUTDOWN_TIMEOUT, UNSET_RPC_TIMEOUT
from tesserack.utils.futures import Future

__all__ = ["get_rpc_timeout", "get_worker_info", "rpc_async", "rpc_sync", "shutdown"]

F = TypeVar("F", bound=Callable[..., Any])


def _is_current_rpc_agent_set() -> bool:
    """Whether calls can be made."""
    return is_current()


def _require_initialized(func: F) -> F:
    """A function that raises where calls cannot be made."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        current()
        return func(*args, **kwargs)

    return wrapper  # type: ignore[return-value]


class _Awaited(threading.local):
    """Futures that the innermost ``_wait_all`` of this thread waits for."""

    futures: list[Future[Any]] | None = None


_awaited = _Awaited()


@contextlib.contextmanager
def _wait_all() -> Iterator[None]:
    """As a context: at its end all futures of calls made in it are waited for."""
    if _awaited.futures is not None:
        raise RuntimeError("_wait_all: expected no other around it")
    _awaited.futures = []
    try:
        yield
        for future in _awaited.futures:
            future.wait()
    finally:
        _awaited.futures = None


def called_at(to: WorkerInfo, func: Callable[..., Any], args: Any, kwargs: Any, timeout: float) -> Future[Any]:
    """A call with the time that the program asks for, or the options'."""
    agent = current()
    if timeout == UNSET_RPC_TIMEOUT:
        timeout = agent.options.rpc_timeout
    if timeout < 0:
        raise ValueError(f"rpc: expected a timeout of 0 (none) or more seconds, got {timeout}")
    future: Future[Any] = agent.call(to, func, args, kwargs, timeout)
    return future


def rpc_async(
    to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Future[Any]:
    """A future of what ``func(*args, **kwargs)`` returns in the worker ``to``: a name, a number or a WorkerInfo.

    The function, its arguments and its result pickle; tensors of the cpu go as they are, of others as the options'
    ``device_maps`` say. Within ``distributed.autograd.context()`` gradients flow back. ``timeout`` in seconds, 0 for
    any.

    Raises:
        RuntimeError: from ``wait``, where the time is over or the worker is gone; else what the function raised there.

    >>> from tesserack.distributed.rpc._begin import alone
    >>> with alone() as name:
    ...     rpc_async(name, max, args=(3, 4)).wait()
    4
    """
    if not callable(func):
        raise TypeError(f"rpc: expected a function, got {type(func).__name__}")
    worker = current().meeting.worker(to)
    future = called_at(worker, _run, (func, tuple(args or ()), dict(kwargs or {})), {}, timeout)
    if _awaited.futures is not None:
        _awaited.futures.append(future)
    return future


def rpc_sync(
    to: Any, func: Callable[..., Any], args: Any = None, kwargs: Any = None, timeout: float = UNSET_RPC_TIMEOUT
) -> Any:
    """What ``func(*args, **kwargs)`` returns in the worker ``to``, as :func:`rpc_async` gives it.

    >>> from tesserack.distributed.rpc._begin import alone
    >>> with alone() as name:
    ...     rpc_sync(name, divmod, args=(7, 2))
    (3, 1)
    """
    return rpc_async(to, func, args, kwargs, timeout).wait()


def _run(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    return called(func, args, kwargs)


def get_worker_info(worker_name: str | None = None) -> WorkerInfo:
    """The worker of a name, or this one."""
    agent = current()
    found: WorkerInfo = agent.me if worker_name is None else agent.meeting.worker(worker_name)
    return found


def get_rpc_timeout() -> float:
    """Seconds that a call may take by default."""
    return float(current().options.rpc_timeout)


def _set_rpc_timeout(seconds: float) -> None:
    current().options.rpc_timeout = seconds


def shutdown(graceful: bool = True, timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """End calls. Where graceful, every worker has to come here, and all calls that are under way come to their end.

    Raises:
        RuntimeError: where that is not so within ``timeout`` seconds, 0 for any number; or without ``init_rpc``.
    """
    agent = current()
    try:
        agent.leave(graceful, timeout)
    finally:
        make_current(None)


# --- all workers together ---------------------------------------------------------------------------------------------

_turns: dict[tuple[str, ...], Any] = {}
_gathered: dict[Any, tuple[dict[str, Any], Future[Any]]] = {}
_lock = threading.Lock()


def _gather_here(key: Any, names: tuple[str, ...], name: str, obj: Any) -> Later:
    """Of the leader: what all workers brought, when the last has."""
    with _lock:
        found, future = _gathered.setdefault(key, ({}, Future()))
        found[name] = obj
        complete = len(found) == len(names)
        if complete:
            del _gathered[key]
    if complete:
        future.set_result({each: found[each] for each in names})
    return Later(future)


def _all_gather(obj: Any, worker_names: set[str] | None = None, timeout: float = UNSET_RPC_TIMEOUT) -> dict[str, Any]:
    """What each worker brings, by name, for all workers or those named: each of them calls this."""
    agent = current()
    names = tuple(sorted(worker_names or [worker.name for worker in agent.meeting.workers]))
    if agent.me.name not in names:
        raise RuntimeError(f"_all_gather: expected {agent.me.name} to be one of {names}")
    with _lock:
        turn = next(_turns.setdefault(names, itertools.count()))
    leader = agent.meeting.worker(names[0])
    given = ((names, turn), names, agent.me.name, obj)
    try:
        return called_at(leader, _gather_here, given, {}, timeout).wait()  # type: ignore[no-any-return]
    except RuntimeError as error:
        if "set timeout" not in str(error):
            raise
        raise RuntimeError(
            f"{agent.me.name} timed out in _all_gather after {timeout:.2f} seconds: not all of {names} came to it"
        ) from None


@_require_initialized
def _wait_all_workers(timeout: float = DEFAULT_SHUTDOWN_TIMEOUT) -> None:
    """Wait until all workers are here; calls are taken as before."""
    _all_gather(None, timeout=timeout)


def _barrier(worker_names: set[str]) -> None:
    """Wait until each of these workers is here."""
    _all_gather(None, worker_names)


def forget() -> None:
    """Of the agent before: nothing."""
    _turns.clear()
    _gathered.clear()
