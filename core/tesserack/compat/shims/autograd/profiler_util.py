"""``torch.autograd.profiler_util``: events of a profile, made by hand or recorded, and what they add up to.

Times are microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tesserack.utils.profiler import _events
from tesserack.utils.profiler._events import FormattedTimesMixin, FunctionEvent, FunctionEventAvg, Interval, Kernel
from tesserack.utils.profiler._table import EventList

__all__ = [
    "EventList",
    "FormattedTimesMixin",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "MemRecordsAcc",
    "StringTable",
]

MEMORY_EVENT_NAME = "[memory]"
OUT_OF_MEMORY_EVENT_NAME = "[OutOfMemory]"
_format_time, _attr_formatter = _events.time_text, _events._attr_formatter


def _format_time_share(time_us: float, total_time_us: float) -> str:
    return f"{time_us * 100.0 / total_time_us:.2f}%" if total_time_us else "NaN"


def _format_memory(nbytes: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


class StringTable(defaultdict[str, str]):
    """Names as they are shown; those not set are themselves."""

    def __missing__(self, key: str) -> str:
        self[key] = key
        return key


class MemRecordsAcc:
    """Records of memory by time: of each, the first entry has ``start_ns()``."""

    def __init__(self, mem_records: Iterable[Any]) -> None:
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())

    def in_interval(self, start_ns: float, end_ns: float) -> Iterator[Any]:
        """Those from a time to another, in nanoseconds, both included."""
        for record in self._records:
            if start_ns <= record[0].start_ns() <= end_ns:
                yield record
