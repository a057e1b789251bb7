"""What a device did, and when: as backends tell it, and as profiles show it."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = ["KINDS", "Activity", "activity_tuple"]

#: In the order of the numbers of ``abi.h``.
KINDS = ("kernel", "copy", "memory", "range", "counter")


class Activity(NamedTuple):
    """Something that a device did. Times are nanoseconds of ``time.perf_counter_ns``'s clock.

    ``kind`` is ``"kernel"`` (work of the kernel call numbered ``call``), ``"copy"`` (``value`` bytes), ``"memory"``
    (``value`` bytes taken from the device, below 0: given back), ``"range"`` (between ``profile_push`` and
    ``profile_pop``) or ``"counter"`` (``value`` of what ``name`` says, at ``begin``).

    >>> Activity("kernel", "matmul", 1000, 3500, call=7).end
    3500
    """

    kind: str
    name: str
    begin: int
    end: int
    call: int = 0
    stream: int = 0
    value: int = 0


def activity_tuple(activity: Any) -> tuple[int, str, int, int, int, int, int]:
    """As the native table tells it. ``ValueError`` for an unknown kind."""
    a = Activity(*activity)
    if a.kind not in KINDS:
        raise ValueError(f"profile_collect: expected a kind among {', '.join(KINDS)}, got {a.kind!r}")
    return KINDS.index(a.kind), a.name, a.call, a.stream, a.begin, a.end, a.value
