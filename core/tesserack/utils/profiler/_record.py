"""Writing down what runs: operators by way of their dispatch key, and ranges that programs name."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import sys
import threading
import time
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tesserack import _native
from tesserack._native import Tensor
from tesserack.backends._activity import KINDS
from tesserack.library import dispatch
from tesserack.utils import _ranges
from tesserack.utils.profiler._events import FunctionEvent, Interval
from tesserack.utils.profiler._flops import POINTWISE, PRODUCTS

__all__ = [
    "DeviceEvent",
    "Event",
    "KernelEvent",
    "Recorder",
    "communicating",
    "gather_devices",
    "gather_kernels",
    "record_function",
    "recording",
]


_PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep


_numbers = itertools.count(1)  # of events


class Event(FunctionEvent):
    """One call of an operator, or one named range. Times are in microseconds."""

    __slots__ = (
        *("children", "device", "device_own", "end", "is_async", "memory", "name", "number", "own", "parent", "shapes"),
        *("stack", "start", "thread", "user"),
    )

    start: float
    end: float

    def __init__(self, name: str, start: float, thread: int, user: bool) -> None:
        self.name, self.start, self.thread, self.user = name, start, thread, user
        self.number = next(_numbers)
        self.parent: weakref.ref[Event] | None = None  # who holds it
        self.end = start
        self.own = self.device_own = 0.0
        self.children: list[Event] = []
        self.shapes: list[list[int]] = []
        self.stack: list[str] = []
        self.memory = 0
        self.device = ""
        self.is_async = False  # it may go on beside what the program does

    @property
    def cpu_time_total(self) -> float:
        """From beginning to end."""
        return self.end - self.start

    @property
    def self_cpu_time_total(self) -> float:
        """The time in which it was the innermost of those open: over all events of a thread, the time recorded."""
        return self.own

    @property
    def device_time_total(self) -> float:
        """What devices took for the kernels called within it, by their own clocks; 0 where they do not tell."""
        within: float = sum(child.device_time_total for child in self.children)
        return self.device_own + within

    @property
    def self_device_time_total(self) -> float:
        """The same without the calls inside."""
        return self.device_own

    @property
    def self_memory(self) -> int:
        """Bytes that stay allocated, without those of the calls inside."""
        return self.memory - sum(child.memory for child in self.children)

    # What PyTorch calls them.
    count, is_remote, is_legacy, sequence_nr, node_id = 1, False, False, -1, -1
    device_index, device_memory_usage, self_device_memory_usage, flops, use_device = 0, 0, 0, 0, None
    fwd_thread = None  # of what runs backward: there is no other thread for it
    id = property(lambda self: self.number)
    trace_name = property(lambda self: self.name)
    scope = property(lambda self: 7 if self.user else 0)  # RecordScope: USER_SCOPE, FUNCTION
    kernels = property(lambda self: [])
    concrete_inputs = property(lambda self: [])
    cpu_children = property(lambda self: self.children)
    device_type = property(lambda self: self.device)
    cpu_memory_usage = property(lambda self: self.memory)
    self_cpu_memory_usage = property(lambda self: self.self_memory)
    input_shapes = property(lambda self: self.shapes)
    is_user_annotation = property(lambda self: self.user)
    time_range = property(lambda self: Interval(self.start, self.end))

    @property
    def cpu_parent(self) -> Event | None:
        """The event inside which it began; None for the outermost."""
        return None if self.parent is None else self.parent()


class KernelEvent(NamedTuple):
    """One call of a backend's kernel, in any thread. On an asynchronous device the times are those of queueing it."""

    name: str
    device: str
    thread: int
    start: float  # microseconds, as those of events
    end: float
    elements: int
    number: int = 0  # what a device tells of the call comes with it


class DeviceEvent(NamedTuple):
    """Something that a device did, by its own account: see :class:`tesserack.backends.Activity`."""

    kind: str
    name: str
    device: str
    stream: int
    start: float  # microseconds, as those of events
    end: float
    value: int
    call: int  # number of the KernelEvent that it is work of; 0: of none


