"""Recorded launches as command buffers, where the driver has them, and what is refused meanwhile."""

from __future__ import annotations

import ctypes
import dataclasses
import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
import tesserack as ts
from tesserack import _native
from tesserack.backends.recording import record
from tesserack_kernelgen import launcher
from tesserack_kernelgen.command_buffers import Functions
from tesserack_opencl import command_buffers, devices
from tesserack_opencl.card import OpenCLCard

MODULE: Any = sys.modules["tesserack_opencl.backend"]  # whose name in the package is the backend's
NAME = "openclrecords"
EXAMINE = command_buffers.examine.__wrapped__  # it is asked once
native: Any = _native
_registered: list[Any] = []


@pytest.fixture
def backend(_device: None) -> Any:
    """The same devices by another name, whose drivers record even where that saves no time. Skips where they cannot."""
    for one in devices.find()[0]:
        if missing := command_buffers.examine(one.context, one.device)[1]:
            pytest.skip(missing)
    if not _registered:
        made = MODULE.OpenCL(NAME, records=True)
        OpenCLCard(made).install(made)
        native._register_python_backend(made, __file__)
        _registered.append(made)
    return _registered[0]


@pytest.fixture
def stream(backend: Any) -> Iterator[int]:
    """A stream of the backend's own, that nothing is left open on."""
    made = backend.stream_create(0, 0)
    yield made
    with pytest.raises(RuntimeError, match="not recorded"):
        backend.capture_end(0, made)
    backend.stream_destroy(0, made)


@pytest.fixture
def patched(backend: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Functions]:
    """The functions by which the first device is recorded meanwhile, to be changed."""
    found = backend.found(0)
    functions, missing = command_buffers.examine(found.context, found.device)
    assert functions is not None and not missing
    changed = Functions.from_buffer_copy(functions)
    with monkeypatch.context() as patch:
        patch.setattr(command_buffers, "examine", lambda context, device: (changed, ""))
        yield changed


# --- what is recorded ------------------------------------------------------------------------------------------------


def test_a_replay_computes_anew(backend: Any) -> None:
    x = ts.arange(6.0, device=NAME).reshape(2, 3)
    made = record(lambda: (x * 2 + 1, (x @ x.T).sum(1)), NAME)
    assert made.by_launches and made.steps == 0
    assert made.result[0].tolist() == [[1, 3, 5], [7, 9, 11]]
    x.copy_(ts.ones(2, 3))
    others = [ts.zeros(2, 3, device=NAME) for _ in range(4)]  # would take the recording's memory, were it free
    first, second = made.replay()
    assert first.tolist() == [[3, 3, 3], [3, 3, 3]] and second.tolist() == [6, 6]
    assert all(other.sum().item() == 0 for other in others)


def test_kernels_keep_the_arguments_of_when_they_were_recorded(backend: Any) -> None:
    """One kernel serves many calls: within a recording, before it, after it, and in another one."""
    x = ts.ones(5, device=NAME)

    def grow(by: list[float]) -> Callable[[], None]:
        return lambda: [x.mul_(2.0).add_(value) for value in by] and None

    x.mul_(2.0).add_(100.0)
    first = record(grow([1.0, 2.0, 3.0]), NAME)
    x.mul_(2.0).add_(1000.0)
    second = record(grow([5.0]), NAME)
    expected = ((102 * 2 + 1) * 2 + 2) * 2 + 3
    expected = (expected * 2 + 1000) * 2 + 5
    assert x.tolist() == [expected] * 5
    x.fill_(1)
    for made in (first, second, first):
        made.replay()
    assert x.tolist() == [(((1 * 2 + 1) * 2 + 2) * 2 + 3) * 16 + 5 * 8 + 11] * 5


def test_random_numbers_are_new_and_those_of_a_run_without_recording(backend: Any) -> None:
    def draw() -> ts.Tensor:
        whole = ts.randint(0, 1000, (500,), device=NAME)
        return ts.rand(500, device=NAME) + ts.randn(500, device=NAME) + whole

    ts.manual_seed(11)
    want = [draw().tolist() for _ in range(3)]
    ts.manual_seed(11)
    made = record(draw, NAME)
    got = [made.result.tolist(), *(made.replay().tolist() for _ in range(2))]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got[0] != got[1] != got[2]


