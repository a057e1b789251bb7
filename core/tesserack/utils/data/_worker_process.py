"""What runs in a worker process of a loader."""

from __future__ import annotations

import gc
import os
import random
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import tesserack as ts
from tesserack.utils.data import worker_info
from tesserack.utils.data._fetch import END, Fetcher
from tesserack.utils.data._transport import Line, pack
from tesserack.utils.data.worker_info import WorkerInfo

__all__ = ["BATCH", "ENDED", "FAILED", "NEXT_EPOCH", "STOP", "TASK", "serve"]

# Kinds of messages: to the worker, and from it.
TASK, NEXT_EPOCH, STOP = range(3)
BATCH, ENDED, FAILED = range(3)


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
        _seed(info.seed)
        worker_info.become(info)
        if init is not None:
            init(info.id)
    except BaseException as error:
        failure = error
    started = False
    while True:
        kind, ticket, content = line.receive()
        if kind == STOP:
            return
        if kind == NEXT_EPOCH:
            info = WorkerInfo(info.id, info.num_workers, content, info.dataset)
            worker_info.become(info)
            started = False
            continue
        try:
            if failure is not None:
                raise failure
            if not started:
                fetch, started = fetcher.start(), True
            batch = fetch(content)
            packed = pack((ENDED, ticket, None) if batch is END else (BATCH, ticket, batch))
            del batch
        except BaseException as error:
            packed = _told(ticket, error)
        line.send(packed)
        del packed


def _seed(seed: int) -> None:
    """Every worker its own numbers, from every source that a dataset is likely to draw on."""
    random.seed(seed)
    ts.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed([seed & 0xFFFF_FFFF, seed >> 32])


def _told(ticket: Any, error: BaseException) -> Any:
    """An error as a message: itself if it can be pickled, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        content = bytes(ForkingPickler.dumps(error.with_traceback(None)))
    except Exception:
        content = None
    return pack((FAILED, ticket, (content, f"{type(error).__name__}: {error}", text)))
