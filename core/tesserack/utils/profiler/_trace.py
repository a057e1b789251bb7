"""What devices did, as records of Chrome's trace format: a process for each device, a thread for each stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tesserack.utils.profiler._record import DeviceEvent, KernelEvent

__all__ = ["device_records"]

_CATEGORIES = {"kernel": "kernel", "copy": "gpu_memcpy", "range": "gpu_user_annotation"}


def device_records(events: list[DeviceEvent], calls: Mapping[int, KernelEvent], process: int) -> list[dict[str, Any]]:
    """Of everything that devices told. ``process``: the number of the host's own; kernels are tied to their calls."""
    numbers = {device: process + 1 + k for k, device in enumerate(sorted({event.device for event in events}))}
    records: list[dict[str, Any]] = []
    for device, number in numbers.items():
        records.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": device}})
        for stream in sorted({event.stream for event in events if event.device == device}):
            label = f"stream {stream:#x}" if stream else "default stream"
            records.append({"ph": "M", "name": "thread_name", "pid": number, "tid": stream, "args": {"name": label}})
    held: dict[str, int] = {}
    for event in events:
        records.extend(_of(event, numbers[event.device], held))
        if event.kind == "kernel" and event.call in calls:
            records.extend(_arrow(event, calls[event.call], numbers[event.device], process))
    return records


def _of(event: DeviceEvent, number: int, held: dict[str, int]) -> Iterator[dict[str, Any]]:
    place = {"name": event.name, "pid": number, "tid": event.stream, "ts": event.start}
    if event.kind in _CATEGORIES:
        arguments = {"Bytes": event.value} if event.kind == "copy" else {"Call": event.call} if event.call else {}
        duration = event.end - event.start
        yield {**place, "ph": "X", "cat": _CATEGORIES[event.kind], "dur": duration, "args": arguments}
        return
    value = event.value
    if event.kind == "memory":
        value = held[event.device] = held.get(event.device, 0) + event.value
        place["name"] = "memory"
    yield {**place, "ph": "C", "args": {"value": value}}


def _arrow(event: DeviceEvent, call: KernelEvent, number: int, process: int) -> Iterator[dict[str, Any]]:
    tie = {"cat": "ac2g", "name": "ac2g", "id": event.call}
    yield {**tie, "ph": "s", "pid": process, "tid": call.thread, "ts": call.start}
    yield {**tie, "ph": "f", "bp": "e", "pid": number, "tid": event.stream, "ts": event.start}
