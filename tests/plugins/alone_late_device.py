"""Asynchronous devices: memory, copies, gradients and errors are right while streams run late."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tesserack as ts
from late_backend import Late
from tesserack import _native
from tesserack.backends import Operand

native: Any = _native
pytestmark = pytest.mark.usefixtures("no_fallback")


def registered(name: str, own: bool, devices: int = 1) -> Late:
    made = Late(name, own, devices)
    native._register_python_backend(made, __file__)
    return made


@pytest.fixture(scope="module")
def cached() -> Late:
    """The core caches its memory."""
    return registered("latecached", own=False)


@pytest.fixture(scope="module")
def own() -> Late:
    """It has an allocator of its own, which poisons what is freed."""
    return registered("lateown", own=True)


@pytest.fixture(scope="module")
def pair() -> Late:
    """Two devices."""
    return registered("latepair", own=False, devices=2)


@pytest.fixture(params=["cached", "own"])
def late(request: pytest.FixtureRequest) -> Late:
    made: Late = request.getfixturevalue(request.param)
    return made


class held:
    """While inside, a stream does nothing."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.stream.go.clear()

    def __exit__(self, *error: object) -> None:
        self.stream.go.set()


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nbytes", [400, 400_000])
def test_memory_is_freed_on_the_stream_it_came_from(own: Late, nbytes: int) -> None:
    side = ts.Stream("lateown")
    handle = own.streams[-1]
    with ts.stream(side):
        x = ts.empty(nbytes, dtype=ts.uint8, device="lateown")
    address = own.allocated[-1]
    y = ts.empty(nbytes, dtype=ts.uint8, device="lateown")
    other = own.allocated[-1]
    del x
    with ts.stream(side):
        del y
    assert (address, handle) in own.freed
    assert (other, None) in own.freed


@pytest.mark.parametrize("n", [64, 100_000])
def test_recorded_memory_is_reused_when_the_other_stream_is_done(cached: Late, n: int) -> None:
    side = ts.Stream("latecached")
    stream = cached.streams[-1]
    x = ts.full((n,), 3.0, device="latecached")
    side.wait_stream(ts.current_stream("latecached"))
    with held(stream):
        with ts.stream(side):
            doubled = x * 2
        x.record_stream(side)
        before = len(cached.allocated)
        del x
        overwritten = [ts.full((n,), 9.0, device="latecached") for _ in range(3)]
        assert len(cached.allocated) > before, "memory that a stream still reads was given away"
    side.synchronize()
    assert (doubled.cpu() == 6).all()
    del overwritten
    before = len(cached.allocated)
    again = [ts.empty(n, device="latecached") for _ in range(4)]
    assert len(cached.allocated) == before, "memory that nobody uses was not given back"
    del again


def test_record_stream_wants_a_stream_of_the_device(cached: Late) -> None:
    x = ts.empty(3, device="latecached")
    with pytest.raises(RuntimeError, match="expected a stream of latecached"):
        x.record_stream(ts.default_stream("cpu"))