def test_a_training_step_learns_as_without_recording(backend: Any) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(8, 16, 4)), rng.normal(size=(8, 16, 2))

    def train(recorded: bool) -> list[float]:
        ts.manual_seed(0)
        layers = ts.nn.Sequential(ts.nn.Linear(4, 8), ts.nn.Tanh(), ts.nn.Dropout(0.25), ts.nn.Linear(8, 2)).to(NAME)
        optimizer = ts.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9)
        x, y = ts.zeros(16, 4, device=NAME), ts.zeros(16, 2, device=NAME)
        losses: list[float] = []

        def step() -> ts.Tensor:
            optimizer.zero_grad()
            loss = ts.nn.functional.mse_loss(layers(x), y)
            loss.backward()
            optimizer.step()
            return loss

        made = None
        for k in range(8):
            x.copy_(ts.tensor(inputs[k], dtype=ts.float32))
            y.copy_(ts.tensor(targets[k], dtype=ts.float32))
            if not recorded or k == 0:
                loss = step()  # the first makes the momentum's buffers
            elif made is None:
                made = record(step, NAME)
                loss = made.result
            else:
                loss = made.replay()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(train(True), train(False), rtol=1e-5)


def test_copies_within_the_device_are_recorded(backend: Any, stream: int) -> None:
    x, y = (backend.alloc(0, 16, None) for _ in range(2))
    for memory, values in ((x, range(16)), (y, [99] * 16)):
        backend.copy_from_host(0, memory, 0, memoryview(bytes(values)), None)
    backend.synchronize(0, None)
    backend.capture_begin(0, stream)
    backend.copy_within(0, y, 4, x, 8, 6, stream)
    made = backend.capture_end(0, stream)
    assert read(backend, y) == [99] * 16
    backend.capture_replay(0, made, stream)
    backend.synchronize(0, stream)
    assert read(backend, y) == [99] * 4 + [*range(8, 14)] + [99] * 6
    backend.capture_destroy(0, made)
    for memory in (x, y):
        backend.free(0, memory, 16, None)


def read(backend: Any, memory: int) -> list[int]:
    data = bytearray(16)
    backend.copy_to_host(0, memoryview(data), memory, 0, None)
    backend.synchronize(0, None)
    return [*data]


def test_an_index_that_a_replay_finds_out_of_range_is_told_at_the_next_wait(backend: Any) -> None:
    x, at = ts.arange(5.0, device=NAME), ts.tensor([1, 2]).to(NAME)
    made = record(lambda: x.gather(0, at), NAME)
    assert made.result.tolist() == [1, 2]
    at.copy_(ts.tensor([1, 7]))
    made.replay()
    with pytest.raises(IndexError, match=r"gather.*index 7 is out of bounds"):
        cards().synchronize()


# --- replays ---------------------------------------------------------------------------------------------------------


def cards() -> Any:
    """The module of the devices."""
    return getattr(ts, NAME)


def work(x: ts.Tensor, steps: int = 12) -> Callable[[], None]:
    """So much that replays overlap with the host's queueing."""
    return lambda: [x.mul_(0.5).add_(1.0) for _ in range(steps)] and None


def test_replays_overlap_and_keep_their_order(backend: Any) -> None:
    x = ts.ones(100_000, device=NAME)
    made = record(work(x), NAME)
    x.fill_(1)
    for _ in range(50):
        made.replay()
        x.add_(1.0)  # on the thread's stream, between two of them
    expected = 1.0
    for _ in range(50):
        for _ in range(12):
            expected = expected * 0.5 + 1
        expected += 1
    np.testing.assert_allclose(x.cpu().numpy(), np.full(100_000, expected, np.float32), rtol=1e-6)


def test_replays_on_other_streams_than_the_recorded_one(backend: Any) -> None:
    x = ts.ones(1000, device=NAME)
    made = native._Recording(ts.device(NAME))
    side = cards().Stream()
    side.wait_stream(cards().current_stream())
    with cards().stream(side):
        made.begin()
        work(x, 1)()
        made.end(run=False)
    assert x.tolist() == [1.0] * 1000
    made.replay()  # on the default stream
    other = cards().Stream()
    other.wait_stream(cards().current_stream())
    with cards().stream(other):
        made.replay()
        made.replay()
    other.synchronize()
    assert x.tolist() == [((1 * 0.5 + 1) * 0.5 + 1) * 0.5 + 1] * 1000


