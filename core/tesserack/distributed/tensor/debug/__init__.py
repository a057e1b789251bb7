"""What DTensors do: the collectives of a piece of code, operators that had no sharding rule."""

from __future__ import annotations

from collections import Counter

from tesserack.distributed.tensor._comm import watchers
from tesserack.distributed.tensor._dispatch import fallbacks

__all__ = ["CommDebugMode", "fallbacks"]


class CommDebugMode:
    """As a context: counts the collectives by which DTensors are brought from one placement to another.

    >>> import tesserack as ts
    >>> with CommDebugMode() as comms:
    ...     _ = ts.ones(2) + 1
    >>> comms.get_total_counts(), comms.get_comm_counts()
    (0, {})
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def _count(self, name: str) -> None:
        self._counts[name] += 1

    def __enter__(self) -> CommDebugMode:
        self._counts.clear()
        watchers.append(self._count)
        return self

    def __exit__(self, *raised: object) -> None:
        watchers.remove(self._count)

    def get_comm_counts(self) -> dict[str, int]:
        """How many of each: ``"all_gather_into_tensor"``, ``"all_reduce"``, ``"reduce_scatter_tensor"``,
        ``"all_to_all_single"``, ``"broadcast"``."""
        return dict(self._counts)

    def get_total_counts(self) -> int:
        """How many in all."""
        return sum(self._counts.values())
