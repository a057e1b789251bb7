"""Cards of the tests learn to read digits: one whose work is always late, one that enters Python to compile only."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import tesserack as ts
from late_backend import Late
from plan_backend import Planned
from tesserack import _native, nn
from tesserack.backends.recording import record
from tesserack.nn import functional as F

native: Any = _native
datasets = pytest.importorskip("sklearn.datasets", reason="the scans come with scikit-learn")
pytestmark = pytest.mark.usefixtures("no_fallback")
BATCH = 96


def digits() -> tuple[ts.Tensor, ts.Tensor]:
    scans = datasets.load_digits()
    order = ts.randperm(1797, generator=ts.Generator().manual_seed(3))
    return ts.tensor(scans.data / 16, dtype=ts.float32)[order], ts.tensor(scans.target)[order]


def network(device: str) -> nn.Module:
    ts.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10)).to(device)


def accuracy(model: nn.Module, device: str, x: ts.Tensor, y: ts.Tensor) -> float:
    with ts.no_grad():
        return float((model(x.to(device)).argmax(1).cpu() == y).float().mean())


def learn(device: str, streams: bool, epochs: int, after_epoch: Callable[[int], None] = lambda epoch: None) -> float:
    images, labels = digits()
    model = network(device)
    optimizer = ts.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    upload, compute = (ts.Stream(device), ts.Stream(device)) if streams else (None, None)
    if compute is not None:
        compute.wait_stream(ts.current_stream(device))
    for epoch in range(epochs):
        for start in range(0, 15 * BATCH, BATCH):
            with ts.stream(upload) if upload else nullcontext():
                x = images[start : start + BATCH].to(device)
                y = labels[start : start + BATCH].to(device)
            if compute is not None and upload is not None:
                compute.wait_stream(upload)
                x.record_stream(compute)
                y.record_stream(compute)
            with ts.stream(compute) if compute else nullcontext():
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
        after_epoch(epoch)
    if compute is not None:
        ts.current_stream(device).wait_stream(compute)
    return accuracy(model, device, images[15 * BATCH :], labels[15 * BATCH :])


@pytest.mark.parametrize("streams", [False, True], ids=["one stream", "streams"])
@pytest.mark.parametrize("own", [False, True], ids=["cached", "own memory"])
def test_a_card_whose_work_is_late_learns(streams: bool, own: bool) -> None:
    made = Late(f"latelearns{int(own)}{int(streams)}", own)
    native._register_python_backend(made, __file__)
    assert learn(made.name, streams, epochs=6) > 0.93


def test_a_card_that_records_its_steps_learns() -> None:
    made = Late("laterecordslearns", own=True)
    native._register_python_backend(made, __file__)
    images, labels = digits()
    model = network(made.name)
    optimizer = ts.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    x, y = ts.zeros(BATCH, 64, device=made.name), ts.zeros(BATCH, 10, device=made.name)

    def step() -> ts.Tensor:
        optimizer.zero_grad()
        loss = -(F.log_softmax(model(x), 1) * y).sum() / BATCH
        loss.backward()
        optimizer.step()
        return loss

    step()  # makes the momentum's buffers
    recording = record(step, made.name)
    before = native._launch_counters(made.name)["kernels_in_python"]
    for _ in range(6):
        for start in range(0, 15 * BATCH, BATCH):
            x.copy_(images[start : start + BATCH])
            y.copy_(F.one_hot(labels[start : start + BATCH], 10).float())
            recording.replay()
    casts = native._launch_counters(made.name)["kernels_in_python"] - before
    assert made.replayed == 6 * 15 + 1 and casts <= 6 * 15 * 2  # of the copies; none of the step's kernels
    assert accuracy(model, made.name, images[15 * BATCH :], labels[15 * BATCH :]) > 0.93


def test_a_card_with_launch_plans_learns_and_enters_python_to_compile() -> None:
    made = Planned("plannedlearns")
    native._register_python_backend(made, __file__)
    seen: list[dict[str, int]] = []
    assert learn(made.name, False, 6, lambda epoch: seen.append(native._launch_counters(made.name))) > 0.93
    print("launches by plan, kernels that entered Python:", [(c["by_plan"], c["kernels_in_python"]) for c in seen])
    assert len({c["kernels_in_python"] for c in seen}) == 1, "a later epoch entered Python"
    assert seen[0]["kernels_in_python"] == seen[0]["plans"]
    assert seen[-1]["by_plan"] > 20 * seen[-1]["plans"]
