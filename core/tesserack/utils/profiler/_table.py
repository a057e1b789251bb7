"""Events gathered by name, as a table, and as a trace for Chrome's and Perfetto's viewers."""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable
from typing import Any

from tesserack.utils.profiler._events import FunctionEventAvg, time_text
from tesserack.utils.profiler._record import DeviceEvent, Event, KernelEvent
from tesserack.utils.profiler._trace import device_records
from tesserack.utils.profiler._tree import drop_doubles, find_callers

__all__ = ["EventList", "write_trace"]

_KEYS = ("cpu_time_total", "self_cpu_time_total", "cpu_time", "count", "cpu_memory_usage", "self_cpu_memory_usage")
_DEVICE_KEYS = ("device_time_total", "self_device_time_total", "device_time")


class EventList(list[Any]):
    """Averages, or events; :meth:`table` prints them. Of those made by hand, ``_build_tree`` finds which made which."""

    def __init__(self, *args: Any, use_device: str | None = None, profile_memory: bool = False, **other: Any) -> None:
        super().__init__(*args)
        self._use_device, self._profile_memory = use_device, profile_memory
        self._with_flops = bool(other.pop("with_flops", False))
        self._tree_built = False

    def _build_tree(self) -> None:
        find_callers(self)
        drop_doubles(self)
        self._tree_built = True

    def key_averages(self, group_by_input_shapes: bool = False, group_by_stack_n: int = 0, **options: Any) -> EventList:
        """Events gathered by name; if asked for, by the shapes that they are given and the innermost places too."""
        found: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = event.input_shapes if group_by_input_shapes else ""
            places = [*(event.stack or ())][: max(group_by_stack_n, 0)]
            average = found.setdefault((event.key, event.node_id, str(shapes), *places), FunctionEventAvg()).add(event)
            average.input_shapes, average.stack = shapes, places
        return EventList(found.values(), use_device=self._use_device, profile_memory=self._profile_memory)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write where time is spent, for flame graphs: a line ``outer;inner microseconds`` for each place that calls.

        ``ValueError`` for another metric than the total times of cpu and device.
        """
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(
                f"export_stacks: expected metric one of {self.supported_export_stacks_metrics()}, got {metric!r}"
            )
        times: dict[str, float] = {}
        for event in self:
            time = event.self_cpu_time_total if metric == "self_cpu_time_total" else event.self_device_time_total
            if event.stack and time > 0:
                place = ";".join(part.replace(";", ":").replace(" ", "_") for part in reversed(event.stack))
                times[place] = times.get(place, 0.0) + time
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(f"{place} {int(time)}\n" for place, time in times.items())

    @staticmethod
    def supported_export_stacks_metrics() -> list[str]:
        """What :meth:`export_stacks` can write."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_device_time_total", "self_xpu_time_total"]

    def total_average(self) -> FunctionEventAvg:
        """All of them as one, whose total times count each moment once."""
        total = FunctionEventAvg()
        for item in self:
            total.key = item.key
            total.add(item)
        total.key = "Total"
        total.cpu_time_total, total.device_time_total = total.self_cpu_time_total, total.self_device_time_total
        total.cpu_memory_usage = total.self_cpu_memory_usage
        return total

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all, each counted without the calls inside."""
        total: float = sum(item.self_cpu_time_total for item in self)
        return total

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_name_column_width: int = 55,
        header: str | None = None,
        top_level_events_only: bool = False,
        **options: Any,
    ) -> str:
        """The averages as text. ``sort_by`` is such as ``"cpu_time_total"`` or ``"device_time_total"``; where no device
        tells its times, they count as the cpu's; ``top_level_events_only`` leaves out events within others."""
        rows = [row for row in self if not (top_level_events_only and _is_inside(row))]
        on_devices = any(row.self_device_time_total for row in rows)
        if sort_by is not None:
            rows.sort(key=operator.attrgetter(_sort_key(sort_by, on_devices)), reverse=True)
        total = self.self_cpu_time_total or 1.0
        titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "CPU Mem", "# of Calls"]
        titles += ["Self Device", "Device total"] if on_devices else []
        unit, scale = _flops_unit(max((row.flops or 0 for row in rows), default=0))
        with_shapes = any(row.input_shapes for row in rows)
        lines = [[*titles, *(["Input Shapes"] if with_shapes else []), *([f"Total {unit}"] if unit else [])]]
        for row in rows[: row_limit if row_limit >= 0 else None]:
            cells = [
                row.key[:max_name_column_width],
                f"{100 * row.self_cpu_time_total / total:.2f}%",
                time_text(row.self_cpu_time_total),
                f"{100 * row.cpu_time_total / total:.2f}%",
                time_text(row.cpu_time_total),
                time_text(row.cpu_time),
                _bytes(row.cpu_memory_usage),
                str(row.count),
                *([time_text(row.self_device_time_total), time_text(row.device_time_total)] if on_devices else []),
            ]
            flops = f"{row.flops / scale:.3f}" if row.flops else "--"
            lines.append([*cells, *([str(row.input_shapes)] if with_shapes else []), *([flops] if unit else [])])
        # Ranges are no work: their own time is what the program does between its operators.
        outside = sum(row.self_cpu_time_total for row in rows if getattr(row, "is_user_annotation", False))
        rest = f"of which between operators: {time_text(outside)}\n" if outside else ""
        footer = f"\nSelf CPU time total: {time_text(self.self_cpu_time_total)}\n"
        if on_devices:
            footer += f"Self device time total: {time_text(sum(row.self_device_time_total for row in rows))}\n"
        return _layout(lines, header) + footer + rest

    def __str__(self) -> str:
        return self.table()

    def export_chrome_trace(self, path: str) -> None:
        """Write the events as a trace."""
        write_trace(path, self)


