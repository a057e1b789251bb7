"""Events and the counters that tell them."""

from __future__ import annotations

import datetime
import itertools
from typing import Any

import pytest
from tesserack import monitor
from tesserack.monitor import Aggregation, Event, Stat

HOUR = datetime.timedelta(hours=1)


@pytest.fixture
def heard() -> Any:
    events: list[Event] = []
    handle = monitor.register_event_handler(events.append)
    yield events
    monitor.unregister_event_handler(handle)


def test_handlers_hear_events_until_they_are_unregistered() -> None:
    events: list[Event] = []
    handle = monitor.register_event_handler(events.append)
    event = Event("mine", datetime.datetime.now(), {"text": "a", "number": 1, "other": 2.5})
    monitor.log_event(event)
    monitor.unregister_event_handler(handle)
    monitor.unregister_event_handler(handle)
    monitor.log_event(event)
    assert events == [event]
    assert event.data == {"text": "a", "number": 1, "other": 2.5}
    for wrong in ({"a": [1]}, {1: 2}):
        with pytest.raises(TypeError, match="texts and numbers"):
            Event("mine", datetime.datetime.now(), wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="function"):
        monitor.register_event_handler(3)  # type: ignore[arg-type]


def test_a_full_window_is_told_at_once(heard: list[Event]) -> None:
    stat = Stat("s", tuple(Aggregation), HOUR, 3)
    stat._now = itertools.repeat(stat._place).__next__  # type: ignore[method-assign]
    stat.add(1)
    stat.add(5)
    assert (stat.count, set(stat.get().values())) == (2, {0.0})
    stat.add(3)
    assert stat.count == 0
    stat.add(100)
    assert stat.count == 0
    want = {"value": 3.0, "mean": 3.0, "count": 3.0, "sum": 9.0, "max": 5.0, "min": 1.0}
    assert [(event.name, event.data) for event in heard] == [
        (monitor.STAT_EVENT, {f"s.{name}": value for name, value in want.items()})
    ]
    assert stat.get() == {Aggregation[name.upper()]: value for name, value in want.items()}


def test_windows_are_told_when_the_next_value_comes(heard: list[Event]) -> None:
    stat = Stat("s", [Aggregation.SUM], HOUR)
    times = iter([7, 7, 8, 9])
    stat._place, stat._now = 7, times.__next__  # type: ignore[method-assign]
    for value in (1, 2, 4, 8):
        stat.add(value)
    assert [event.data for event in heard] == [{"s.sum": 3.0}, {"s.sum": 4.0}]
    del stat
    assert [event.data for event in heard][2:] == [{"s.sum": 8.0}]
    with pytest.raises(ValueError, match="window"):
        Stat("s", [], datetime.timedelta(0))
    with pytest.raises(TypeError, match="aggregations"):
        Stat("s", ["sum"], HOUR)  # type: ignore[list-item]


def test_stats_are_written_as_scalars() -> None:
    written: list[Any] = []

    class Writer:
        def add_scalar(self, *args: Any, walltime: float) -> None:
            written.append((*args, walltime > 0))

    handler = monitor.TensorboardEventHandler(Writer())
    handler(Event(monitor.STAT_EVENT, datetime.datetime.now(), {"loss.sum": 2.0}))
    handler(Event("another", datetime.datetime.now(), {"loss.sum": 3.0}))
    assert written == [("loss.sum", 2.0, True)]
