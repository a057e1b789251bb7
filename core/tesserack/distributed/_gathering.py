"""Whether all ranks have come, before anything is made for them: so that those who are missing are named, to all."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta
from typing import Any

from tesserack.distributed._errors import DistError, DistStoreError

__all__ = ["GRACE", "gather"]

GRACE = 0.5  # seconds more for those who wait to be told by the first rank; and for it, until they have heard


def gather(store: Any, rank: int, size: int, timeout: timedelta) -> None:
    """Until all ranks have called. ``DistError`` when the time is over, the same on each: who did not come."""
    if rank:
        return _hear(store, rank, timeout)
    others = {k: f"there/{k}" for k in range(1, size)}
    try:
        if others:
            store.wait(list(others.values()), timeout)
    except DistStoreError:
        missing = [k for k, key in others.items() if not store.check([key])]
        if missing:
            _give_up(store, missing, size, timeout)
    store.set("verdict", "complete")


def _give_up(store: Any, missing: list[int], size: int, timeout: timedelta) -> None:
    named = ", ".join(f"rank {k}" for k in missing)
    text = (
        f"init_process_group: {named} did not come within {timeout.total_seconds():g} s (of {size} ranks; told by rank "
        "0); look at the output of what is missing, or give a longer timeout"
    )
    store.set("verdict", text)
    end = time.monotonic() + GRACE  # the store may end with this process
    while int(store.add("told", 0)) < size - 1 - len(missing) and time.monotonic() < end:
        time.sleep(0.01)
    raise DistError(text)


def _hear(store: Any, rank: int, timeout: timedelta) -> None:
    store.set(f"there/{rank}", "")
    try:
        store.wait(["verdict"], timeout + timedelta(seconds=GRACE))
    except DistStoreError:
        raise DistError(
            f"init_process_group: rank 0 did not say within {timeout.total_seconds() + GRACE:g} s that all have come "
            f"(told by rank {rank})"
        ) from None
    verdict = store.get("verdict").decode()
    if verdict != "complete":
        with contextlib.suppress(DistError):
            store.add("told", 1)
        raise DistError(verdict)