class Recorder:
    """Events of the threads that enter it, and the kernels of all threads."""

    def __init__(
        self,
        shapes: bool = False,
        memory: bool = False,
        stacks: bool = False,
        flops: bool = False,
        namespace: str = "",
    ) -> None:
        self.shapes, self.memory, self.stacks, self.flops = shapes, memory, stacks, flops
        self.namespace = namespace  # written before the names of built-in operators
        self.events: list[Event] = []
        self.kernels: list[KernelEvent] = []
        self.devices: list[DeviceEvent] = []
        self._lines: dict[int, _Line] = {}

    def begin(self, name: str, user: bool = False) -> Event:
        """Begin an event inside the ones that this thread is in."""
        thread = threading.get_ident()
        line = self._lines.setdefault(thread, _Line())
        event = Event(name, line.charge(), thread, user)
        if line.open:
            line.open[-1].children.append(event)
            event.parent = weakref.ref(line.open[-1])
        line.open.append(event)
        self.events.append(event)
        if self.stacks:
            event.stack = _stack()
        if self.memory:
            event.memory = -_allocated()
        return event

    def finish(self, event: Event) -> None:
        """End an event; the ones begun inside it that are still open stay so."""
        if self.memory:
            event.memory += _allocated()
        line = self._lines[event.thread]
        event.end = line.charge()
        line.open.remove(event)

    def count(self, event: Event, call: Any, args: Any) -> Any:
        """Make an operator's call and note its operations, unless they are part of a call that is being counted."""
        line, name = self._lines[event.thread], call.op.partition(".")[0]
        rule = None if line.counting else PRODUCTS.get(name) or POINTWISE.get(name)
        if rule is None:
            return call.redispatch(*args)
        line.counting = True
        try:
            result = call.redispatch(*args)
        finally:
            line.counting = False
        event.flops = rule(args, result)
        return result

    def charge_devices(self) -> None:
        """Give what devices took for kernels to the innermost call that each kernel was called in."""
        took: dict[int, float] = {}
        for done in self.devices:
            if done.kind == "kernel" and done.call:
                took[done.call] = took.get(done.call, 0.0) + done.end - done.start
        threads: dict[int, list[Event]] = {}
        for event in self.events:
            event.device_own = 0.0
            threads.setdefault(event.thread, []).append(event)
        for thread, events in threads.items():
            calls = [k for k in self.kernels if k.thread == thread and k.number in took]
            _charge(events, sorted((call.start, took[call.number]) for call in calls))

    def finish_all(self) -> None:
        """End what is open."""
        for line in self._lines.values():
            while line.open:
                self.finish(line.open[-1])


def _charge(events: list[Event], work: list[tuple[float, float]]) -> None:
    """Give each time, of work that was called for at a moment, to the innermost event that was open then."""
    waiting, inside = deque(events), list[Event]()
    for moment, took in work:
        while waiting and waiting[0].start <= moment:
            while inside and inside[-1].end < waiting[0].start:
                inside.pop()
            inside.append(waiting.popleft())
        while inside and inside[-1].end < moment:
            inside.pop()
        if inside:
            inside[-1].device_own += took


class _Line:
    """What is open in one thread, and since when the innermost of it has been."""

    def __init__(self) -> None:
        self.open: list[Event] = []
        self.last = 0.0
        self.counting = False  # the operations of a call that is open

    def charge(self) -> float:
        """Give the time since the last event to the innermost one; what time it is."""
        now = time.perf_counter_ns() / 1e3
        if self.open:
            self.open[-1].own += now - self.last
        self.last = now
        return now


def _stack() -> list[str]:
    """Where the program is, the innermost place first; frames of this package are left out."""
    found: list[str] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return found


def _allocated() -> int:
    return int(_native.memory_stats(None)["allocated"])


