"""Profiling a training loop: which steps are recorded, and what is done with them."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from enum import Enum
from typing import Any

from tesserack.utils.profiler._record import (
    DeviceEvent,
    Event,
    KernelEvent,
    Recorder,
    gather_devices,
    gather_kernels,
    record_function,
    recording,
)
from tesserack.utils.profiler._table import EventList, write_trace

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


class ProfilerActivity(Enum):
    """Kinds of work; all that runs is recorded where the host asks for it."""

    CPU = 0
    XPU = 1
    CUDA = 2
    MTIA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """What to do in one step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """What can be recorded: calls on the host. What devices do is recorded where their backends tell it."""
    return {ProfilerActivity.CPU}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Cycles of ``wait`` steps of nothing, ``warmup`` and ``active`` recorded ones, ``repeat`` times, for ever if 0.

    ``ValueError`` unless ``active`` is positive and the others are not negative.

    >>> plan = schedule(wait=1, warmup=1, active=2)
    >>> [plan(step).name for step in range(5)]
    ['NONE', 'WARMUP', 'RECORD', 'RECORD_AND_SAVE', 'NONE']
    """
    if active < 1 or min(wait, warmup, repeat, skip_first) < 0:
        raise ValueError("schedule: expected active of at least 1 and no negative numbers")

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        cycle, position = divmod(step, wait + warmup + active)
        if (repeat and cycle >= repeat) or position < wait:
            return ProfilerAction.NONE
        if position < wait + warmup:
            return ProfilerAction.WARMUP
        last = position == wait + warmup + active - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """For ``on_trace_ready``: writes traces into a folder, under names that TensorBoard and viewers find."""

    def handle(prof: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}.{time.time_ns()}.pt.trace.json{'.gz' if use_gzip else ''}"
        prof.export_chrome_trace(os.path.join(dir_name, name))

    return handle


class profile:
    """Records the operators that this thread calls, ranges of :class:`record_function`, the kernels of all threads, and
    what devices did, by their own clocks, where their backends tell it.

    Args:
        activities: kept for programs that give them; see :class:`ProfilerActivity`.
        schedule: which steps are recorded; all of them without one.
        on_trace_ready: called with the profile when a cycle of steps, or everything, was recorded.
        record_shapes: note the shapes of arguments.
        profile_memory: note how many bytes each call leaves allocated on the default device.
        with_stack: note where in the program each call is made.
        with_flops: count the operations of products and convolutions, sums and pointwise products, by their shapes.
        acc_events: keep what earlier cycles of a schedule recorded; else the results are those of the last one.

    >>> import tesserack as ts
    >>> with profile() as prof:
    ...     _ = ts.ones(4).exp().sum()
    >>> sorted(row.key for row in prof.key_averages() if row.key in ("exp", "sum"))
    ['exp', 'sum']

    The self times of a thread's events are the time that was recorded: each moment counts for the innermost event, and
    what the program does between operators for the range around it, ``ProfilerStep#0`` where there is no other.
    """

    _namespace = ""

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        acc_events: bool = False,
        **options: Any,
    ) -> None:
        self._schedule, self._ready = schedule, on_trace_ready
        self._options = (record_shapes, profile_memory, with_stack, with_flops)
        self._recorder: Recorder | None = None
        self._running: ExitStack | None = None
        self._accumulates = acc_events
        self._events: list[Event] = []
        self._kernels: list[KernelEvent] = []
        self._devices: list[DeviceEvent] = []
        self._metadata: dict[str, Any] = {}
        self.step_num = 0
        self.current_action = ProfilerAction.NONE

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step 0."""
        self._enter(self._action())

    def stop(self) -> None:
        """End; what was recorded is handed to ``on_trace_ready``."""
        recorded = self._running is not None
        self._end_recording()
        if recorded and self._ready is not None:
            self._ready(self)
        self.current_action = ProfilerAction.NONE

    def step(self) -> None:
        """Say that the next step of the program begins."""
        save = self.current_action is ProfilerAction.RECORD_AND_SAVE
        self.step_num += 1
        following = self._action()
        if save or (self._schedule is not None and following in (ProfilerAction.NONE, ProfilerAction.WARMUP)):
            self._end_recording()
        elif self._running is not None:
            self._mark_step()
        if save and self._ready is not None:
            self._ready(self)
        self._enter(following)

    def _action(self) -> ProfilerAction:
        return ProfilerAction.RECORD if self._schedule is None else self._schedule(self.step_num)

    def _enter(self, action: ProfilerAction) -> None:
        self.current_action = action
        if action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE) and self._running is None:
            self._recorder = Recorder(*self._options, namespace=self._namespace)
            self._running = ExitStack()
            self._running.enter_context(recording(self._recorder))
            self._mark = self._running.enter_context(ExitStack())
            self._mark_step()

    def _mark_step(self) -> None:
        self._mark.close()
        self._mark.enter_context(record_function(f"ProfilerStep#{self.step_num}"))

    def _end_recording(self) -> None:
        if self._running is not None and self._recorder is not None:
            self._running.close()
            self._running = None
            self._events = self._before(self._events) + self._recorder.events
            self._kernels = self._before(self._kernels) + self._recorder.kernels
            self._devices = self._before(self._devices) + self._recorder.devices

    # --- results -----------------------------------------------------------------------------------------------------

    def events(self) -> EventList:
        """Every call and range, in order of beginning."""
        if self._running is None or self._recorder is None:
            return EventList(self._events)
        return EventList(self._before(self._events) + self._recorder.events)

    def _before(self, kept: list[Any]) -> list[Any]:
        return kept if self._accumulates else []

    def kernels(self) -> list[KernelEvent]:
        """Every call of a backend's kernel, whichever thread made it.

        >>> import tesserack as ts
        >>> with profile() as prof:
        ...     _ = ts.ones(4).exp().sum()
        >>> [kernel.name for kernel in prof.kernels()]
        ['fill', 'pointwise', 'reduce']
        """
        if self._running is None or self._recorder is None:
            return list(self._kernels)
        gather_kernels()
        return self._before(self._kernels) + self._recorder.kernels

    def device_events(self) -> list[DeviceEvent]:
        """Kernels, copies, memory, ranges and counters of devices whose backends tell them; waits for the devices.

        An event's ``call`` is the ``number`` of the kernel call that it is work of, in :meth:`kernels`.

        >>> import tesserack as ts
        >>> with profile() as prof:
        ...     _ = ts.ones(4).exp()
        >>> prof.device_events()  # the cpu backend works when it is called: see kernels()
        []
        """
        if self._running is None or self._recorder is None:
            return list(self._devices)
        gather_kernels()
        gather_devices()
        return self._before(self._devices) + self._recorder.devices

    def key_averages(self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, **options: Any) -> EventList:
        """Calls gathered by name; if asked for, by shapes and by the innermost places that they are called from too."""
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str) -> None:
        """Write a trace for Chrome's and Perfetto's viewers."""
        kernels, devices = self.kernels(), self.device_events()
        write_trace(path, self.events(), self._metadata, kernels, devices)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write where time is spent, for flame graphs: a line ``outer;inner microseconds`` for each place that calls.

        ``ValueError`` for another metric than the total times of cpu and device, RuntimeError without stacks.
        """
        if not self._options[2] and metric in EventList.supported_export_stacks_metrics():
            raise RuntimeError("export_stacks: nothing was noted; profile with with_stack=True")
        self.events().export_stacks(path, metric)

    def add_metadata(self, key: str, value: str) -> None:
        """Add a text to the trace."""
        self._metadata[key] = value

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a text of JSON to the trace."""
        import json

        self._metadata[key] = json.loads(value)
