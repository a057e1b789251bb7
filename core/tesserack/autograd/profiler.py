"""The profiler under its older name: ``with autograd.profiler.profile() as prof: ...; print(prof.key_averages())``."""

from __future__ import annotations

from typing import Any

from tesserack.utils.profiler import profile as _profile
from tesserack.utils.profiler import record_function
from tesserack.utils.profiler._record import _active
from tesserack.utils.profiler._table import EventList

__all__ = ["profile", "record_function"]


class profile(_profile):
    """As :class:`tesserack.profiler.profile`, with the older arguments."""

    def __init__(
        self,
        enabled: bool = True,
        *,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        acc_events: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            acc_events=acc_events,
        )
        self.enabled = enabled

    def start(self) -> None:
        """Begin, if enabled."""
        if self.enabled:
            super().start()

    def __str__(self) -> str:
        return self.table()

    @property
    def function_events(self) -> EventList:
        """Every call and range."""
        return self.events()

    def table(self, **options: Any) -> str:
        """The averages as text."""
        return self.key_averages().table(**options)

    def total_average(self) -> Any:
        """All calls as one."""
        return self.key_averages().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all calls, in microseconds."""
        return self.key_averages().self_cpu_time_total


def _is_enabled() -> bool:
    return bool(_active)


def __getattr__(name: str) -> Any:
    if name == "_is_profiler_enabled":
        return _is_enabled()
    raise AttributeError(f"module 'tesserack.autograd.profiler' has no attribute {name!r}")
