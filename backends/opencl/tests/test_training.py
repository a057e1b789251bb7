"""Steps of the digits example: the same losses on every device, few launches, and no waits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))


def stepper(device: str) -> Callable[[], ts.Tensor]:
    """A function that takes one training step and returns its loss, which is on the device."""
    digits = pytest.importorskip("digits")
    ts.manual_seed(0)
    model = digits.make_model().to(device)
    random = ts.Generator().manual_seed(0)
    scans = ts.rand(32, 1, 8, 8, generator=random).to(device)
    labels = ts.randint(0, 10, (32,), generator=random).to(device)
    ts.manual_seed(0)  # dropout's numbers
    optimizer = ts.optim.AdamW(model.parameters(), lr=1e-3)
    loss_of = ts.nn.CrossEntropyLoss(label_smoothing=0.05)

    def step() -> Any:
        loss = loss_of(model(digits.shifted(scans, random)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_one_seed_gives_the_same_losses_everywhere() -> None:
    losses = {}
    for device in ("cpu", "opencl", "reference"):
        step = stepper(device)
        losses[device] = ts.stack([step().cpu() for _ in range(6)])
    for device in ("opencl", "reference"):
        ts.testing.assert_close(losses[device], losses["cpu"], rtol=0, atol=1e-4)


def test_a_step_launches_few_kernels_and_waits_for_nothing() -> None:
    from tesserack_opencl import card

    step = stepper("opencl")
    for _ in range(2):
        step().item()
    before, helped = card.statistics.launches, ts.backends.fallbacks()
    with ts.transfer_guard("error"):
        step()
    assert card.statistics.launches - before <= 100
    assert ts.backends.fallbacks() == helped
