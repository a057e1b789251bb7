"""What devices did, and when: times of OpenCL's events on the host's clock."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pyopencl as cl
from tesserack.backends import Activity
from tesserack_kernelgen import launcher

if TYPE_CHECKING:
    from tesserack_opencl.backend import OpenCL

__all__ = ["Profiles"]

_TRIALS = 8  # looks at both clocks, of which the closest counts


class _Noted(NamedTuple):
    """Something that was queued, and its event."""

    kind: str
    name: str
    event: Any
    stream: int
    value: int = 0
    until: Any = None  # of a range: what was queued at its end


class Profiles:
    """The profiles of a backend's devices."""

    def __init__(self, backend: OpenCL) -> None:
        self._backend = backend
        self._lock = threading.Lock()
        self._noted: dict[int, list[_Noted]] = {}  # by device, of those that are profiled
        self._ranges: dict[tuple[int, int], list[tuple[str, Any]]] = {}  # begun, by device and stream

    def start(self, device: int) -> None:
        """Work that is queued from now on is noted."""
        with self._lock:
            self._noted[device] = []
            launcher.time_launches("opencl", True)

    def stop(self, device: int) -> None:
        """Nothing is noted any more, and what was not collected is forgotten."""
        with self._lock:
            self._noted.pop(device, None)
            launcher.time_launches("opencl", bool(self._noted))
        for launch in launcher.timed_launches("opencl", device):
            _owned(launch.begin)
        self._ranges = {key: begun for key, begun in self._ranges.items() if key[0] != device}

    def note_copy(self, device: int, name: str, event: Any, stream: Any, nbytes: int) -> None:
        """A copy that was queued, if the device is profiled."""
        noted = self._noted.get(device)
        if noted is not None:
            bare = cl.Event.from_int_ptr(event.int_ptr)  # PyOpenCL's own holds the memory of the host
            noted.append(_Noted("copy", name, bare, stream or 0, nbytes))

    def push(self, device: int, name: str, stream: Any) -> None:
        """A range begins with what is queued next."""
        marker = cl.enqueue_marker(self._backend.queue(device, stream))
        self._ranges.setdefault((device, stream or 0), []).append((name, marker))

    def pop(self, device: int, stream: Any) -> None:
        """The innermost range ends with what was queued last."""
        begun = self._ranges.get((device, stream or 0))
        noted = self._noted.get(device)
        if not begun or noted is None:
            return
        name, first = begun.pop()
        last = cl.enqueue_marker(self._backend.queue(device, stream))
        noted.append(_Noted("range", name, first, stream or 0, until=last))

    def collect(self, device: int) -> list[Activity]:
        """All that was noted since the last time, once it is done."""
        with self._lock:
            noted, self._noted[device] = self._noted.get(device, []), []
        told = []
        later = self._ahead(device)
        for launch in launcher.timed_launches("opencl", device):
            event = _owned(launch.begin)
            event.wait()
            begin, end = event.profile.start + later, event.profile.end + later
            told.append(Activity("kernel", launch.op, begin, end, launch.number, launch.stream))
        for one in noted:
            begin, end = _span(one)
            told.append(Activity(one.kind, one.name, begin + later, end + later, 0, one.stream, one.value))
        return told

    def _ahead(self, device: int) -> int:
        """Nanoseconds by which the host's clock is ahead of that of the device's events."""
        queue = self._backend.queue(device, None)
        queue.finish()
        found = []
        for _ in range(_TRIALS):
            before = time.perf_counter_ns()
            event = cl.enqueue_marker(queue)
            after = time.perf_counter_ns()
            event.wait()
            found.append((after - before, (before + after) // 2 - int(event.profile.queued)))
        return min(found)[1]


def _owned(address: int) -> Any:
    """The event of a launch, which is released when Python forgets it."""
    return cl.Event.from_int_ptr(address, retain=False)


def _span(one: _Noted) -> tuple[int, int]:
    one.event.wait()
    if one.until is None:
        return one.event.profile.start, one.event.profile.end
    one.until.wait()
    return one.event.profile.end, one.until.profile.end
