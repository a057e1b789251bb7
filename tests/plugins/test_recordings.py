"""Recording a device's work and replaying it: by the card where it can, else kernel call by kernel call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from late_backend import Late
from tesserack import _native
from tesserack.backends.recording import record

native: Any = _native
pytestmark = pytest.mark.usefixtures("no_fallback")


@pytest.fixture(scope="module")
def card() -> Late:
    """It records launches itself."""
    made = Late("laterecords", own=False)
    native._register_python_backend(made, __file__)
    return made


@pytest.fixture(params=["cpu", "laterecords"])
def device(request: pytest.FixtureRequest, card: Late) -> str:
    return str(request.param)


def test_a_replay_computes_anew(device: str) -> None:
    x = ts.arange(6.0, device=device).reshape(2, 3)
    made = record(lambda: (x * 2 + 1, (x @ x.T).sum(1)), device)
    assert made.by_launches == (device != "cpu")
    assert made.result[0].tolist() == [[1, 3, 5], [7, 9, 11]]
    x.copy_(ts.ones(2, 3))
    others = [ts.zeros(2, 3, device=device) for _ in range(4)]  # would take the recording's memory, were it free
    first, second = made.replay()
    assert first.tolist() == [[3, 3, 3], [3, 3, 3]] and second.tolist() == [6, 6]
    assert all(other.sum().item() == 0 for other in others)


def test_random_numbers_are_new_and_those_of_a_run_without_recording(device: str) -> None:
    def draw() -> ts.Tensor:
        whole = ts.randint(0, 1000, (5,), device=device)
        return ts.rand(5, device=device) + ts.randn(5, device=device) + whole

    ts.manual_seed(11)
    want = [draw().tolist() for _ in range(3)]
    ts.manual_seed(11)
    made = record(draw, device)
    got = [made.result.tolist(), *(made.replay().tolist() for _ in range(2))]
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert got[0] != got[1] != got[2]
    ts.manual_seed(11)
    np.testing.assert_allclose(made.replay().tolist(), want[0], rtol=1e-6)


def test_a_training_step_learns_as_without_recording(device: str) -> None:
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(8, 16, 4)), rng.normal(size=(8, 16, 2))

    def train(recorded: bool) -> list[float]:
        ts.manual_seed(0)
        layers = ts.nn.Sequential(ts.nn.Linear(4, 8), ts.nn.Tanh(), ts.nn.Dropout(0.25), ts.nn.Linear(8, 2)).to(device)
        optimizer = ts.optim.SGD(layers.parameters(), lr=0.1, momentum=0.9)
        x, y = ts.zeros(16, 4, device=device), ts.zeros(16, 2, device=device)
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
                made = record(step, device)
                loss = made.result
            else:
                loss = made.replay()
            losses.append(loss.item())
        return losses

    np.testing.assert_allclose(train(True), train(False), rtol=1e-5)


def test_what_a_replay_would_leave_out_is_refused(device: str) -> None:
    x = ts.ones(3, device=device)
    for function, what in (
        (lambda: x.sum().item(), "a read of values by the host"),
        (lambda: x + ts.tensor([1.0, 2, 3], device=device), "a copy from the host"),
        (lambda: native.synchronize(ts.device(device)), "a wait for the device"),
        (lambda: record(lambda: x, device), "is recording already"),
    ):
        with pytest.raises(RuntimeError, match=what):
            record(function, device)
    assert (x + 1).tolist() == [2, 2, 2]  # no recording is left open


def test_a_card_says_whether_its_random_numbers_can_be_recorded(card: Late) -> None:
    kept = card._kernels["random_bits"]
    card._kernels["random_bits"] = (*kept[:6], 0)
    native._kernel_changed(card.name, "random_bits")
    try:
        with pytest.raises(RuntimeError, match="random_bits does not declare TS_K_DEVICE_RANDOM"):
            record(lambda: ts.rand(3, device=card.name), card.name)
    finally:
        card._kernels["random_bits"] = kept
        native._kernel_changed(card.name, "random_bits")
    assert len(set(ts.rand(3, device=card.name).tolist())) == 3


def test_replays_enter_no_kernel_of_python(card: Late) -> None:
    x = ts.ones(4, device=card.name)
    made = record(lambda: ((x + 1) * x).exp(), card.name)
    before, replayed = native._launch_counters(card.name)["kernels_in_python"], card.replayed
    for _ in range(5):
        made.replay()
    assert native._launch_counters(card.name)["kernels_in_python"] == before
    assert card.replayed == replayed + 5


def test_a_recorded_operator_on_the_cpu_is_cheap_to_repeat() -> None:
    x = ts.rand(64)
    made = record(lambda: (x.sin() + x.cos()).exp().sum(), "cpu")
    assert made.steps >= 3
    with ts.profiler.profile() as profile:
        made.replay()
    assert [kernel.device for kernel in profile.kernels()] == ["cpu"] * made.steps
    assert not [event for event in profile.events() if not event.user]  # kernels alone: no operator ran
