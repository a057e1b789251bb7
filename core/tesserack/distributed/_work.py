"""What a collective that runs by itself leaves with its caller."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

from tesserack.distributed._errors import DistError

__all__ = ["Runner", "Work"]


class Work:
    """A collective under way, or done. ``wait()`` returns when its tensors may be read; it raises what went wrong."""

    def __init__(self, result: Any = None) -> None:
        self._done = threading.Event()
        self._finished = False  # a moment before those who wait are told
        self._error: BaseException | None = None
        self._result = result
        self._source = -1
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def wait(self, timeout: Any = None) -> bool:
        """Until it is done; True. Raises the error of a collective that failed, ``DistError`` after ``timeout``."""
        seconds = timeout.total_seconds() if hasattr(timeout, "total_seconds") else timeout
        if not self._done.wait(seconds or None):
            raise DistError(f"wait: expected the collective to end within {seconds} s; it is still under way")
        if self._error is not None:
            raise self._error
        return True

    def is_completed(self) -> bool:
        """Whether it is done or has failed."""
        return self._done.is_set()

    def is_success(self) -> bool:
        """Whether it is done and has not failed."""
        return self._done.is_set() and self._error is None

    def exception(self) -> BaseException | None:
        """What it failed with."""
        return self._error

    def result(self) -> Any:
        """The tensors that it fills."""
        self.wait()
        return self._result

    def synchronize(self) -> None:
        """As :meth:`wait`."""
        self.wait()

    def source_rank(self) -> int:
        """Of a receive from any rank: whom it was from."""
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Any:
        """A :class:`tesserack.futures.Future` of the list of tensors."""
        from tesserack.utils.futures import Future

        future: Any = Future()

        def tell() -> None:
            if self._error is None:
                future.set_result(self._result)
            else:
                future.set_exception(self._error)

        with self._lock:
            done = self._finished
            if not done:
                self._callbacks.append(tell)
        if done:
            tell()
        return future

    def _run(self, job: Callable[[], Any]) -> None:
        self._outcome([job]).set()

    def _outcome(self, jobs: list[Callable[[], Any]]) -> threading.Event:
        """Do the one job of a list, which is left empty; returns what tells those who wait."""
        try:
            given = jobs.pop()()
            if isinstance(given, int) and not isinstance(given, bool):
                self._source = given
        except BaseException as error:
            self._error = error
        with self._lock:
            self._finished = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        return self._done


class Runner:
    """A thread that does jobs in the order in which they are given, from the first of them until ``close``."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[tuple[Work, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._under_way = 0
        self._lock = threading.Lock()

    @property
    def idle(self) -> bool:
        """Whether everything that was given is done."""
        return self._under_way == 0

    def submit(self, job: Callable[[], Any], result: Any = None) -> Work:
        """Queue a job; its tensors are kept alive until it is done."""
        work = Work(result)
        with self._lock:
            self._under_way += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
        self._jobs.put((work, job))
        return work

    def _loop(self) -> None:
        while (entry := self._jobs.get()) is not None:
            work, job = entry
            jobs = [job]
            del entry, job
            done = work._outcome(jobs)
            # Nothing of the job is held any more when its caller goes on: memory is given back by those who took it.
            del work
            with self._lock:
                self._under_way -= 1
            done.set()

    def close(self) -> None:
        """End the thread once all jobs are done."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            self._jobs.put(None)
            thread.join(timeout=5)
