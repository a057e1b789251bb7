"""Loader workers that are processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection  # a worker's end imports it, and the collector may end one in the midst of an import
import os
import pickle
import select
import signal
import socket
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

from tesserack.utils._descriptors import descriptors_for
from tesserack.utils.data import _worker_process as child
from tesserack.utils.data._fetch import END, Fetcher
from tesserack.utils.data._transport import Inbox, Message, Outbox, Unreadable, pack
from tesserack.utils.data.worker_info import WorkerInfo
from tesserack.utils.data.workers import Failed

__all__ = ["ProcessWorkers", "WorkerError", "context_of", "reap"]

_LOOK_EVERY = 2.0  # seconds
_PATIENCE = 1.0  # seconds that workers have to end by themselves, and then after SIGTERM


class WorkerError(Exception):
    """The cause of an error that came from a worker process: its traceback there, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class _Worker:
    """One process and the socket to it."""

    def __init__(self, context: Any, others: list[int], arguments: tuple[Any, ...]) -> None:
        self.id = arguments[1].id
        self.gone = False
        self.socket, theirs = socket.socketpair()
        inherited = [*others, self.socket.fileno()] if context.get_start_method() == "fork" else []
        try:
            self.process = context.Process(
                target=child.serve, args=(theirs, inherited, *arguments), name=f"loader-{self.id}", daemon=True
            )
            with warnings.catch_warnings():
                # Kernels in a forked child run in one thread, and need none of the parent's.
                warnings.filterwarnings("ignore", ".*multi-threaded", DeprecationWarning)
                self.process.start()
        except BaseException:
            self.socket.close()
            raise
        finally:
            theirs.close()
        self.socket.setblocking(False)
        self.inbox, self.outbox = Inbox(self.socket), Outbox(self.socket)

    def __str__(self) -> str:
        return f"worker {self.id} (pid {self.process.pid})"

    def how_it_ended(self) -> str:
        """For a message."""
        self.process.join(_PATIENCE)
        code = self.process.exitcode
        if code is not None and code < 0:
            hint = "; was there too little memory?" if code == -signal.SIGKILL else ""
            return f"was killed by {signal.Signals(-code).name}{hint}"
        return f"ended with status {code}"


class ProcessWorkers:
    """Several processes that fetch batches; they may serve one epoch after the other."""

    def __init__(
        self,
        fetcher: Fetcher,
        infos: list[WorkerInfo],
        init: Callable[[int], Any] | None,
        context: Any,
        persistent: bool,
    ) -> None:
        self.count = len(infos)
        self.epoch = 0
        self._persistent = persistent
        self._answers: dict[tuple[int, int], Message] = {}
        self._submitted = 0
        self._workers: list[_Worker] = []
        self._poll = select.poll()
        self._by_fd: dict[int, tuple[_Worker, bool]] = {}
        # Also at the end of the program, and in no process that was forked meanwhile.
        self._stop = weakref.finalize(self, _stop, self._workers, os.getpid())
        reap()
        try:
            with descriptors_for("the workers of a DataLoader", f"{self.count} are asked for; use fewer"):
                for info in infos:
                    others = [worker.socket.fileno() for worker in self._workers]
                    self._add(_Worker(context, others, (fetcher, info, init)))
        except BaseException:
            self._stop()
            raise
        self._handles = [worker.process for worker in self._workers]

    def _add(self, worker: _Worker) -> None:
        self._workers.append(worker)
        for fd, is_socket in ((worker.socket.fileno(), True), (worker.process.sentinel, False)):
            self._by_fd[fd] = worker, is_socket
            self._poll.register(fd, select.POLLIN)

    @property
    def usable(self) -> bool:
        """Whether the workers can serve another epoch."""
        return self._stop.alive and not any(worker.gone for worker in self._workers)

    def handles(self) -> list[Any]:
        """The processes."""
        return self._handles

    def next_epoch(self, infos: list[WorkerInfo]) -> None:
        """Begin again; answers to older tasks are dropped."""
        self.epoch += 1
        self._answers.clear()
        for worker, info in zip(self._workers, infos, strict=True):
            self._post(worker, child.NEXT_EPOCH, (0, 0), info.seed)

    def submit(self, worker: int, task: Any) -> tuple[int, int]:
        """Ask a worker for a batch."""
        ticket = self.epoch, self._submitted
        self._submitted += 1
        self._post(self._workers[worker], child.TASK, ticket, task)
        return ticket

    def _post(self, worker: _Worker, kind: int, ticket: tuple[int, int], content: Any) -> None:
        packed = pack(kind, ticket, content)
        with contextlib.suppress(OSError):  # that it is gone is told when its answer is asked for
            worker.outbox.post(packed)
            self._watch(worker)

    def _watch(self, worker: _Worker) -> None:
        """Ask to be woken where something is still to be sent, too."""
        if not worker.gone:
            more = 0 if worker.outbox.flush() else select.POLLOUT
            self._poll.modify(worker.socket.fileno(), select.POLLIN | more)

    def result(self, worker: int, ticket: tuple[int, int], timeout: float) -> Any:
        """The batch."""
        if ticket[0] != self.epoch:
            raise RuntimeError("DataLoader: persistent workers serve one iteration at a time, and a later one began")
        self._wait([(worker, ticket)], timeout)
        answer = self._answers.pop(ticket)
        if isinstance(answer.content, Unreadable):
            return answer.content.told(f"a batch of {self._workers[worker]}")
        if answer.kind in (child.FAILED, child.NEVER):
            failed = _failed(self._workers[worker], *answer.content)
            if answer.kind == child.NEVER:
                raise failed.error from failed.cause
            return failed
        return END if answer.kind == child.ENDED else answer.content

    def first(self, tickets: list[tuple[int, tuple[int, int]]], timeout: float) -> int:
        """The position of a ticket that is answered."""
        return self._wait(tickets, timeout)

    def _wait(self, tickets: list[tuple[int, tuple[int, int]]], timeout: float) -> int:
        deadline = time.monotonic() + timeout if timeout else None
        while True:
            for position, (_, ticket) in enumerate(tickets):
                if ticket in self._answers:
                    return position
            for worker in {self._workers[index] for index, _ in tickets}:
                if worker.gone:
                    raise RuntimeError(f"DataLoader: {worker} exited unexpectedly: it {worker.how_it_ended()}")
            left = _LOOK_EVERY if deadline is None else deadline - time.monotonic()
            if left <= 0:
                self._persistent = False  # one that is stuck serves no other epoch
                worker = self._workers[tickets[0][0]]
                raise RuntimeError(f"DataLoader: {worker} gave no batch within {timeout} seconds")
            self._pump(min(left, _LOOK_EVERY))

    def _pump(self, seconds: float) -> None:
        """Move what can be moved, after waiting for something."""
        events = self._poll.poll(seconds * 1000)
        # A child of a worker's may hold its descriptors open: then only the process itself tells that it ended.
        ended = [] if events else [worker for worker in self._workers if not worker.process.is_alive()]
        for fd, event in events:
            worker, is_socket = self._by_fd[fd]
            if not is_socket:
                ended.append(worker)
                continue
            if event & select.POLLOUT:
                with contextlib.suppress(OSError):
                    self._watch(worker)
            if event & ~select.POLLOUT:
                self._take(worker)
        for worker in ended:
            self._take(worker)  # what it sent before it ended
            self._drop(worker)

    def _take(self, worker: _Worker) -> None:
        try:
            while not worker.gone and (message := worker.inbox.receive()) is not None:
                if message.ticket[0] == self.epoch:
                    self._answers[message.ticket] = message
        except (EOFError, OSError):
            self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        if not worker.gone:
            worker.gone = True
            self._poll.unregister(worker.socket.fileno())
            self._poll.unregister(worker.process.sentinel)

    def finish(self, clean: bool) -> None:
        """The epoch is over: end the workers, unless they persist. Those without a task are not waited for."""
        self._answers.clear()
        if self._persistent and self.usable:
            return
        if clean and not any(worker.gone for worker in self._workers):
            self._stop.detach()
            _dismiss(self._workers)
            _leaving.extend((time.monotonic() + _PATIENCE, worker) for worker in self._workers)
            self._workers.clear()
        else:
            self._stop()

    def end(self) -> None:
        """End the workers, whether or not they were to serve another epoch."""
        self._stop()