def test_values_are_waited_for(late: Late) -> None:
    x = ts.arange(1000, device=late.name)
    for k in range(20):
        x = x + 1
        assert x[3].item() == 4 + k
    assert x.tolist() == list(range(20, 1020))
    assert (x.cpu() == ts.arange(20, 1020)).all()


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True], ids=["default stream", "streams"])
def test_a_model_learns(late: Late, streams: bool) -> None:
    ts.manual_seed(0)
    F = ts.nn.functional
    device = late.name
    model = ts.nn.Sequential(ts.nn.Linear(16, 32), ts.nn.BatchNorm1d(32), ts.nn.ReLU(), ts.nn.Linear(32, 3)).to(device)
    x = ts.randn(64, 16, device=device)
    y = x[:, :3].argmax(1)
    optimizer = ts.optim.Adam(model.parameters(), lr=0.02)
    side = ts.Stream(device)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        main = ts.current_stream(device)
        if streams:  # forward aside, the rest here
            side.wait_stream(main)
            with ts.stream(side):
                hidden = model[:3](x)
            main.wait_stream(side)
            hidden.record_stream(main)
        else:
            hidden = model[:3](x)
        loss = F.cross_entropy(model[3](hidden), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.4 * losses[0]
    assert all(p.isfinite().all() for p in model.parameters())


def test_backward_runs_on_the_streams_of_the_forward_and_joins_them(cached: Late) -> None:
    side = ts.Stream("latecached")
    stream = cached.streams[-1]
    seen = []

    class Noted(ts.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            seen.append(ts.current_stream("latecached"))
            return grad * 2

    w = ts.full((50,), 3.0, device="latecached", requires_grad=True)
    side.wait_stream(ts.current_stream("latecached"))
    with ts.stream(side):
        h = Noted.apply(w)
    ts.current_stream("latecached").wait_stream(side)
    out = (h * h).sum()
    ts.synchronize("latecached")
    with held(stream):
        out.backward()
        assert seen == [side]
        assert ts.current_stream("latecached") == ts.default_stream("latecached")
        doubled = w.grad * 1  # after the join: what side has not done yet
        time.sleep(0.02)
    assert (doubled.cpu() == 24).all()
    assert (w.grad.cpu() == 24).all()


def test_a_failing_backward_gives_the_caller_its_stream_back(cached: Late) -> None:
    class Broken(ts.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: ts.Tensor) -> ts.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: ts.Tensor) -> ts.Tensor:
            raise ValueError("broken")

    w = ts.ones(3, device="latecached", requires_grad=True)
    with ts.stream(ts.Stream("latecached")):
        out = Broken.apply(w).sum()
    with pytest.raises(ValueError, match="broken"):
        out.backward()
    assert ts.current_stream("latecached") == ts.default_stream("latecached")


# --- copies -----------------------------------------------------------------------------------------------------------


def test_copies_from_pinned_memory_are_queued(cached: Late) -> None:
    x = ts.arange(5000.0)
    pinned = x.pin_memory("latecached")
    assert pinned.is_pinned() and pinned.is_pinned("latecached") and not x.is_pinned()
    assert pinned.device.type == "cpu" and ts.equal(pinned, x)
    assert pinned.pin_memory("latecached").data_ptr() == pinned.data_ptr()
    known = len(cached.pinned)
    with held(cached.default[0]):
        there = pinned.to("latecached", non_blocking=True)
        back = ts.empty(5000).pin_memory("latecached")
        back.copy_(there, non_blocking=True)
        del pinned  # kept while the copy is under way
        ts.ones(3).pin_memory("latecached")
        assert len(cached.pinned) >= known + 1
    ts.synchronize("latecached")
    assert ts.equal(there.cpu(), x)
    assert ts.equal(back, x)
    del back
    ts.ones(3).pin_memory("latecached")
    ts.synchronize("latecached")
    assert len(cached.pinned) <= known


def test_blocking_copies_from_pinned_memory_have_read_it(cached: Late) -> None:
    pinned = ts.arange(100.0).pin_memory("latecached")
    with held(cached.default[0]):
        there = pinned.to("latecached")
        pinned.zero_()
    assert ts.equal(there.cpu(), ts.arange(100.0))


def test_pin_memory_without_a_device_for_it() -> None:
    with pytest.raises(RuntimeError, match="backend 'cpu' gives no pinned memory"):
        ts.ones(3).pin_memory("cpu")
    assert not ts.ones(3).is_pinned()


def test_copies_between_devices_are_ordered_on_both_sides(pair: Late) -> None:
    for source in (0, 1):
        src, dst = ts.device("latepair", source), ts.device("latepair", 1 - source)
        x = ts.full((1000,), 1.0, device=src)
        ts.synchronize(src)
        with held(pair.default[source]):
            x.fill_(2.0)
            copied = x.to(dst)  # after the fill
        with held(pair.default[1 - source]):
            copied_later = x.to(dst)
            x.fill_(3.0)  # after the copy
            time.sleep(0.02)
        assert (copied.cpu() == 2).all()
        assert (copied_later.cpu() == 2).all()
        assert (x.cpu() == 3).all()


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def failing() -> Iterator[Late]:
    if "latefailing" in FAILING:
        yield FAILING["latefailing"]
        return
    made = FAILING["latefailing"] = Late("latefailing", own=False)

    def fail_late(out: Operand, value: float, *, stream: Any, device: int) -> None:
        def work() -> None:
            raise RuntimeError(f"bus error at {value}")

        made.queue(device, stream, work)

    made.kernel("fill")(fail_late)
    native._register_python_backend(made, __file__)
    yield made


FAILING: dict[str, Late] = {}


@pytest.mark.parametrize("wait", ["synchronize", "read", "stream"])
def test_a_late_error_is_told_by_the_next_wait(failing: Late, wait: str) -> None:
    x = ts.empty(3, device="latefailing")
    x.fill_(7.0)
    with pytest.raises(RuntimeError, match=r"bus error at 7.*last kernel queued was 'fill'.*set_checked"):
        if wait == "synchronize":
            ts.synchronize("latefailing")
        elif wait == "read":
            x.tolist()
        else:
            ts.current_stream("latefailing").synchronize()


def test_in_checked_mode_the_call_raises(failing: Late) -> None:
    x = ts.empty(3, device="latefailing")
    assert ts.backends.set_checked(True) is False
    try:
        with pytest.raises(RuntimeError, match=r"^fill: .*bus error at 8"):
            x.fill_(8.0)
    finally:
        assert ts.backends.set_checked(False) is True
    ts.synchronize("latefailing")


# --- opening, and limits ----------------------------------------------------------------------------------------------


def test_a_device_is_opened_once_by_many_threads() -> None:
    made = registered("lateopened", own=False, devices=2)
    assert made.opened == []
    ts.device("lateopened:1")
    assert made.opened == []  # naming is not using
    barrier = threading.Barrier(8)
    results = []

    def work() -> None:
        barrier.wait()
        results.append(ts.ones(5, device="lateopened:1").sum().item())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [5.0] * 8
    assert made.opened == [1]


class Limited(Late):
    """Kernels of at most two dims, offsets of 16 bytes, a megabyte in one piece."""

    def __init__(self) -> None:
        super().__init__("latelimited", own=False)
        self.fails = True
        self.seen: list[tuple[int, int]] = []

    def properties(self, device: int) -> dict[str, Any]:
        limits = {"max_ndim": 2, "alignment": 16, "max_allocation": 2**20}
        return {**super().properties(device), **limits}

    def open(self, device: int) -> None:
        if self.fails:
            self.fails = False
            raise RuntimeError("the driver is busy")
        super().open(device)

    def _later(self, function: Callable[..., None]) -> Callable[..., None]:
        kernel = super()._later(function)

        def noted(*args: Any, **fields: Any) -> None:
            everything = [*args, *fields.get("outputs", ()), *fields.get("inputs", ())]
            self.seen += [(x.ndim, x.byte_offset % 16) for x in everything if isinstance(x, Operand)]
            kernel(*args, **fields)

        return noted


@pytest.fixture(scope="module")
def limited() -> Limited:
    made = Limited()
    native._register_python_backend(made, __file__)
    with pytest.raises(RuntimeError, match="the driver is busy"):
        ts.empty(1, device="latelimited")
    ts.empty(1, device="latelimited")  # opening is tried again
    return made


def test_dims_and_offsets_are_kept_within_what_the_device_takes(limited: Limited) -> None:
    limited.seen.clear()
    x = ts.arange(2.0 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    y = ts.arange(24.0).reshape(4, 1, 3, 2)
    a, b = x.to("latelimited"), y.to("latelimited")
    assert ts.equal((a.permute(3, 1, 0, 2) + 1).cpu(), x.permute(3, 1, 0, 2) + 1)
    assert ts.equal((a[:, :, ::2, 1::2] * a[:, :, 1::2, :2]).cpu(), x[:, :, ::2, 1::2] * x[:, :, 1::2, :2])
    assert ts.equal(b.permute(3, 2, 1, 0).contiguous().cpu(), y.permute(3, 2, 1, 0))
    assert ts.equal((a.reshape(-1)[1:50] + a.reshape(-1)[3:52]).cpu(), x.reshape(-1)[1:50] + x.reshape(-1)[3:52])
    a[1, :, 1::2, 2] = 7.0
    x[1, :, 1::2, 2] = 7.0
    a.reshape(-1)[5:9].mul_(3)
    x.reshape(-1)[5:9].mul_(3)
    assert ts.equal(a.cpu(), x)
    assert ts.equal(a.reshape(-1)[3:].flip(0).cpu(), x.reshape(-1)[3:].flip(0))
    assert limited.seen and all(ndim <= 2 and offset == 0 for ndim, offset in limited.seen)


def test_no_allocation_is_larger_than_the_device_gives(limited: Limited) -> None:
    ts.empty(2**18, device="latelimited")
    with pytest.raises(ts.OutOfMemoryError, match=r"at most 1.0 MiB in one piece"):
        ts.empty(2**18 + 1, device="latelimited")


def test_late_devices_are_known_to_be(cached: Late) -> None:
    properties = ts.backends.properties("latecached")
    assert properties["asynchronous"] and properties["simulated"]


def test_memory_that_is_freed_on_the_way_keeps_the_error(own: Late) -> None:
    """The tensors of a call that fails are let go with its error set, and ``free`` is a Python function."""
    x = ts.ones(4, device=own.name)
    freed = len(own.freed)
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        x.gather(0, ts.tensor([7], device=own.name)).cpu()
    assert len(own.freed) > freed


def test_memory_of_others_is_registered(cached: Late) -> None:
    """What was there before serves queued copies without being copied itself, and is given back with its last user."""
    shared = ts.arange(1000.0)
    registered = ts.backends.register_host_memory(shared, "latecached")
    assert registered.data_ptr() == shared.data_ptr() and registered.is_pinned() and not shared.is_pinned()
    there = registered.to("latecached", non_blocking=True)
    assert (there + 1).cpu().equal(shared + 1)
    registered.copy_(there * 2, non_blocking=True)
    ts.synchronize("latecached")
    assert shared.equal(ts.arange(1000.0) * 2)
    assert shared.data_ptr() in cached.pinned
    del registered
    ts.synchronize("latecached")
    ts.ones(8).pin_memory("latecached")  # memory that came or went is when what is idle is let go of
    assert shared.data_ptr() not in cached.pinned
    with pytest.raises(RuntimeError, match="backend 'latecached' cannot register these 8 bytes"):
        ts.backends.register_host_memory(ts.ones(2), "latecached")
    with pytest.raises(RuntimeError, match="expected a contiguous tensor"):
        ts.backends.register_host_memory(ts.ones(8, 8).t(), "latecached")
    with pytest.raises(TypeError, match="expected a tensor, got list"):
        ts.backends.register_host_memory([1.0], "latecached")
