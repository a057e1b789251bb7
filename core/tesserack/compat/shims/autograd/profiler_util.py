"""``torch.autograd.profiler_util``: events of a profile, made by hand or by tools, and what they add up to.

Times are microseconds. Profiles of Tesserack's own are lists of lighter events: see :mod:`tesserack.profiler`.
"""

from __future__ import annotations

import json
from collections import defaultdict, namedtuple
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any

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
Kernel = namedtuple("Kernel", ["name", "device", "duration"])


class Interval:
    """From a time to another."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


def _format_time(time_us: float) -> str:
    for unit, length in (("s", 1e6), ("ms", 1e3)):
        if time_us >= length:
            return f"{time_us / length:.3f}{unit}"
    return f"{time_us:.3f}us"


def _format_time_share(time_us: float, total_time_us: float) -> str:
    return f"{time_us * 100.0 / total_time_us:.2f}%" if total_time_us else "NaN"


def _format_memory(nbytes: int) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(nbytes) >= size:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes} B"


def _attr_formatter(name: str) -> Any:
    return property(lambda self: _format_time(getattr(self, name)))


class FormattedTimesMixin:
    """Times as text, and times per call."""

    cpu_time_str = _attr_formatter("cpu_time")
    device_time_str = _attr_formatter("device_time")
    cpu_time_total_str = _attr_formatter("cpu_time_total")
    device_time_total_str = _attr_formatter("device_time_total")
    self_cpu_time_total_str = _attr_formatter("self_cpu_time_total")
    self_device_time_total_str = _attr_formatter("self_device_time_total")

    @property
    def cpu_time(self) -> float:
        """Of one call, on average."""
        event: Any = self
        return 0.0 if event.count == 0 else event.cpu_time_total / event.count

    @property
    def device_time(self) -> float:
        """Of one call, on average."""
        event: Any = self
        return 0.0 if event.count == 0 else event.device_time_total / event.count


class FunctionEvent(FormattedTimesMixin):
    """One call, with those that it made."""

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        overload_name: str | None = None,
        fwd_thread: int | None = None,
        input_shapes: Any = None,
        stack: list[Any] | None = None,
        scope: int = 0,
        use_device: str | None = None,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        is_async: bool = False,
        is_remote: bool = False,
        sequence_nr: int = -1,
        node_id: int = -1,
        **other: Any,
    ) -> None:
        self.id, self.node_id, self.name = id, node_id, name
        self.overload_name, self.trace_name = overload_name, other.pop("trace_name", None)
        self.time_range = Interval(start_us, end_us)
        self.thread, self.fwd_thread = thread, fwd_thread
        self.kernels: list[Any] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes, self.stack, self.scope, self.use_device = input_shapes, stack, scope, use_device
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.is_async, self.is_remote, self.sequence_nr = is_async, is_remote, sequence_nr
        self.device_type, self.device_index = other.pop("device_type", None), other.pop("device_index", 0)
        self.flops, self.is_legacy = other.pop("flops", None), other.pop("is_legacy", False)
        for key, value in other.items():
            setattr(self, key, value)

    @property
    def key(self) -> str:
        """The name."""
        return self.name

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Note a kernel that it started."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Note a call that it made."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent) -> None:
        """Say which call made it."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self) -> float:
        """Of the call and those that it made."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """Of the call alone; 0 if it went on in the background."""
        if self.is_async:
            return 0.0
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes that the call alone took."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:
        """Bytes on devices that the call alone took."""
        return self.device_memory_usage - sum(child.device_memory_usage for child in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """Of the kernels that the call alone started."""
        return sum(kernel.duration for kernel in self.kernels) if self.use_device else 0.0

    @property
    def device_time_total(self) -> float:
        """Of all kernels."""
        return self.self_device_time_total + sum(child.device_time_total for child in self.cpu_children)

    def __repr__(self) -> str:
        children = [child.id for child in self.cpu_children]
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"cpu_start_us={self.time_range.start} cpu_end_us={self.time_range.end} cpu_children={children} "
            f"thread={self.thread} input_shapes={self.input_shapes}>"
        )


_TOTALS = (
    *("cpu_time_total", "device_time_total", "self_cpu_time_total", "self_device_time_total"),
    *("cpu_memory_usage", "device_memory_usage", "self_cpu_memory_usage", "self_device_memory_usage", "count"),
)


class FunctionEventAvg(FormattedTimesMixin):
    """What calls of one name add up to."""

    cpu_time_total: float
    device_time_total: float
    cpu_memory_usage: int
    count: int

    def __init__(self) -> None:
        self.key: str | None = None
        self.flops = 0
        self.input_shapes: Any = None
        self.stack: Any = None
        self.is_async = self.is_remote = False
        self.node_id, self.scope = 0, 0
        for name in _TOTALS:
            setattr(self, name, 0)

    def add(self, other: Any) -> FunctionEventAvg:
        """Add a call, or what others add up to, of the same name."""
        if self.key is None:
            self.key, self.node_id, self.scope = other.key, other.node_id, other.scope
            self.is_async, self.is_remote = other.is_async, other.is_remote
            self.input_shapes, self.stack = other.input_shapes, other.stack
        if other.key != self.key:
            raise AssertionError(f"expected events of {self.key}, got one of {other.key}")
        for name in _TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} cpu_memory_usage={self.cpu_memory_usage} count={self.count}>"
        )


class StringTable(defaultdict[str, str]):
    """Names as they are shown; those not set are themselves."""

    def __missing__(self, key: str) -> str:
        self[key] = key
        return key


class MemRecordsAcc:
    """Records of memory by time: of each, the first entry has ``start_ns()``."""

    def __init__(self, mem_records: Iterable[Any]) -> None:
        self._records = sorted(mem_records, key=lambda record: record[0].start_ns())

    def get_in_interval(self, start_us: float, end_us: float) -> Iterator[Any]:
        """Those from a time to another, in microseconds."""
        for record in self._records:
            if start_us * 1000 <= record[0].start_ns() <= end_us * 1000:
                yield record


class EventList(list[Any]):
    """Events; :meth:`_build_tree` finds which calls made which."""

    def __init__(self, *args: Any, use_device: str | None = None, profile_memory: bool = False, **other: Any) -> None:
        super().__init__(*args)
        self._use_device, self._profile_memory = use_device, profile_memory
        self._with_flops = bool(other.pop("with_flops", False))
        self._tree_built = False

    def _build_tree(self) -> None:
        self._populate_cpu_children()
        self._remove_dup_nodes()
        self._tree_built = True

    def _populate_cpu_children(self) -> None:
        """A call made another if that lies within it, on its thread, and in no shorter one."""
        threads: dict[Any, list[FunctionEvent]] = {}
        for event in self:
            if not event.is_async:
                threads.setdefault((event.thread, event.node_id), []).append(event)
        for events in threads.values():
            open_calls: list[FunctionEvent] = []
            for event in sorted(events, key=lambda each: (each.time_range.start, -each.time_range.end)):
                while open_calls and (
                    event.time_range.start >= open_calls[-1].time_range.end
                    or event.time_range.end > open_calls[-1].time_range.end
                ):
                    open_calls.pop()
                if open_calls:
                    open_calls[-1].append_cpu_child(event)
                    event.set_cpu_parent(open_calls[-1])
                open_calls.append(event)

    def _remove_dup_nodes(self) -> None:
        """A call whose only call has its name is the same one, told twice."""
        while True:
            doubled = {
                id(event)
                for event in self
                if event.cpu_parent is not None
                and event.cpu_parent.name == event.name
                and len(event.cpu_parent.cpu_children) == 1
            }
            if not doubled:
                return
            for event in self:
                if id(event) in doubled:
                    parent = event.cpu_parent
                    parent.cpu_children = event.cpu_children
                    parent.kernels += event.kernels
                    for child in event.cpu_children:
                        child.set_cpu_parent(parent)
            self[:] = [event for event in self if id(event) not in doubled]

    @property
    def self_cpu_time_total(self) -> float:
        """Of all the calls themselves."""
        total: float = sum(event.self_cpu_time_total for event in self)
        return total

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, **other: Any) -> EventList:
        """What the calls of each name add up to; apart by shapes, or by the upper entries of their stacks."""
        groups: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shapes else ""
            stack = tuple(event.stack[:group_by_stack_n]) if group_by_stack_n and event.stack else ()
            groups.setdefault((event.key, event.node_id, shapes, stack), FunctionEventAvg()).add(event)
        averages = EventList(groups.values(), use_device=self._use_device, profile_memory=self._profile_memory)
        for average in averages:
            average.stack = average.stack[:group_by_stack_n] if average.stack else []
            average.input_shapes = average.input_shapes if group_by_input_shapes else ""
        return averages

    def total_average(self) -> FunctionEventAvg:
        """What all calls add up to."""
        total = FunctionEventAvg()
        for event in self:
            total.key, key = event.key, total.key
            total.add(event)
            total.key = key
        total.key = "Total"
        return total

    def table(
        self, sort_by: str | None = None, row_limit: int = 100, max_name_column_width: int = 55, **other: Any
    ) -> str:
        """A line for each, the largest by ``sort_by`` first."""
        rows = sorted(self, key=attrgetter(sort_by), reverse=True) if sort_by else list(self)
        whole = self.self_cpu_time_total
        lines = [["Name", "Self CPU %", "Self CPU", "CPU total", "CPU time avg", "# of Calls"]]
        for event in rows[: row_limit if row_limit >= 0 else None]:
            name = (
                event.key if len(event.key) <= max_name_column_width else event.key[: max_name_column_width - 3] + "..."
            )
            share = _format_time_share(event.self_cpu_time_total, whole)
            times = event.self_cpu_time_total_str, event.cpu_time_total_str, event.cpu_time_str
            lines.append([name, share, *times, str(event.count)])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        shown = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
        return "\n".join([*shown, f"Self CPU time total: {_format_time(whole)}"])

    __str__ = table

    def export_chrome_trace(self, path: str) -> None:
        """Write the calls for chrome://tracing."""
        calls = [
            {
                "name": event.trace_name or event.name,
                "ph": "X",
                "ts": event.time_range.start,
                "dur": event.time_range.elapsed_us(),
                "tid": event.thread,
                "pid": "CPU functions",
                "args": {},
            }
            for event in self
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(calls, file)