def _failed(worker: _Worker, content: bytes | None, short: str, text: str) -> Failed:
    """The error of a worker, with its traceback there as the cause."""
    error: Any = None
    if content is not None:
        with contextlib.suppress(Exception):  # classes that cannot be made from what they keep
            error = pickle.loads(content)
    if not isinstance(error, BaseException):
        error = RuntimeError(f"DataLoader: {worker} raised {short}")
    if not isinstance(error, Exception):  # SystemExit there must not end this process
        error = RuntimeError(f"DataLoader: {worker} exited unexpectedly: {short or type(error).__name__}")
    return Failed(error, WorkerError(f"in {worker}:\n{text}"))


def _stop(workers: list[_Worker], owner: int) -> None:
    """End the processes: by asking, then by signals."""
    if os.getpid() != owner:
        return
    _dismiss(workers)
    for end in (None, "terminate", "kill"):
        deadline = time.monotonic() + _PATIENCE
        for worker in workers:
            if end is not None and worker.process.is_alive():
                getattr(worker.process, end)()
            worker.process.join(max(0.0, deadline - time.monotonic()))
        if not any(worker.process.is_alive() for worker in workers):
            break
    workers.clear()  # the descriptors of processes go with the last who holds them


def _dismiss(workers: list[_Worker]) -> None:
    """Tell workers to end, and hang up."""
    for worker in workers:
        with contextlib.suppress(OSError):
            worker.outbox.post(pack(child.STOP, (0, 0), None))
        worker.inbox.close()
        with contextlib.suppress(OSError):
            worker.socket.shutdown(socket.SHUT_RDWR)  # one that is sending does not wait for us
        worker.socket.close()


_leaving: list[tuple[float, _Worker]] = []  # told to end, with when they must have


def reap() -> None:
    """Let go of workers that ended since they were told to; kill those that should have."""
    for entry in [*_leaving]:
        deadline, worker = entry
        if worker.process._parent_pid != os.getpid():  # came along by fork
            _leaving.remove(entry)
            continue
        if worker.process.is_alive() and time.monotonic() > deadline:
            worker.process.kill()
            worker.process.join()
        if not worker.process.is_alive():
            _leaving.remove(entry)


def context_of(given: Any) -> Any:
    """A context of :mod:`multiprocessing` from a method's name, a context, or None; ``ValueError`` for other values."""
    if given is None:
        return multiprocessing.get_context()
    if isinstance(given, str):
        if given not in multiprocessing.get_all_start_methods():
            raise ValueError(
                f"DataLoader: expected multiprocessing_context to be one of {multiprocessing.get_all_start_methods()}, "
                f"got {given!r}"
            )
        return multiprocessing.get_context(given)
    if not hasattr(given, "Process") or not hasattr(given, "get_start_method"):
        raise TypeError(f"DataLoader: expected a multiprocessing context or a start method's name, got {given!r}")
    return given
