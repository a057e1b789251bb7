"""``spawn``: one function in several processes, whose errors arrive here."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

__all__ = [
    "ProcessContext",
    "ProcessException",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process of :func:`spawn` failed: number ``error_index``, with the process id ``error_pid``."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.pid = error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid)

    @property
    def error_pid(self) -> int:
        """The process id."""
        return self.pid


class ProcessRaisedException(ProcessException):
    """The function raised; the message holds the traceback."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg, error_index, error_pid)


class ProcessExitedException(ProcessException):
    """The process ended with a status or by a signal."""

    def __init__(
        self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None
    ) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.pid, self.exit_code, self.signal_name)


def _body(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Connection) -> None:
    try:
        fn(index, *args)
    except KeyboardInterrupt:
        pass  # the parent has it too
    except Exception:
        errors.send(traceback.format_exc())
        sys.exit(1)


class ProcessContext:
    """Processes that were started together: :meth:`join` waits for them."""

    def __init__(self, processes: list[Any], error_files: list[Connection]) -> None:
        self.processes = processes
        self._errors = error_files
        self._running = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until one ends: True once all ended well.

        If one fails, the others are ended, killed after ``grace_period`` seconds, and its error raised:
        :class:`ProcessRaisedException` or :class:`ProcessExitedException`.
        """
        if not self._running:
            return True
        failed = None
        for sentinel in wait([*self._running], timeout=timeout):
            index = self._running.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0 and failed is None:
                failed = index
        if failed is None:
            return not self._running
        self._end(grace_period)
        self._raise(failed)
        return False

    def _end(self, grace_period: float | None) -> None:
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        deadline = time.monotonic() + (30 if grace_period is None else grace_period)
        for process in self.processes:
            process.join(max(0.0, deadline - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()
        self._running.clear()

    def _raise(self, index: int) -> None:
        process = self.processes[index]
        with contextlib.suppress(EOFError):
            told = self._errors[index].recv()
            raise ProcessRaisedException(f"spawn: process {index} ended with this error:\n\n{told}", index, process.pid)
        code = process.exitcode
        name = signal.Signals(-code).name if code < 0 else None
        how = f"was ended by the signal {name}" if name else f"ended with status {code}"
        raise ProcessExitedException(f"spawn: process {index} {how}", index, process.pid, code, name)


class SpawnContext(ProcessContext):
    """What :func:`spawn` returns."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """:func:`spawn` with a start method: ``"spawn"``, ``"fork"`` or ``"forkserver"``."""
    context = multiprocessing.get_context(start_method)
    processes: list[Any] = []
    errors: list[Connection] = []
    try:
        for index in range(nprocs):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_body, args=(fn, index, args, sender), daemon=daemon)  # type: ignore[attr-defined]
            process.start()
            sender.close()
            processes.append(process)
            errors.append(receiver)
    except BaseException:
        for process in processes:
            process.terminate()
            process.join()
        raise
    running = SpawnContext(processes, errors)
    if not join:
        return running
    while not running.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run ``fn(index, *args)`` in ``nprocs`` new processes.

    ``fn`` must be importable: the function of a module, or of a program's ``__main__``. Waits for all, or returns a
    :class:`ProcessContext` with ``join=False``. If one fails, the others are ended and its error is raised:
    :class:`ProcessRaisedException` with the traceback, or :class:`ProcessExitedException`.

    >>> context = spawn(print, nprocs=2, join=False)
    >>> while not context.join():
    ...     pass
    """
    return start_processes(fn, args, nprocs, join, daemon, start_method)