def test_the_default_stream_can_be_recorded(backend: Any) -> None:
    x = ts.ones(3, device=NAME)
    made = native._Recording(ts.device(NAME))
    made.begin()
    x.add_(1)
    made.end(run=False)
    assert x.tolist() == [1, 1, 1]
    made.replay()
    assert x.tolist() == [2, 2, 2]


def test_a_recording_may_go_while_its_replay_is_under_way(backend: Any) -> None:
    x = ts.ones(200_000, device=NAME)
    for turn in range(5):
        made = record(work(x, 30), NAME)
        made.replay()
        del made
        gc.collect()
        ts.zeros(200_000, device=NAME).add_(turn)
    assert x.cpu().tolist() == pytest.approx([2.0] * 200_000)


def test_a_replay_is_one_launch(backend: Any) -> None:
    x = ts.ones(16, device=NAME)
    made = record(work(x), NAME)
    before = launcher.launches()
    made.replay()
    assert launcher.launches() == before + 1
    stream = cards().current_stream()
    stream.synchronize()
    assert stream.query()


def test_a_driver_that_has_one_replay_at_a_time_is_waited_for(backend: Any, patched: Functions) -> None:
    """A device without CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR. PoCL refuses what overlaps, too."""
    patched.simultaneous_use = 0
    test_replays_overlap_and_keep_their_order(backend)


# --- what is refused -------------------------------------------------------------------------------------------------


def test_what_a_replay_would_leave_out_is_refused(backend: Any) -> None:
    x = ts.ones(3, device=NAME)
    for function, what in (
        (lambda: x.sum().item(), "a read of values by the host"),
        (lambda: x + ts.tensor([1.0, 2, 3], device=NAME), "a copy from the host"),
        (lambda: cards().synchronize(), "a wait for the device"),
    ):
        with pytest.raises(RuntimeError, match=what):
            record(function, NAME)
    assert (x + 1).tolist() == [2, 2, 2]  # no recording is left open


def test_slots_refuse_what_cannot_be_recorded_and_so_does_the_end(backend: Any, stream: int) -> None:
    memory, event = backend.alloc(0, 16, None), backend.event_create(0, False)
    backend.event_record(0, event, None)
    data = bytearray(16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(data))
    refused: dict[str, Callable[[], Any]] = {
        "a copy from the host": lambda: backend.copy_from_host(0, memory, 0, memoryview(data), stream),
        "a copy to the host": lambda: backend.copy_to_host(0, memoryview(data), memory, 0, stream),
        "a copy from the host ": lambda: backend.copy_from_pinned(0, memory, 0, address, 16, stream),
        "a copy to the host ": lambda: backend.copy_to_pinned(0, address, memory, 0, 16, stream),
        "a wait of the host": lambda: backend.synchronize(0, stream),
        "an event": lambda: backend.event_record(0, event, stream),
        "a wait for an event": lambda: backend.stream_wait_event(0, stream, event),
    }
    for what, call in refused.items():
        backend.capture_begin(0, stream)
        with pytest.raises(RuntimeError, match=f"{what.strip()} cannot be recorded"):
            call()
        with pytest.raises(RuntimeError, match=f"{what.strip()} cannot be recorded"):
            backend.capture_end(0, stream)
        backend.synchronize(0, stream)
    for call in refused.values():
        call()
    backend.synchronize(0, stream)
    backend.event_destroy(0, event)
    backend.free(0, memory, 16, None)


def test_a_stream_is_recorded_once_at_a_time(backend: Any, stream: int) -> None:
    backend.capture_begin(0, stream)
    with pytest.raises(RuntimeError, match="recorded already"):
        backend.capture_begin(0, stream)
    empty = backend.capture_end(0, stream)
    backend.capture_replay(0, empty, stream)
    backend.synchronize(0, stream)
    backend.capture_destroy(0, empty)


def test_a_launch_that_the_driver_refuses_ends_in_an_error(backend: Any, patched: Functions) -> None:
    """And the next recording is none the worse for it."""
    refuse = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 12)(lambda *_: -5)
    x, known = ts.ones(3, device=NAME), patched.clCommandNDRangeKernelKHR
    patched.clCommandNDRangeKernelKHR = ctypes.cast(refuse, ctypes.c_void_p).value
    with pytest.raises(RuntimeError, match=r"clCommandNDRangeKernelKHR refused.*status -5"):
        record(lambda: x * 2, NAME)
    patched.clCommandNDRangeKernelKHR = known
    assert record(lambda: x * 3, NAME).replay().tolist() == [3, 3, 3]


