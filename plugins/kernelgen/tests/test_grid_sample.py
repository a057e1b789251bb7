"""Generated grid_sample and its gradients against the cpu backend, as loops and as threads."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts

F = ts.nn.functional
CASES: dict[str, tuple[tuple[int, ...], str, str, bool, Any]] = {
    "linear": ((2, 3, 7, 5), "bilinear", "zeros", False, ts.float32),
    "nearest": ((2, 2, 4, 6), "nearest", "reflection", True, ts.float16),
    "cubic": ((1, 2, 5, 6), "bicubic", "border", True, ts.float64),
    "blocks": ((2, 2, 4, 3, 5), "bilinear", "reflection", False, ts.float16),
}
TOLERANCE = {ts.float16: 5e-3, ts.float32: 2e-5, ts.float64: 1e-12}


def run(name: str, device: str) -> list[Any]:
    shape, mode, padding, align, dtype = CASES[name]
    ts.manual_seed(4)
    x = ts.randn(shape).to(dtype)
    grid = (ts.rand(shape[0], *(9, 11, 3)[: len(shape) - 2], len(shape) - 2) * 3 - 1.5).to(dtype)
    seed = ts.randn(*shape[:2], *grid.shape[1:-1]).to(dtype).to(device)
    x, grid = x.to(device).requires_grad_(), grid.to(device).requires_grad_()
    y = F.grid_sample(x, grid, mode, padding, align)
    return [y.detach(), *ts.autograd.grad(y, (x, grid), seed)]


def check(name: str) -> None:
    before = ts.backends.fallbacks()
    got = run(name, "opencl")
    assert ts.backends.fallbacks() == before
    tolerance = TOLERANCE[CASES[name][-1]]
    for out, expected in zip(got, run(name, "cpu"), strict=True):
        ts.testing.assert_close(out.cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(schedule: str, name: str) -> None:
    check(name)


def test_gradients_in_order(schedule: str) -> None:
    """Where deterministic results are asked for, also after gradients were added up atomically."""
    run("linear", "opencl")
    ts.use_deterministic_algorithms(True)
    try:
        check("linear")
        first = run("linear", "opencl")
        assert all(ts.equal(a, b) for a, b in zip(first, run("linear", "opencl"), strict=True))
    finally:
        ts.use_deterministic_algorithms(False)


@pytest.mark.parametrize("n", [0, 1, 2, 17, 5000, 32768, 32769, 100_003])
def test_random_order(opencl: Any, n: int) -> None:
    """A seed makes the permutation that the cpu makes, in one pass or in several."""
    before = ts.backends.fallbacks()
    made = {name: ts.Generator(device=name).manual_seed(9) for name in ("cpu", "opencl")}
    orders = [ts.randperm(n, generator=generator, device=name) for name, generator in made.items()]
    assert ts.backends.fallbacks() == before and ts.equal(orders[0], orders[1].cpu())
