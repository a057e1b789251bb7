"""What runs in a worker process of a loader."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import traceback
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import tesserack as ts
from tesserack.utils.data import worker_info
from tesserack.utils.data._fetch import END, Fetcher
from tesserack.utils.data._transport import Line, Unreadable, pack
from tesserack.utils.data.worker_info import WorkerInfo, numpy_seed
from tesserack.utils.importing import when_imported

__all__ = ["BATCH", "ENDED", "FAILED", "NEVER", "NEXT_EPOCH", "STOP", "TASK", "serve"]

# Kinds of messages: to the worker, and from it.
TASK, NEXT_EPOCH, STOP = range(3)
BATCH, ENDED, FAILED, NEVER = range(4)  # the last: it could not begin, and answers all tasks so


def serve(
    sock: socket.socket, others: list[int], fetcher: Fetcher, info: WorkerInfo, init: Callable[[int], Any] | None
) -> None:
    """Answer tasks until told to stop, or until the process that asks is gone. ``others`` are descriptors of the
    loader's that came along by fork: kept open, they would hide from other workers that the loader is gone."""
    for fd in others:
        os.close(fd)
    gc.freeze()  # what came along by fork is not looked through, which would copy it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the loader's process has it too, and ends its workers
    parent = os.getppid()
    line = Line(sock, lambda: os.getppid() == parent)
    try:
        _answer(line, fetcher, info, init)
    except (EOFError, OSError):
        return


def _answer(line: Line, fetcher: Fetcher, info: WorkerInfo, init: Callable[[int], Any] | None) -> None:
    failure: BaseException | None = None
    fetch: Any = None
    try:
        ts.set_num_threads(1)
        _seed(info)
        worker_info.become(info)
        if init is not None:
            init(info.id)
    except BaseException as error:
        failure = error
    started = False
    while True:
        message = line.receive()
        if message.kind == STOP:
            return
        if message.kind == NEXT_EPOCH:
            info = WorkerInfo(info.id, info.num_workers, message.content, info.dataset)
            worker_info.become(info)
            started = False
            continue
        try:
            if failure is None and not started:
                fetch, started = fetcher.start(), True
        except BaseException as error:
            failure = error
        try:
            if failure is not None:
                raise failure
            if isinstance(message.content, Unreadable):
                raise message.content.error
            batch = fetch(message.content)
            packed = pack(ENDED, message.ticket, None) if batch is END else pack(BATCH, message.ticket, batch)
            del batch
        except BaseException as error:
            packed = _told(FAILED if failure is None else NEVER, message.ticket, error)
        line.send(packed)
        del packed, message


def _seed(info: WorkerInfo) -> None:
    """Every worker its own numbers, from every source that a dataset is likely to draw on."""
    random.seed(info.seed)
    ts.manual_seed(info.seed)
    when_imported("numpy.random", lambda module: module.seed(numpy_seed(info.seed - info.id, info.id)))


def _told(kind: int, ticket: tuple[int, int], error: BaseException) -> Any:
    """An error as a message: itself if it can be pickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        content = bytes(ForkingPickler.dumps(error.with_traceback(None)))
    except Exception:
        content = None
    return pack(kind, ticket, (content, f"{type(error).__name__}: {error}", text))
