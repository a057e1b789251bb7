"""Compiled modules that are fed by their own results, in passes of every kind, after their backward pass is planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn


class Two(nn.Module):
    """Two results, a weight that meets twice, running statistics, and a constant table."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)
        self.drop, self.scale = nn.Dropout(0.2), nn.Parameter(ts.ones(8))

    def forward(self, x: ts.Tensor) -> tuple[ts.Tensor, ts.Tensor]:
        h = self.norm(self.drop(self.first(x).tanh() * self.scale))[:, [1, 0, 3, 2, 5, 4, 7, 6]] + x
        return self.last(self.first(h)).sigmoid() * self.scale, h.sin()


def both(run: Any, x: ts.Tensor) -> None:
    y, z = run(x)
    (y.sum() + z.square().sum()).backward()


def chain(run: Any, x: ts.Tensor) -> None:
    h = x
    for _ in range(4):
        h, z = run(h)
    (h.sum() + z.sum()).backward()


def chain_of_the_second(run: Any, x: ts.Tensor) -> None:
    for _ in range(3):
        _, x = run(x)
    x.square().sum().backward()


def together(run: Any, x: ts.Tensor) -> None:
    parts = [run(x * k) for k in range(1, 4)]
    sum(y.sum() * z.mean() for y, z in parts).backward()


def twice(run: Any, x: ts.Tensor) -> None:
    y, _ = run(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()


def gradient_of_the_gradient(run: Any, x: ts.Tensor) -> None:
    y, z = run(x)
    (g,) = ts.autograd.grad(y.square().sum() + z.sum(), x, create_graph=True)
    g.square().sum().backward()


KINDS: list[Callable[[Any, ts.Tensor], None]] = [
    both, chain, chain_of_the_second, together, twice, gradient_of_the_gradient,
]  # fmt: skip


def left_by(compiled: bool, kinds: list[Callable[[Any, ts.Tensor], None]]) -> list[ts.Tensor]:
    """Gradients, buffers and the random state after passes of these kinds, five of each."""
    ts.manual_seed(0)
    net = Two()
    run = ts.compile(net) if compiled else net
    found = []
    for kind in kinds:
        for _ in range(5):
            x = ts.randn(4, 8).requires_grad_()
            kind(run, x)
            found.append(x.grad)
    return [*found, *(p.grad for p in net.parameters()), *net.buffers(), ts.get_rng_state()]


@pytest.mark.parametrize("then", KINDS)
@pytest.mark.parametrize("first", [both, chain, together])
def test_passes_of_one_kind_after_another(
    first: Callable[[Any, ts.Tensor], None], then: Callable[[Any, ts.Tensor], None]
) -> None:
    plain, compiled = (left_by(c, [first, then, first]) for c in (False, True))
    # A gradient of a gradient is summed in another order where the function ran again.
    exact = then is not gradient_of_the_gradient
    for a, b in zip(plain, compiled, strict=True):
        assert ts.equal(a, b) if exact else ts.allclose(a, b, rtol=1e-4, atol=1e-5)
