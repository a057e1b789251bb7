"""Batches from a dataset: 6,400 rows of 64 numbers in batches of 64, an epoch with the start and end of its workers."""

from __future__ import annotations

from collections import deque
from typing import Any

from rows import Setup, row


def _loader(kind: str = "", **options: Any) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        rows = fw.utils.data.TensorDataset(fw.randn(6400, 64, device=device), fw.randint(0, 10, (6400,), device=device))
        own = {"worker_type": kind} if kind and fw.__name__ == "tesserack" else {}
        return {"deque": deque, "loader": fw.utils.data.DataLoader(rows, 64, shuffle=True, **options, **own)}

    setup.__module__ = __name__
    return setup


row("DataLoader, no workers", "deque(loader, 0)", limit=0.1)(_loader())
row("DataLoader, 2 processes", "deque(loader, 0)", limit=0.5)(_loader("process", num_workers=2))
row("DataLoader, 2 threads or processes", "deque(loader, 0)", limit=0.5)(_loader("thread", num_workers=2))