# --- drivers that do not have it, or not right -----------------------------------------------------------------------


@dataclasses.dataclass
class Device:
    """A device as far as it is asked."""

    extensions: str
    type: int = 0


def versions(*told: tuple[bytes, tuple[int, int, int]]) -> bytes:
    words = ((major << 22 | minor << 12 | patch, name) for name, (major, minor, patch) in told)
    return b"".join(word.to_bytes(4, "little") + name.ljust(64, b"\0") for word, name in words)


@pytest.mark.parametrize(
    ("extensions", "told", "reason"),
    [
        ("cl_khr_fp64", b"", "does not offer cl_khr_command_buffer"),
        ("cl_khr_command_buffer", b"", "is of version unknown"),
        ("cl_khr_command_buffer", versions((b"cl_khr_fp64", (1, 0, 0))), "is of version unknown"),
        ("cl_khr_command_buffer", versions((b"cl_khr_command_buffer", (1, 0, 0))), "is of version 1.0.0; known are"),
        (
            "cl_khr_command_buffer",
            versions((b"cl_khr_fp64", (1, 0, 0)), (b"cl_khr_command_buffer", (0, 9, 9))),
            "is of version 0.9.9; known are",
        ),
    ],
)
def test_unknown_versions_are_not_used(
    extensions: str, told: bytes, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_buffers, "_info", lambda device, what: told)
    functions, why = EXAMINE(None, Device(extensions))
    assert functions is None and reason in why


@pytest.mark.parametrize(
    ("name", "count", "status", "reason"),
    [
        ("clEnqueueCommandBufferKHR", 6, 0, "a trial gave"),  # does nothing
        ("clEnqueueCommandBufferKHR", 6, -59, "status -59"),
        ("clCommandNDRangeKernelKHR", 12, -5, "status -5"),
        ("clCommandCopyBufferKHR", 11, 0, "a trial gave"),
        ("clFinalizeCommandBufferKHR", 1, -6, "status -6"),
    ],
)
def test_a_driver_that_fails_the_trial_is_not_used(
    name: str, count: int, status: int, reason: str, patched: Functions, backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * count)(lambda *_: status)
    setattr(patched, name, ctypes.cast(other, ctypes.c_void_p).value)
    monkeypatch.setattr(command_buffers, "_functions", lambda device, version: patched)
    functions, why = EXAMINE(backend.found(0).context, backend.found(0).device)
    assert functions is None and reason in why


def test_a_function_that_is_missing_is_told(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Functions, "NAMES", (*Functions.NAMES, "clCommandDanceKHR"))
    functions, why = EXAMINE(backend.found(0).context, backend.found(0).device)
    assert functions is None and "has no clCommandDanceKHR" in why


@pytest.mark.parametrize(
    ("cards", "processors", "switch", "offered"),
    [
        ([True], [], "", True),
        ([True, True], [True], "", True),
        ([True, False], [], "", False),  # where one of them has not, the core records for all
        ([True], [False], "", False),
        ([True], [], "0", False),
        ([], [True], "", False),
        ([], [True], "1", True),
        ([], [False], "1", False),
        ([], [], "1", False),
    ],
)
def test_the_slots_are_there_if_all_devices_can_and_one_is_a_card(
    cards: list[bool], processors: list[bool], switch: str, offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [*((cl.device_type.GPU, yes) for yes in cards), *((cl.device_type.CPU, yes) for yes in processors)]
    told = tuple(devices.Found(Device("", type=kind), yes, True, True, True) for kind, yes in kinds)
    monkeypatch.setattr(MODULE, "find", lambda: (told, ""))
    monkeypatch.setattr(devices, "examine", lambda context, device: (Functions() if context else None, ""))
    monkeypatch.setenv("TESSERACK_OPENCL_COMMAND_BUFFERS", switch)
    made = MODULE.OpenCL()
    slots = made.capture_begin, made.capture_end, made.capture_replay, made.capture_destroy
    assert [slot is not None for slot in slots] == [offered] * 4
