"""Meeting at a store."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

__all__ = ["barrier", "get_all", "synchronize"]


def get_all(store: Any, rank: int, prefix: str, world_size: int) -> list[bytes]:
    """The values that ranks have put under ``prefix``, in order, waited for."""
    found: list[bytes] = store.multi_get([f"{prefix}{other}" for other in range(world_size)])
    return found


def synchronize(
    store: Any, data: bytes, rank: int, world_size: int, key_prefix: str, timeout: float = 300
) -> list[bytes]:
    """Every rank's data, in order; all wait for the last. ``DistStoreError`` when the time is over."""
    keys = [f"{key_prefix}{other}" for other in range(world_size)]
    store.set(keys[rank], data)
    store.wait(keys, timedelta(seconds=timeout))
    return get_all(store, rank, key_prefix, world_size)


def barrier(
    store: Any,
    world_size: int,
    key_prefix: str,
    barrier_timeout: float = 300,
    rank: int | None = None,
    rank_tracing_decoder: Any = None,
    trace_timeout: float = 10,
) -> None:
    """Wait until as many ranks have come. ``DistStoreError`` when the time is over."""
    last = f"{key_prefix}/last_member"
    if store.add(f"{key_prefix}/num_members", 1) == world_size:
        store.set(last, "<val_ignored>")
    store.wait([last], timedelta(seconds=barrier_timeout))
