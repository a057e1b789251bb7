"""Parts of graphs as one kernel, on both schedules: as eager computes them, in fewer launches."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.backends.compiler import PartGraph
from tesserack.nn import functional as F
from tesserack_kernelgen import launcher, parts

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def claimed(monkeypatch: pytest.MonkeyPatch, schedule: str) -> list[list[str]]:
    """The kernels of each part that was compiled, by name."""
    seen: list[list[str]] = []
    compile_part = parts.compile_part

    def compiled(card: Any, device: int, part: PartGraph) -> Any:
        made = compile_part(card, device, part)
        if made is not NotImplemented:
            seen.append([node.op for node in part.nodes])
        return made

    from tesserack_opencl import backend, card

    monkeypatch.setattr(parts, "compile_part", compiled)
    card.install(backend)
    return seen


def traced(program: Callable[..., Any], *args: ts.Tensor) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ts.jit.trace(program, args, check_trace=False)


def check(program: Callable[..., Any], *args: ts.Tensor) -> None:
    """A traced program on the card, by its plan, and eager on the cpu."""
    on = [x.to("opencl") for x in args]
    run = traced(program, *on)
    for _ in range(3):
        got = run(*on)
    expected = program(*args)
    pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
    for a, b in pairs:
        ts.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5, equal_nan=True)


SHAPES = [(6, 5), (3, 4, 5), (2, 3, 4, 6), (64, 40)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64], ids=str)
def test_programs_around_softmax(claimed: list[list[str]], shape: tuple[int, ...], dtype: Any) -> None:
    x, y = ts.randn(shape, dtype=dtype), ts.randn(shape, dtype=dtype)
    x.view(-1)[0] = float("nan")
    for dim in (-1, 0):
        check(lambda x, y, dim=dim: (x * 0.5 + y).softmax(dim), x, y)
        check(lambda x, y, dim=dim: x.log_softmax(dim) * y - 1, x, y)
        check(lambda x, y, dim=dim: F.relu((x - y).softmax(dim) - 0.1), x, y)
    assert ["pointwise", "softmax"] in claimed and ["log_softmax", "pointwise"] in claimed
    assert ["pointwise", "softmax", "pointwise"] in claimed


@pytest.mark.parametrize("width", [5, 32, 130])
def test_programs_around_normalisations(claimed: list[list[str]], width: int) -> None:
    x, y, w = ts.randn(7, width), ts.randn(7, width), ts.randn(width)
    check(lambda x, y, w: F.gelu(F.layer_norm(x + y, (width,), w, w)), x, y, w)
    check(lambda x, y, w: F.rms_norm(x * y, (width,), w) * x, x, y, w)
    image = ts.randn(3, 8, 5, width)
    check(lambda x, m, v: F.relu(F.batch_norm(x, m, v)), image, ts.randn(8), ts.rand(8))
    assert ["pointwise", "native_layer_norm", "pointwise"] in claimed and ["native_batch_norm", "pointwise"] in claimed


def test_a_result_that_others_read_is_kept(claimed: list[list[str]]) -> None:
    def program(x: ts.Tensor) -> tuple[ts.Tensor, ...]:
        y = x.softmax(1)
        return y, y * 2

    check(program, ts.randn(4, 5))
    check(lambda x: (lambda y: y.relu() + y.softmax(0))(x.softmax(1)), ts.randn(4, 5))
    check(lambda x: (lambda y: (y.softmax(1), y.softmax(0)))(x * 2), ts.randn(4, 5))
    check(lambda x: (x * 2).t().softmax(1), ts.randn(4, 5))  # seen otherwise than it lies
    check(lambda x: (x * x.t()).softmax(1), ts.randn(5, 5))  # operands that do not lie alike
    assert ["pointwise", "softmax"] not in claimed


def test_programs_that_need_what_is_not_there_yet(claimed: list[list[str]]) -> None:
    """Another result of the same kernel, and numbers of more bits than it computes in."""

    def gradients(x: ts.Tensor, w: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        with ts.enable_grad():
            gx, gw = ts.autograd.grad((F.layer_norm(x, (8,), w) ** 2).sum(), [x, w])
        return gx * gw, gw

    check(gradients, ts.randn(8), ts.randn(8))
    assert ["native_layer_norm_backward", "pointwise"] not in claimed
    wide = ts.full((2, 3), 1e300, dtype=ts.float64)
    run = traced(lambda x, y: x.softmax(1) * y, ts.rand(2, 3, device="opencl"), wide.to("opencl"))
    for _ in range(3):
        assert run(ts.zeros(2, 3, device="opencl"), wide.to("opencl")).cpu().isfinite().all()
    check(lambda x, y: (x + 1).softmax(1) + y, ts.randn(2, 3), ts.randn(2, 3, dtype=ts.float64))


def test_parts_that_the_core_has_cut_are_left(claimed: list[list[str]]) -> None:
    def program(x: ts.Tensor) -> ts.Tensor:
        y = (x * 2).softmax(1)
        x.add_(1)
        return y * x

    x = ts.randn(200, 100)
    on = x.to("opencl")
    run = traced(program, on.clone())
    for _ in range(3):
        got, expected = run(on), program(x)
    ts.testing.assert_close(got.cpu(), expected)
    assert ["pointwise"] not in claimed


def test_small_calls_together(claimed: list[list[str]]) -> None:
    def program(*given: ts.Tensor) -> ts.Tensor:
        count, mean, other, wide = given
        wide = wide.softmax(1)
        count.add_(1)
        wide = wide @ wide.t()
        mean.mul_(0.5).add_(other)
        wide = wide.softmax(1)
        other.neg_()
        return wide

    on = [ts.tensor(3), ts.randn(7), ts.randn(7), ts.randn(4, 5)]
    cards = [x.to("opencl") for x in on]
    run = traced(program, *(x.clone() for x in cards))
    for _ in range(4):
        got, expected = run(*cards), program(*on)
        ts.testing.assert_close(got.cpu(), expected)
        for a, b in zip(cards, on, strict=True):
            ts.testing.assert_close(a.cpu(), b)
    assert any(len(part) > 1 and {*part} == {"pointwise"} for part in claimed)


def test_a_template_that_was_replaced_is_not_fused(claimed: list[list[str]]) -> None:
    from tesserack_opencl import backend, card

    known = backend._find_kernel("softmax")
    assert known is not None
    try:
        backend.kernel("softmax")(lambda out, x, dim: NotImplemented)
        check(lambda x: (x * 2).softmax(1), ts.randn(4, 5))
        assert not any("softmax" in part for part in claimed)
    finally:
        card.install(backend)


def steps(device: str, compiled: bool, count: int = 4) -> list[ts.Tensor]:
    """What training a small network leaves."""
    ts.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Flatten(), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5),
    ).to(device)  # fmt: skip
    run = ts.compile(net) if compiled else net
    optimizer = ts.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    x, y = ts.randn(6, 1, 8, 8).to(device), ts.arange(6).remainder(5).to(device)
    for _ in range(count):
        optimizer.zero_grad()
        F.cross_entropy(run(x), y).backward()
        optimizer.step()
    return [value.cpu() for value in net.state_dict().values()]


def test_training_steps(claimed: list[list[str]]) -> None:
    for a, b in zip(steps("opencl", True, 6), steps("cpu", False, 6), strict=True):
        ts.testing.assert_close(a, b, rtol=2e-3, atol=2e-4)
    kinds = {tuple(part) for part in claimed}
    assert ("native_batch_norm", "pointwise") in kinds and ("pointwise", "native_batch_norm_backward") in kinds


def test_launches_of_the_digits_step(opencl: Any) -> None:
    """A step of ``examples/digits.py``, compiled, is 30 launches or fewer where items are loops."""
    if not opencl.device(0).serial:
        pytest.skip("counted for devices of few processors")
    sys.path.insert(0, str(EXAMPLES))
    import digits

    ts.manual_seed(0)
    model = digits.make_model().to("opencl")
    optimizer = ts.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-2)
    x, y = ts.randn(64, 1, 8, 8, device="opencl"), ts.randint(0, 10, (64,), device="opencl")

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    compiled = ts.compile(step)
    for _ in range(6):
        compiled()
    before = launcher.launches()
    compiled()
    assert launcher.launches() - before <= 30
