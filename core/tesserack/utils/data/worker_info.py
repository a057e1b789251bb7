"""Which worker of a loader the calling thread or process is."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerInfo", "become", "get_worker_info"]

_local = threading.local()


@dataclass(frozen=True)
class WorkerInfo:
    """Which worker the caller is: number ``id`` of ``num_workers``, with its own ``seed`` and view of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


def get_worker_info() -> WorkerInfo | None:
    """The worker that the calling thread or process is, or None in the main one.

    >>> get_worker_info() is None
    True
    """
    return getattr(_local, "info", None)


def become(info: WorkerInfo | None) -> None:
    """Make the calling thread a worker."""
    _local.info = info
