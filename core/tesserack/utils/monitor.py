"""Events of a program, and counters that tell their sums as events: who listens is registered, with PyTorch's names."""

from __future__ import annotations

import contextlib
import datetime
import enum
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = [
    "STAT_EVENT", "Aggregation", "Event", "EventHandlerHandle", "Stat", "TensorboardEventHandler", "data_value_t",
    "log_event", "register_event_handler", "unregister_event_handler",
]  # fmt: skip

STAT_EVENT = "torch.monitor.Stat"
data_value_t = str | float | int | bool


class Event:
    """Something that happened: what kind of thing, when, and texts and numbers about it."""

    def __init__(self, name: str, timestamp: datetime.datetime, data: Mapping[str, data_value_t]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime.datetime):
            raise TypeError(f"Event: expected a name and a datetime, got {name!r} and {timestamp!r}")
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, (str, int, float)):
                raise TypeError(f"Event: expected texts and numbers by name, got {key!r}: {value!r}")
        self.name = name
        self.timestamp = timestamp
        self.data: dict[str, Any] = dict(data)


class EventHandlerHandle:
    """What :func:`unregister_event_handler` takes."""


_handlers: dict[EventHandlerHandle, Callable[[Event], Any]] = {}


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Have ``callback`` called with every event, at once, until it is unregistered.

    >>> import datetime
    >>> handle = register_event_handler(lambda event: print(event.name, event.data))
    >>> log_event(Event("epoch", datetime.datetime.now(), {"loss": 0.5}))
    epoch {'loss': 0.5}
    >>> unregister_event_handler(handle)
    """
    if not callable(callback):
        raise TypeError(f"register_event_handler: expected a function, got {callback!r}")
    handle = EventHandlerHandle()
    _handlers[handle] = callback
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """End that."""
    _handlers.pop(handler, None)


def log_event(event: Event) -> None:
    """Call every handler with an event."""
    for handler in [*_handlers.values()]:
        handler(event)


class Aggregation(enum.Enum):
    """What a :class:`Stat` tells of the values of a window: the last one, their mean, how many, their sum..."""

    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6


VALUE, MEAN, COUNT, SUM, MAX, MIN = Aggregation
_TOLD: dict[Aggregation, Callable[[list[float]], float]] = {
    VALUE: lambda values: values[-1],
    MEAN: lambda values: sum(values) / len(values),
    COUNT: lambda values: float(len(values)),
    SUM: lambda values: float(sum(values)),
    MAX: max,
    MIN: min,
}


class Stat:
    """Values of windows of time, each told as an event once it is over, when the next value comes, or once
    ``max_samples`` are in it: further ones are then left out until the next window.

    >>> import datetime
    >>> stat = Stat("loss", [Aggregation.MEAN, Aggregation.COUNT], datetime.timedelta(hours=1), max_samples=2)
    >>> for value in (1.0, 2.0, 30.0):
    ...     stat.add(value)
    >>> stat.get()
    {<Aggregation.MEAN: 2>: 1.5, <Aggregation.COUNT: 3>: 2.0}
    """

    def __init__(
        self,
        name: str,
        aggregations: Iterable[Aggregation],
        window_size: datetime.timedelta,
        max_samples: int | None = None,
    ) -> None:
        self._kinds = [*dict.fromkeys(aggregations)]
        if not all(isinstance(kind, Aggregation) for kind in self._kinds):
            raise TypeError(f"Stat: expected aggregations, got {self._kinds}")
        if window_size <= datetime.timedelta(0):
            raise ValueError(f"Stat: expected a window of some time, got {window_size}")
        self.name = name
        self._most = max_samples
        self._window = window_size.total_seconds()
        self._values: list[float] = []
        self._last = dict.fromkeys(self._kinds, 0.0)
        self._place, self._full = self._now(), False

    def _now(self) -> int:
        return int(time.time() / self._window)

    @property
    def count(self) -> int:
        """How many values are in the window that goes on."""
        return len(self._values)

    def get(self) -> dict[Aggregation, float]:
        """What was told last; zeros before that."""
        return dict(self._last)

    def add(self, v: float) -> None:
        """A value, now."""
        if (now := self._now()) != self._place:
            self._tell()
            self._place, self._full = now, False
        if not self._full:
            self._values.append(float(v))
            if self._most is not None and len(self._values) >= self._most:
                self._full = True
                self._tell()

    def _tell(self) -> None:
        if not self._values:
            return
        self._last = {kind: _TOLD[kind](self._values) for kind in self._kinds}
        self._values = []
        data = {f"{self.name}.{kind.name.lower()}": value for kind, value in self._last.items()}
        log_event(Event(STAT_EVENT, datetime.datetime.now(), data))

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # one that could not be made, or the interpreter ends
            self._tell()


class TensorboardEventHandler:
    """A handler that writes the events of every :class:`Stat` to a ``SummaryWriter``."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
