"""Event files, one record after another."""

from __future__ import annotations

import os
import socket
import time

from tesserack.utils.tensorboard._records import event, field_int, record

__all__ = ["FileWriter"]

_VERSION = "brain.Event:2"


class FileWriter:
    """One event file in a folder."""

    _count = 0

    def __init__(
        self, log_dir: str | os.PathLike[str], max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""
    ) -> None:
        folder = os.fspath(log_dir)
        os.makedirs(folder, exist_ok=True)
        FileWriter._count += 1
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{FileWriter._count}"
        self.path = os.path.join(folder, name + filename_suffix)
        self._log_dir, self._flush_secs, self._flushed = folder, flush_secs, now
        self._file = open(self.path, "wb")  # noqa: SIM115
        self._file.write(record(event(now, None, version=_VERSION)))
        self._file.flush()

    def get_logdir(self) -> str:
        """The folder."""
        return self._log_dir

    def add_summary(self, summary: bytes, global_step: int | None = None, walltime: float | None = None) -> None:
        """Write a summary message."""
        now = time.time()
        step = int(global_step) if global_step is not None else 0
        self._file.write(record(event(now if walltime is None else walltime, step, summary=summary)))
        if now - self._flushed > self._flush_secs:
            self.flush()

    def add_graph(self, graph: bytes, walltime: float | None = None) -> None:
        """Write a graph."""
        self._file.write(record(event(time.time() if walltime is None else walltime, None, graph=graph)))

    def purge_from(self, step: int) -> None:
        """Have readers drop what was written for this step and later ones before."""
        self._file.write(record(event(time.time(), step, version=_VERSION)))
        self._file.write(record(event(time.time(), step, session=field_int(1, 1))))  # 1: START

    def flush(self) -> None:
        """Write out what is buffered."""
        self._flushed = time.time()
        self._file.flush()

    def close(self) -> None:
        """End the file."""
        self._file.close()

    def reopen(self) -> None:
        """Go on with the file after :meth:`close`."""
        if self._file.closed:
            self._file = open(self.path, "ab")  # noqa: SIM115