def _is_inside(row: Any) -> bool:
    """Whether an event is within another, but for the steps of the program's loop."""
    parent = getattr(row, "cpu_parent", None)
    return parent is not None and not parent.name.startswith("ProfilerStep#")


def _sort_key(sort_by: str, on_devices: bool) -> str:
    key = sort_by.replace("cuda", "device")
    if not on_devices:
        key = key.replace("device", "cpu")
    if key not in (*_KEYS, *_DEVICE_KEYS):
        known = ", ".join((*_KEYS, *_DEVICE_KEYS))
        raise AttributeError(f"table: expected sort_by to be one of {known}, got {sort_by!r}")
    return key


def _layout(lines: list[list[str]], header: str | None) -> str:
    widths = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
    rule = "  ".join("-" * width for width in widths)
    body = ["  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return "\n".join([*([header] if header else []), rule, body[0], rule, *body[1:], rule])


def _flops_unit(most: int) -> tuple[str, float]:
    """In what operations are told, and how many of them that is; no unit where none were counted."""
    units = ("FLOPs", "KFLOPs", "MFLOPs", "GFLOPs", "TFLOPs", "PFLOPs")
    step = min((len(str(most)) - 1) // 3, len(units) - 1)
    return (units[step] if most else ""), 1000.0**step


def _bytes(count: int) -> str:
    sign, value = ("-" if count < 0 else ""), float(abs(count))
    for unit in ("b", "Kb", "Mb"):
        if value < 1024:
            return f"{sign}{value:.2f} {unit}" if value else "0 b"
        value /= 1024
    return f"{sign}{value:.2f} Gb"


def write_trace(
    path: str,
    events: Iterable[Event],
    metadata: dict[str, Any] | None = None,
    kernels: Iterable[KernelEvent] = (),
    devices: Iterable[DeviceEvent] = (),
) -> None:
    """Write events in Chrome's trace format; compressed where the name ends in ``.gz``."""
    events, kernels, process = [*events], [*kernels], os.getpid()
    named: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": process, "args": {"name": "tesserack"}}]
    for thread in sorted({event.thread for event in events} | {kernel.thread for kernel in kernels}):
        label = f"thread {thread}"
        named.append({"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": label}})
    crossing = {id(child) for event in events for child in event.children if child.end > event.end}
    records = [*named]
    for event in events:
        category = "user_annotation" if event.user else "cpu_op"
        record = {"cat": category, "name": event.name, "pid": process, "tid": event.thread, "ts": event.start}
        if id(event) in crossing:  # viewers want complete events nested: these get a line of their own
            records.append({**record, "ph": "b", "id": id(event)})
            records.append({**record, "ph": "e", "id": id(event), "ts": event.end})
            continue
        shapes = {"Input Dims": event.shapes, "Device": event.device} if event.shapes else {}
        records.append({**record, "ph": "X", "dur": event.cpu_time_total, "args": shapes})
    for kernel in kernels:
        record = {"cat": "kernel", "name": kernel.name, "pid": process, "tid": kernel.thread, "ts": kernel.start}
        arguments = {"Device": kernel.device, "Elements": kernel.elements}
        records.append({**record, "ph": "X", "dur": kernel.end - kernel.start, "args": arguments})
    records += device_records([*devices], {kernel.number: kernel for kernel in kernels}, process)
    text = json.dumps({"schemaVersion": 1, "displayTimeUnit": "ms", **(metadata or {}), "traceEvents": records})
    if path.endswith(".gz"):
        import gzip

        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