_active: list[Recorder] = []
_installed: list[dispatch.Key] = []


def _key() -> dispatch.Key:
    """The key that operators come to while something is recorded."""
    if not _installed:
        key = dispatch.get_key("Profiler")
        key.fallback(_observe)
        _installed.append(key)
    return _installed[0]


def _observe(call: Any, *args: Any) -> Any:
    if not _active:
        return call.redispatch(*args)
    recorder = _active[-1]
    name = call.op.partition(".")[0]
    event = recorder.begin(name if "::" in name else recorder.namespace + name)
    tensors = [a for a in args if isinstance(a, Tensor)]
    if recorder.shapes:
        event.shapes = [_shape(a) for a in args]
    if tensors:
        event.device = tensors[0].device.type
    try:
        return recorder.count(event, call, args) if recorder.flops else call.redispatch(*args)
    finally:
        recorder.finish(event)


def _shape(argument: Any) -> list[int]:
    # What is no tensor has none, nor have nested tensors whose rows differ.
    if not isinstance(argument, Tensor) or (argument.is_nested and argument.layout is _native.strided):
        return []
    return [*argument.shape]


@contextlib.contextmanager
def recording(recorder: Recorder) -> Iterator[Recorder]:
    """Within it, this thread's operators and ranges are written down."""
    if not _active:
        _native._start_device_profile()  # which may fail: then nothing is recorded
        _native._start_kernel_profile()
    _active.append(recorder)
    _ranges.named.append(record_function)
    try:
        with _key().enabled():
            yield recorder
    finally:
        recorder.finish_all()
        gather_kernels()
        try:
            gather_devices()
        finally:
            _active.remove(recorder)
            _ranges.named.pop()
            if not _active:
                _native._stop_kernel_profile()
                _native._stop_device_profile()


@contextlib.contextmanager
def communicating(name: str, shapes: list[list[int]]) -> Iterator[None]:
    """Within, in whichever thread, a collective goes on: an event of its own beside those of the program."""
    if not _active:
        yield
        return
    recorder = _active[-1]
    event = Event(name, time.perf_counter_ns() / 1e3, threading.get_ident(), user=False)
    event.is_async = True
    if recorder.shapes:
        event.shapes = shapes
    recorder.events.append(event)
    try:
        yield
    finally:
        event.end = time.perf_counter_ns() / 1e3
        event.own = event.end - event.start


def gather_kernels() -> None:
    """Hand the kernels seen so far to whoever records."""
    seen = _native._take_kernel_events() if _active else []
    kernels = [
        KernelEvent(op, on, thread, start / 1e3, end / 1e3, n, number) for op, on, thread, start, end, n, number in seen
    ]
    for recorder in _active:
        recorder.kernels.extend(kernels)


def gather_devices() -> None:
    """Wait for the devices that tell what they do, and hand that to whoever records."""
    seen = _native._take_device_activities() if _active else []
    done = [
        DeviceEvent(KINDS[kind], name, on, stream, start / 1e3, end / 1e3, value, call)
        for kind, name, on, stream, start, end, value, call in seen
    ]
    for recorder in _active:
        recorder.devices.extend(done)
        recorder.charge_devices()


class record_function:
    """A named range, as a context or a decorator; costs next to nothing while nothing is recorded."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self._events: list[tuple[Recorder, Event, Any] | None] = []

    def __enter__(self) -> record_function:
        if not _active:
            self._events.append(None)
            return self
        on_devices = _native._begin_device_range(self.name)
        self._events.append((_active[-1], _active[-1].begin(self.name, user=True), on_devices))
        return self

    def __exit__(self, *exc: object) -> None:
        entered = self._events.pop()
        if entered is not None and entered[0] in _active:  # otherwise it ended with the recording
            entered[0].finish(entered[1])
            entered[2].end()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with record_function(self.name):
                return function(*args, **kwargs)

        return inside
