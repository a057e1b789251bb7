"""Which worker of a loader the calling thread or process is."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

__all__ = ["WorkerInfo", "become", "get_worker_info", "numpy_seed"]


class _Local(threading.local):
    info: WorkerInfo | None = None


_local = _Local()


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
    return _local.info


def numpy_seed(base_seed: int, worker_id: int) -> list[int]:
    """What NumPy's generator of a worker is seeded with, as PyTorch does: four words of its ``SeedSequence``.

    >>> numpy_seed(123, 0)
    [4253025450, 2184329087, 1599386872, 2820677907]
    """
    from numpy.random import SeedSequence

    words = [worker_id, base_seed & 0xFFFF_FFFF, base_seed >> 32 & 0xFFFF_FFFF, 0]
    return [int(word) for word in SeedSequence(words).generate_state(4)]


def become(info: WorkerInfo | None) -> None:
    """Make the calling thread a worker."""
    _local.info = info
