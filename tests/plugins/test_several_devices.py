"""Tensors of several devices in one process: copies among them, pinned memory, and faults that kernels find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from late_backend import Late
from tesserack import _native
from tesserack.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture(scope="module")
def opencl() -> Any:
    """The module of the opencl device. Skips where no platform works, and says why."""
    pytest.importorskip("tesserack_opencl")
    if reason := ts.backends.why_unavailable("opencl"):
        pytest.skip(reason)
    return ts.get_device_module("opencl")


@pytest.fixture(scope="module")
def late() -> Late:
    """A device whose streams run late."""
    made = Late("lateamong", own=False)
    native: Any = _native
    native._register_python_backend(made, __file__)
    return made


@pytest.mark.parametrize("dtype", [ts.float32, ts.int64, ts.bool, ts.float16])
def test_copies_go_round_all_devices(opencl: Any, late: Late, dtype: Any) -> None:
    given = (ts.randn(70, 33) * 3).to(dtype)
    devices = "opencl", "lateamong", "reference", "lateamong", "opencl", "cpu", "lateamong", "cpu"
    for x in (given, given.t(), given[3:60:2, 5:]):
        moved = x
        for device in devices:
            moved = moved.to(device, non_blocking=True)
            assert moved.device.type == device
        assert ts.equal(moved, x)


def test_copies_are_ordered_after_the_work_that_makes_their_source(opencl: Any, late: Late) -> None:
    x = ts.ones(300, 300, device="opencl")
    for _ in range(5):
        x = x @ x / 300  # still ones, and under way
    there = (x.to("lateamong", non_blocking=True) * 2).to("opencl", non_blocking=True)
    assert (there + x).sum().item() == 3 * 300 * 300


def test_copies_on_another_stream_wait_for_its_events(opencl: Any, late: Late) -> None:
    side = opencl.Stream()
    x = ts.ones(400, 400, device="opencl")
    for _ in range(5):
        x = x @ x / 400
    made = opencl.current_stream().record_event()
    with opencl.stream(side):
        side.wait_event(made)
        y = (x + 1).to("lateamong", non_blocking=True)
    side.synchronize()
    assert y.sum().item() == 2 * 400 * 400


def test_the_source_of_a_large_write_is_the_callers_again_at_once(opencl: Any) -> None:
    busy = ts.ones(700, 700, device="opencl")
    given = ts.arange(3_000_000)
    for _ in range(3):
        busy = busy @ busy / 700
    x = given.to("opencl")
    given.zero_()
    assert ts.equal(x.cpu(), ts.arange(3_000_000))


def test_a_loader_pins_for_the_device(opencl: Any) -> None:
    data = TensorDataset(ts.randn(50, 3), ts.arange(50))
    seen = []
    for scans, numbers in DataLoader(data, 16, pin_memory=True, pin_memory_device="opencl"):
        assert scans.is_pinned() and numbers.is_pinned()
        seen.append((scans.to("opencl", non_blocking=True), numbers.to("opencl", non_blocking=True)))
    assert ts.equal(ts.cat([n for _, n in seen]).cpu(), ts.arange(50))
    assert ts.equal(ts.cat([s for s, _ in seen]).cpu(), data.tensors[0])
    back = ts.empty(50, dtype=ts.int64).pin_memory("opencl")
    back.copy_(ts.arange(50, device="opencl"), non_blocking=True)
    opencl.synchronize()
    assert ts.equal(back, ts.arange(50))


def index(x: ts.Tensor, at: ts.Tensor) -> Any:
    return x[at]


def write(x: ts.Tensor, at: ts.Tensor) -> Any:
    x.clone()[at] = 0


FAULTS: dict[str, tuple[Callable[[ts.Tensor, ts.Tensor], Any], type[Exception], str]] = {
    "gather": (lambda x, at: x.gather(0, at), IndexError, "gather: index 12 is out of bounds"),
    "index": (index, IndexError, "gather: index 12 is out of bounds"),
    "index of two dims": (lambda x, at: x.reshape(2, 5)[at * 0, at], IndexError, "gather: index -1 is out of bounds"),
    "index_put": (write, IndexError, "scatter: index 12 is out of bounds"),
    "embedding": (lambda x, at: ts.nn.functional.embedding(at, x.reshape(10, 1)), IndexError, "embedding: index 12"),
    "floor_divide": (lambda x, at: at // (at - 12), RuntimeError, "pointwise floordiv: integer division by zero"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_told_at_the_next_wait_and_in_checked_mode_at_the_call(opencl: Any, name: str) -> None:
    call, error, message = FAULTS[name]
    x, at = ts.arange(10.0, device="opencl"), ts.tensor([1, 12, 2], device="opencl")
    call(x, at)
    with pytest.raises(error, match=message):
        opencl.synchronize()
    opencl.synchronize()  # told once
    assert x.sum().item() == 45
    before = ts.backends.set_checked(True)
    try:
        with pytest.raises(error):
            call(x, at)
    finally:
        ts.backends.set_checked(before)


def test_indexing_does_not_wait(opencl: Any) -> None:
    x = ts.randn(20, 30, device="opencl")
    at = ts.tensor([1, -2, 3], device="opencl")
    x[at], x[at, at], x[:, at]  # the first time some constants are made
    with ts.transfer_guard("error"):
        taken, pairs, columns = x[at], x[at, at], x[:, at]
        x[at] = taken * 2
    host = x.cpu()
    assert ts.equal(taken.cpu() * 2, host[at.cpu()])
    assert pairs.shape == (3,) and columns.shape == (20, 3)
