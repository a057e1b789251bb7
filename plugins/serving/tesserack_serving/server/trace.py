"""Requests in the profiler's traces: what each waited for, and what ran for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tesserack.utils.profiler import profile, record_function

from tesserack_serving.server.board import Board

__all__ = ["Tracer"]


class Tracer:
    """Records as many steps of a worker as the board says, as a trace for Chrome's and Perfetto's viewers."""

    def __init__(self, board: Board, folder: str | None, worker: int) -> None:
        self._board, self._folder, self._worker = board, folder, worker
        self._profile: profile | None = None
        self._asked = self._left = 0

    def before_step(self) -> None:
        """Begin, if it was asked for since."""
        asked = self._board.trace
        if asked != self._asked:
            self._asked = self._left = asked
        if self._folder and self._left and self._profile is None:
            self._profile = profile(record_shapes=True)
            self._profile.start()

    def after_step(self) -> None:
        """End and write, once enough is recorded or nobody wants more."""
        if self._profile is not None and (self._left == 0 or self._board.trace == 0):
            running, self._profile = self._profile, None
            running.stop()
            path = Path(self._folder or ".") / f"worker{self._worker}-{time.time_ns()}.json"
            running.export_chrome_trace(str(path))

    @contextlib.contextmanager
    def batch(self, name: str, requests: Sequence[tuple[str, str, float]]) -> Iterator[None]:
        """A batch: its requests are ranges around it, named by their ids, with how long they waited."""
        if self._profile is None:
            yield
            return
        self._left -= self._left > 0
        now = time.monotonic()
        with contextlib.ExitStack() as ranges:
            for key, label, arrived in requests:
                ranges.enter_context(record_function(f"request {label or key} waited {1e3 * (now - arrived):.2f} ms"))
            ranges.enter_context(record_function(f"batch of {name}"))
            yield
