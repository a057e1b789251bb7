"""Streams and events, on a backend whose streams are threads' queues run late, and on those without streams."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from bytes_backend import Bytes, floats
from tesserack import _native
from tesserack.backends import Operand

native: Any = _native


class Queue:
    """A stream: work runs in order on a thread of its own."""

    def __init__(self) -> None:
        self.items: queue.Queue[Callable[[], None]] = queue.Queue()
        self.held = threading.Event()
        self.held.set()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self.items.get()
            self.held.wait()
            work()
            self.items.task_done()


class Queues(Bytes):
    """Fills run on the stream; everything else waits for it."""

    def __init__(self, name: str) -> None:
        self.default = Queue()
        self.streams: list[Queue] = []
        super().__init__(name)

    def stream_create(self, device: int, priority: int) -> Queue:
        self.streams.append(Queue())
        return self.streams[-1]

    def stream_query(self, device: int, stream: Queue | None) -> bool:
        return (stream or self.default).items.unfinished_tasks == 0

    def synchronize(self, device: int, stream: Queue | None) -> None:
        (stream or self.default).items.join()

    def event_create(self, device: int, timing: bool) -> dict[str, threading.Event]:
        return {"done": threading.Event()}

    def event_record(self, device: int, event: Any, stream: Queue | None) -> None:
        done = event["done"] = threading.Event()
        (stream or self.default).items.put(done.set)

    def event_query(self, device: int, event: Any) -> bool:
        return event["done"].is_set()

    def event_synchronize(self, device: int, event: Any) -> None:
        event["done"].wait()

    def stream_wait_event(self, device: int, stream: Queue | None, event: Any) -> None:
        done = event["done"]
        (stream or self.default).items.put(done.wait)

    def copy_to_host(self, device: int, dst: memoryview, src: Any, src_offset: int, stream: Queue | None) -> None:
        self.synchronize(device, stream)
        super().copy_to_host(device, dst, src, src_offset, stream)


@pytest.fixture(scope="module")
def queues() -> Queues:
    made = Queues("queues")

    @made.kernel("fill")
    def fill(out: Operand, value: float, *, stream: Queue | None) -> None:
        (stream or made.default).items.put(lambda: floats(out).__setitem__(..., value))

    native._register_python_backend(made, "a test")
    return made


def test_the_current_stream_is_the_threads(queues: Queues) -> None:
    device = ts.device("queues")
    s = ts.Stream(device)
    assert ts.current_stream(device) == ts.default_stream(device) != s
    with ts.stream(s):
        assert ts.current_stream(device) == s
        seen: list[bool] = []
        thread = threading.Thread(target=lambda: seen.append(ts.current_stream(device) == s))
        thread.start()
        thread.join()
        assert seen == [False]
    assert ts.current_stream(device) == ts.default_stream(device)
    assert ts.current_stream("cpu") == ts.default_stream("cpu")


def test_work_goes_to_the_current_stream(queues: Queues) -> None:
    s = ts.Stream("queues")
    queue_of_s = queues.streams[-1]
    x = ts.empty(4, device="queues")
    queue_of_s.held.clear()
    with ts.stream(s):
        x.fill_(3.0)
    assert not s.query()
    queue_of_s.held.set()
    s.synchronize()
    assert s.query()
    assert x.tolist() == [3.0] * 4


def test_events_order_streams(queues: Queues) -> None:
    first, second = ts.Stream("queues"), ts.Stream("queues")
    held = queues.streams[-2]
    x = ts.empty(4, device="queues")
    held.held.clear()
    with ts.stream(first):
        x.fill_(1.0)
    event = ts.Event("queues")
    event.record(first)
    second.wait_event(event)
    with ts.stream(second):
        x.fill_(2.0)
    assert not event.query()
    held.held.set()
    second.synchronize()
    assert event.query()
    assert x.tolist() == [2.0] * 4


def test_synchronize_waits_for_all_streams(queues: Queues) -> None:
    s = ts.Stream("queues")
    x = ts.empty(2, device="queues")
    with ts.stream(s):
        x.fill_(5.0)
    ts.synchronize("queues")
    assert s.query()
    assert x.tolist() == [5.0, 5.0]


def test_memory_is_reused_on_its_own_stream(queues: Queues) -> None:
    s = ts.Stream("queues")
    x = ts.empty(100, device="queues")
    del x
    before = queues.allocated
    with ts.stream(s):
        y = ts.empty(100, device="queues")
        assert queues.allocated == before + 1, "a block of the default stream was taken by another"
        del y
        z = ts.empty(100, device="queues")
        assert queues.allocated == before + 1
        del z
    w = ts.empty(100, device="queues")
    assert queues.allocated == before + 1
    del w


def test_backends_without_streams_do_everything_in_order() -> None:
    s = ts.Stream("cpu")
    assert s == ts.default_stream("cpu") and s.query()
    begin, end = ts.Event("cpu", enable_timing=True), ts.Event("cpu", enable_timing=True)
    begin.record()
    ts.ones(1000).sum()
    end.record(s)
    end.synchronize()
    assert begin.elapsed_time(end) >= 0
    s.wait_event(end)
    assert s.record_event(end) is end and s.record_event().query()
    s.wait_stream(ts.Stream("cpu"))


def test_misuse_is_told(queues: Queues) -> None:
    with pytest.raises(TypeError, match="stream: expected a Stream or None, got int"):
        ts.stream(3)  # type: ignore[arg-type]
    for misuse in (lambda: ts.set_stream(None), lambda: ts.Event("cpu").record(5), lambda: ts.Event("cpu").wait("s")):
        with pytest.raises(TypeError, match="expected a Stream, got"):
            misuse()
    s, e = ts.Stream("cpu"), ts.Event("cpu")
    for name, misuse in (
        ("wait_event", lambda: s.wait_event(None)),
        ("record_event", lambda: s.record_event(s)),
        ("elapsed_time", lambda: e.elapsed_time(s)),
    ):
        with pytest.raises(TypeError, match=f"^{name}: expected an Event, got (NoneType|Stream)$"):
            misuse()
    with pytest.raises(TypeError, match=r"^wait_stream: expected a Stream, got NoneType$"):
        s.wait_stream(None)
    with pytest.raises(RuntimeError, match="expected a stream of queues"):
        ts.Event("queues").record(ts.Stream("cpu"))
    with pytest.raises(ValueError, match="enable_timing"):
        ts.Event("cpu").elapsed_time(ts.Event("cpu"))
