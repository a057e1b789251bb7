"""Events of a profile and what those of one name add up to, as PyTorch's tools know them. Times are microseconds."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

__all__ = ["FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel", "time_text"]

Kernel = namedtuple("Kernel", ["name", "device", "duration"])


class Interval:
    """From a time to another."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.end = end

    def elapsed_us(self) -> float:
        """How long it is."""
        return self.end - self.start


def time_text(us: float) -> str:
    """A time with its unit."""
    return f"{us / 1e6:.3f}s" if us >= 1e6 else f"{us / 1e3:.3f}ms" if us >= 1e3 else f"{us:.3f}us"


def _attr_formatter(name: str) -> Any:
    return property(lambda self: time_text(getattr(self, name)))


class FormattedTimesMixin:
    """Times as text, times per call, and the times of devices under their older names."""

    count: Any
    cpu_time_str = _attr_formatter("cpu_time")
    device_time_str = _attr_formatter("device_time")
    cpu_time_total_str = _attr_formatter("cpu_time_total")
    device_time_total_str = _attr_formatter("device_time_total")
    self_cpu_time_total_str = _attr_formatter("self_cpu_time_total")
    self_device_time_total_str = _attr_formatter("self_device_time_total")
    cuda_time: Any = property(lambda self: self.device_time)
    cuda_time_total: Any = property(lambda self: self.device_time_total)
    self_cuda_time_total: Any = property(lambda self: self.self_device_time_total)

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

    id: Any
    name: Any
    thread: Any
    time_range: Any
    cpu_children: Any
    cpu_parent: Any
    device_type: Any
    cpu_memory_usage: Any
    device_memory_usage: Any
    input_shapes: Any
    is_async: Any
    kernels: Any
    use_device: Any
    is_user_annotation: Any = False
    key: Any = property(lambda self: self.name)
    # What traces are written of.
    children: Any = property(lambda self: self.cpu_children)
    start: Any = property(lambda self: self.time_range.start)
    end: Any = property(lambda self: self.time_range.end)
    shapes: Any = property(lambda self: self.input_shapes)
    user: Any = property(lambda self: self.is_user_annotation)
    device: Any = property(lambda self: str(self.device_type or ""))

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
        self.id, self.name, self.time_range = id, name, Interval(start_us, end_us)
        self.thread, self.use_device, self.input_shapes, self.is_async = thread, use_device, input_shapes, is_async
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.count, self.kernels, self.cpu_children, self.cpu_parent, self.device_type = 1, [], [], None, None
        rest = {"overload_name": overload_name, "fwd_thread": fwd_thread, "stack": stack, "scope": scope}
        rest |= {"is_remote": is_remote, "sequence_nr": sequence_nr, "node_id": node_id, "trace_name": None}
        rest |= {"device_index": 0, "flops": None, "is_legacy": False}
        for key, value in {**rest, **other}.items():
            setattr(self, key, value)

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
        elapsed: float = self.time_range.elapsed_us()
        return elapsed

    @property
    def self_cpu_time_total(self) -> float:
        """Of the call alone; 0 if it went on in the background."""
        if self.is_async:
            return 0.0
        within: float = sum(child.cpu_time_total for child in self.cpu_children)
        return self.cpu_time_total - within

    @property
    def self_cpu_memory_usage(self) -> Any:
        """Bytes that the call alone took."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> Any:
        """Bytes on devices that the call alone took."""
        return self.device_memory_usage - sum(child.device_memory_usage for child in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """Of the kernels that the call alone started."""
        return sum(kernel.duration for kernel in self.kernels) if self.use_device else 0.0

    @property
    def device_time_total(self) -> float:
        """Of all kernels."""
        within: float = sum(child.device_time_total for child in self.cpu_children)
        return self.self_device_time_total + within

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
    self_cpu_time_total: float
    self_device_time_total: float
    cpu_memory_usage: int
    self_cpu_memory_usage: int

    def __init__(self) -> None:
        self.key: str | None = None
        self.flops = 0
        self.input_shapes: Any = None
        self.stack: Any = None
        self.device_type: Any = None
        self.is_async = self.is_remote = self.is_user_annotation = False
        self.node_id, self.scope = 0, 0
        for name in _TOTALS:
            setattr(self, name, 0)

    def add(self, other: Any) -> FunctionEventAvg:
        """Add a call, or what others add up to, of the same name."""
        if self.key is None:
            self.key, self.node_id, self.scope = other.key, other.node_id, other.scope
            self.is_async, self.is_remote = other.is_async, other.is_remote
            self.input_shapes, self.stack = other.input_shapes, other.stack
            self.is_user_annotation = other.is_user_annotation
        if other.key != self.key:
            raise AssertionError(f"expected events of {self.key}, got one of {other.key}")
        for name in _TOTALS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.device_type = self.device_type or other.device_type
        self.flops += other.flops or 0
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} cpu_memory_usage={self.cpu_memory_usage} count={self.count}>"
        )
