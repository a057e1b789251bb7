"""Which calls made which, of events that were made by hand or read from elsewhere."""

from __future__ import annotations

from typing import Any

__all__ = ["drop_doubles", "find_callers"]


def find_callers(events: list[Any]) -> None:
    """A call made another if that lies within it, on its thread, and in no shorter one."""
    threads: dict[Any, list[Any]] = {}
    for event in events:
        if not event.is_async:
            threads.setdefault((event.thread, event.node_id), []).append(event)
    for calls in threads.values():
        open_calls: list[Any] = []
        for event in sorted(calls, key=lambda each: (each.time_range.start, -each.time_range.end)):
            while open_calls and not _within(event, open_calls[-1]):
                open_calls.pop()
            if open_calls:
                open_calls[-1].append_cpu_child(event)
                event.set_cpu_parent(open_calls[-1])
            open_calls.append(event)


def _within(event: Any, other: Any) -> bool:
    return bool(event.time_range.start < other.time_range.end >= event.time_range.end)


def drop_doubles(events: list[Any]) -> None:
    """A call whose only call has its name is the same one, told twice."""
    while doubled := {id(event) for event in events if _is_double(event)}:
        for event in events:
            if id(event) in doubled:
                parent = event.cpu_parent
                parent.cpu_children = event.cpu_children
                parent.kernels += event.kernels
                for child in event.cpu_children:
                    child.set_cpu_parent(parent)
        events[:] = [event for event in events if id(event) not in doubled]


def _is_double(event: Any) -> bool:
    parent = event.cpu_parent
    return parent is not None and parent.name == event.name and len(parent.cpu_children) == 1
