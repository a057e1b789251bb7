"""Loader workers: threads that fetch batches ahead, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

__all__ = ["WorkerInfo", "get_worker_info", "in_workers"]

_local = threading.local()


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker the current thread is: number ``id`` of ``num_workers``, with its own ``seed``."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """The worker that the calling thread is, or None in the main thread.

    >>> get_worker_info() is None
    True
    """
    return getattr(_local, "info", None)


_DONE: Any = object()


class _Worker:
    """A daemon thread with a queue of tasks: one that hangs keeps neither the program nor its exit waiting."""

    def __init__(
        self, info: WorkerInfo, fetcher_of: Callable[[], Callable[[Any], Any]], init: Callable[[int], Any] | None
    ) -> None:
        self.id = info.id
        self._tasks: SimpleQueue[tuple[Future[Any], Any] | None] = SimpleQueue()
        arguments = (info, fetcher_of, init, self._tasks)
        threading.Thread(target=_serve, args=arguments, name=f"loader-{info.id}", daemon=True).start()

    def submit(self, task: Any) -> Future[Any]:
        """Ask for a batch."""
        future: Future[Any] = Future()
        self._tasks.put((future, task))
        return future

    def stop(self) -> None:
        """Let the thread end after the task it is at."""
        self._tasks.put(None)


def _serve(
    info: WorkerInfo,
    fetcher_of: Callable[[], Callable[[Any], Any]],
    init: Callable[[int], Any] | None,
    tasks: SimpleQueue[tuple[Future[Any], Any] | None],
) -> None:
    """The body of a worker thread. A failure to start is the answer to every task."""
    _local.info = info
    failure: Exception | None = None
    try:
        if init is not None:
            init(info.id)
        fetch = fetcher_of()
    except Exception as error:
        failure = error
    while (entry := tasks.get()) is not None:
        future, task = entry
        if not future.set_running_or_notify_cancel():
            continue
        try:
            if failure is not None:
                raise failure
            future.set_result(fetch(task))
        except StopIteration:
            future.set_result(_DONE)
        except BaseException as error:
            future.set_exception(error)
        del entry, future, task  # the batch belongs to the reader now


def in_workers(
    tasks: Iterator[Any],
    fetcher_of: Callable[[], Callable[[Any], Any]],
    infos: list[WorkerInfo],
    init: Callable[[int], Any] | None,
    ahead: int,
    timeout: float,
) -> Iterator[Any]:
    """Fetch ``tasks`` round-robin in one thread per entry of ``infos``; yields results in the order of the tasks.

    Every worker builds its own fetcher with ``fetcher_of`` and has about ``ahead`` tasks waiting. An error in a
    worker is raised here, with the worker's traceback. A worker whose fetcher raises ``StopIteration`` is finished.
    """
    alive = deque(_Worker(info, fetcher_of, init) for info in infos)  # the next in turn comes first
    everyone = list(alive)
    waiting: deque[tuple[_Worker, Future[Any]]] = deque()
    try:
        while True:
            while len(waiting) < ahead * len(alive) and (task := next(tasks, _DONE)) is not _DONE:
                waiting.append((alive[0], alive[0].submit(task)))
                alive.rotate(-1)
            if not waiting:
                return
            worker, future = waiting.popleft()
            result = _result(future, timeout, worker.id)
            if result is not _DONE:
                yield result
            elif worker in alive:
                alive.remove(worker)
    finally:
        for _, future in waiting:
            future.cancel()
        for worker in everyone:
            worker.stop()


def _result(future: Future[Any], timeout: float, worker: int) -> Any:
    try:
        return future.result(timeout or None)
    except FutureTimeout:
        if future.done():  # the dataset itself raised a TimeoutError
            raise
        raise RuntimeError(f"DataLoader: worker {worker} gave no batch within {timeout} seconds") from None
