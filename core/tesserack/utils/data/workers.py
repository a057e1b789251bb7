"""Loader workers: what any of them knows, the iterator that shares out the work, and workers that are threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Protocol

from tesserack.utils.data._fetch import END, Fetcher
from tesserack.utils.data.worker_info import WorkerInfo, become

__all__ = ["Batches", "Failed", "ThreadWorkers"]

_NOTHING: Any = object()


@dataclass(frozen=True)
class Failed:
    """The answer of a worker whose dataset raised an error; it goes on to the next task."""

    error: BaseException
    cause: BaseException | None = None


class Workers(Protocol):
    """Several workers that fetch batches."""

    count: int

    def handles(self) -> list[Any]:
        """The processes or threads."""

    def submit(self, worker: int, task: Any) -> Any:
        """Ask a worker for a batch; returns a ticket."""

    def result(self, worker: int, ticket: Any, timeout: float) -> Any:
        """The batch, END, or :class:`Failed`; raises ``RuntimeError`` after ``timeout`` seconds or without a worker,
        and what a worker could not begin for."""

    def first(self, tickets: list[tuple[int, Any]], timeout: float) -> int:
        """The position of a ticket whose batch is there."""

    def finish(self, clean: bool) -> None:
        """No more tasks; not ``clean`` where some are unanswered."""

    def end(self) -> None:
        """Serve no other epoch either."""


class Batches:
    """The iterator over a loader's batches: gives tasks to workers in turn, and yields in the order of the tasks, or as
    they come unless ``in_order``.

    Every worker has ``ahead`` tasks waiting. A worker whose stream ends is asked no more.
    """

    def __init__(
        self,
        workers: Workers,
        tasks: Iterator[Any],
        ahead: int,
        timeout: float,
        in_order: bool,
        after: Callable[[Any], Any] | None,
    ) -> None:
        self._workers = workers
        self._tasks = tasks
        self._timeout = timeout
        self._in_order = in_order
        self._after = after
        self._ahead = ahead
        self._open = True
        self._alive = deque(range(workers.count))  # the next in turn comes first
        self._waiting: deque[tuple[int, Any]] = deque()
        try:
            self._refill()
        except BaseException:
            self.close()
            raise

    def _refill(self) -> None:
        while len(self._waiting) < self._ahead * len(self._alive):
            task = next(self._tasks, _NOTHING)
            if task is _NOTHING:
                return
            self._waiting.append((self._alive[0], self._workers.submit(self._alive[0], task)))
            self._alive.rotate(-1)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        if not self._open:
            raise StopIteration
        try:
            batch = self._next()
        except BaseException:
            self.close()
            raise
        if batch is END:
            self.close()
            raise StopIteration
        if isinstance(batch, Failed):
            raise batch.error from batch.cause
        return batch if self._after is None else self._after(batch)

    def _next(self) -> Any:
        while self._waiting:
            if not self._in_order:
                self._waiting.rotate(-self._workers.first([*self._waiting], self._timeout))
            worker, ticket = self._waiting.popleft()
            batch = self._workers.result(worker, ticket, self._timeout)
            if batch is END and worker in self._alive:
                self._alive.remove(worker)
            self._refill()
            if batch is not END:
                return batch
        return END

    def close(self) -> None:
        """Let the workers go."""
        if self._open:
            self._open = False
            self._workers.finish(clean=not self._waiting)
            self._waiting.clear()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()


# --- threads -------------------------------------------------------------------------------------------------------


class ThreadWorkers:
    """Workers that are threads of this process."""

    def __init__(self, fetcher: Fetcher, infos: list[WorkerInfo], init: Callable[[int], Any] | None) -> None:
        self.count = len(infos)
        self._threads = [_Thread(fetcher, info, init) for info in infos]
        self._futures: list[Future[Any]] = []

    def submit(self, worker: int, task: Any) -> Future[Any]:
        """Ask a worker for a batch."""
        return self._threads[worker].submit(task)

    def result(self, worker: int, ticket: Future[Any], timeout: float) -> Any:
        """The batch."""
        try:
            error = ticket.exception(timeout or None)
        except FutureTimeout:
            raise RuntimeError(f"DataLoader: worker {worker} gave no batch within {timeout} seconds") from None
        if isinstance(error, _NeverBegan):
            raise error.args[0]
        return ticket.result() if error is None else Failed(error, error.__cause__)

    def first(self, tickets: list[tuple[int, Future[Any]]], timeout: float) -> int:
        """A ticket that is answered, or any after ``timeout``."""
        done, _ = wait_for([future for _, future in tickets], timeout or None, FIRST_COMPLETED)
        return next((k for k, (_, future) in enumerate(tickets) if future in done), 0)

    def finish(self, clean: bool) -> None:
        """Let the threads end after the tasks they are at."""
        self.end()

    def end(self) -> None:
        """Let the threads end after the tasks they are at."""
        for thread in self._threads:
            thread.stop()

    def handles(self) -> list[Any]:
        """The threads."""
        return [thread.thread for thread in self._threads]


class _Thread:
    """A daemon thread with a queue of tasks: one that hangs keeps neither the program nor its exit waiting."""

    def __init__(self, fetcher: Fetcher, info: WorkerInfo, init: Callable[[int], Any] | None) -> None:
        self._tasks: SimpleQueue[tuple[Future[Any], Any] | None] = SimpleQueue()
        self._stopped = threading.Event()
        arguments = (info, fetcher, init, self._tasks, self._stopped)
        self.thread = threading.Thread(target=_serve, args=arguments, name=f"loader-{info.id}", daemon=True)
        self.thread.start()

    def submit(self, task: Any) -> Future[Any]:
        """Ask for a batch."""
        future: Future[Any] = Future()
        self._tasks.put((future, task))
        return future

    def stop(self) -> None:
        """Let the thread end after the task it is at."""
        self._stopped.set()
        self._tasks.put(None)


class _NeverBegan(Exception):
    """Carries what a worker could not begin for."""


def _serve(
    info: WorkerInfo,
    fetcher: Fetcher,
    init: Callable[[int], Any] | None,
    tasks: SimpleQueue[tuple[Future[Any], Any] | None],
    stopped: threading.Event,
) -> None:
    """The body of a worker thread. A failure to start, of whatever kind, is the answer to every task."""
    become(info)
    failure: BaseException | None = None
    try:
        if init is not None:
            init(info.id)
        fetch = fetcher.start()
    except BaseException as error:
        failure = error
    while (entry := tasks.get()) is not None and not stopped.is_set():
        future, task = entry
        try:
            if failure is not None:
                raise _NeverBegan(failure)
            future.set_result(fetch(task))
        except BaseException as error:
            future.set_exception(error)
        del entry, future, task  # the batch belongs to the reader now
