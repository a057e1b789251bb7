"""What each rank last did: a ring of its operations, written as JSON when one fails, or when it is asked for.

``TESSERACK_TRACE_RANKS=FOLDER`` has every rank write ``FOLDER/rank7.json`` when an operation fails and at SIGUSR2;
``tesserack trace-ranks FOLDER`` lines them up.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tesserack import _native

__all__ = ["FORMAT", "Recorder", "dump_trace", "dump_where_asked", "prepare"]

FORMAT = "tesserack-ranks-1"
FOLDER = "TESSERACK_TRACE_RANKS"


class Recorder:
    """The last operations of one group, numbered as they are called; messages are counted apart from collectives."""

    def __init__(self) -> None:
        self.ring = _native._RankRecorder()

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What is kept, oldest first, as it is now."""
        told: list[dict[str, Any]] = self.ring.told()
        return told

    def begin(self, op: str, of: str, where: str, kind: str = "collective") -> int:
        """A new entry, of an operation that is called now; returns its number for :meth:`written`."""
        serial: int = self.ring.begin(op, of, where, kind == "message")
        return serial

    @contextlib.contextmanager
    def written(self, serial: int) -> Iterator[None]:
        """Within, the operation runs."""
        self.ring.start(serial)
        try:
            yield
        except BaseException as error:
            self.ring.end(serial, str(error))
            dump_where_asked()
            raise
        self.ring.end(serial, None)


_groups: Callable[[], dict[str, Any]] = dict  # of this process; named by the world


def dump_trace(path: str | os.PathLike[str]) -> None:
    """Write what this rank last did in each of its groups, as JSON, for ``tesserack trace-ranks``.

    >>> import json, tempfile, tesserack as ts
    >>> ts.distributed.init_process_group(store=ts.distributed.HashStore(), rank=0, world_size=1)
    >>> ts.distributed.barrier()
    >>> file = tempfile.mkdtemp() + "/rank0.json"
    >>> ts.distributed.dump_trace(file)
    >>> [entry["op"] for entry in json.load(open(file))["groups"][0]["entries"]]
    ['barrier']
    >>> ts.distributed.destroy_process_group()
    """
    groups = _groups()
    first = next(iter(groups.values()), None)
    told = {
        "format": FORMAT,
        "rank": first.ranks[first.rank()] if first is not None else int(os.environ.get("RANK", "0")),
        "size": first.size() if first is not None else int(os.environ.get("WORLD_SIZE", "1")),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "written": time.time(),
        "groups": [
            {
                "name": group.group_name,
                "description": group.group_desc,
                "ranks": list(group.ranks),
                "engine": group.engine.name,
                "entries": group.recorder.entries,
            }
            for group in groups.values()
        ],
    }
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f".{place.name}.{os.getpid()}.{threading.get_ident()}")
    partial.write_text(json.dumps(told))
    partial.replace(place)


def dump_where_asked() -> None:
    """Write a trace where ``TESSERACK_TRACE_RANKS`` says so."""
    folder, first = os.environ.get(FOLDER), next(iter(_groups().values()), None)
    if folder and first is not None:
        with contextlib.suppress(OSError):  # the operation's own error matters more
            dump_trace(Path(folder) / f"rank{first.ranks[first.rank()]}.json")


def prepare(groups: Callable[[], dict[str, Any]]) -> None:
    """Whose groups are recorded. Where traces are asked for, one is written at SIGUSR2, too: of ranks that hang."""
    global _groups
    _groups = groups
    if not os.environ.get(FOLDER) or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGUSR2) in (signal.SIG_DFL, None):
        signal.signal(signal.SIGUSR2, lambda number, frame: dump_where_asked())
