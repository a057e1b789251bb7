"""Whole training steps, traced: forward, backward and the optimizer's step as one graph, equal in bits to eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from programs import same_bits
from tesserack import jit, nn, optim
from tesserack.nn import functional as F

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")

OPTIMIZERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "SGD with momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01),
}


def build() -> nn.Module:
    ts.manual_seed(0)
    conv = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(conv, nn.Linear(48, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def training(make: Callable[[Any], optim.Optimizer]) -> tuple[nn.Module, optim.Optimizer, Callable[..., ts.Tensor]]:
    """A model, its optimizer, and a step."""
    model = build()
    optimizer = make(model.parameters())

    def step(x: ts.Tensor, y: ts.Tensor) -> ts.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return model, optimizer, step


def batch(k: int) -> tuple[ts.Tensor, ts.Tensor]:
    return ts.randn(6, 1, 4, 4, generator=ts.Generator().manual_seed(k)), (ts.arange(6) + k) % 4


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_of_the_graph_are_steps_of_the_program(name: str) -> None:
    model, optimizer, step = training(OPTIMIZERS[name])
    twin, other, eager = training(OPTIMIZERS[name])
    assert same_bits(step(*batch(0)), eager(*batch(0)))
    traced = jit.trace(step, batch(1), check_trace=False)  # which makes the step as well
    eager(*batch(1))
    for k in range(2, 12):
        with ts.set_grad_enabled(k % 3 > 0):
            loss = traced(*batch(k))
        assert same_bits(loss, eager(*batch(k))), k
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        assert same_bits(a, b)
    for a, b in zip(optimizer.state_dict()["state"].values(), other.state_dict()["state"].values(), strict=True):
        assert all(same_bits(a[key], b[key]) for key in a if isinstance(a[key], ts.Tensor)), name
    (plan, *_) = traced._program._runner.plans()
    called = set(plan["operators"])  # that look at values: the count of steps
    assert plan["kernels"] > 20 and called <= {"_adam_step_counted_"}


def test_sizes_are_those_of_the_trace() -> None:
    _, _, step = training(OPTIMIZERS["SGD"])
    traced = jit.trace(step, batch(0), check_trace=False)
    with pytest.raises(RuntimeError, match="holds a backward pass"):
        traced(batch(0)[0][:3], batch(0)[1][:3])


@pytest.mark.parametrize(
    "make",
    [
        lambda p: optim.NAdam(p, lr=0.01),
        lambda p: optim.RAdam(p, lr=0.01),
        lambda p: optim.Adagrad(p, lr=0.01, lr_decay=0.1),
        lambda p: optim.ASGD(p, lr=0.01),
    ],
)
def test_numbers_that_would_stay_are_refused(make: Callable[[Any], optim.Optimizer]) -> None:
    _, _, step = training(make)
    step(*batch(0))
    with pytest.raises(RuntimeError, match="count of steps outside of operators"):
        jit.trace(step, batch(1), check_trace=False)


@pytest.mark.parametrize("name", ["SGD with momentum", "Adam", "RMSprop"])
def test_a_state_that_every_run_would_start_is_refused(name: str) -> None:
    _, _, step = training(OPTIMIZERS[name])
    with pytest.raises(RuntimeError, match="has made a step"):
        jit.trace(step, batch(0), check_trace=False)
