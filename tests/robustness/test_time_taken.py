"""What once took many times as long as what it is made of, beside a plain call on as much data, on the host."""

from __future__ import annotations

import time
from collections.abc import Callable

import tesserack as ts
from tesserack.nn import functional as F


def _least(call: Callable[[], ts.Tensor]) -> float:
    """Seconds, with the result in memory."""
    call().data_ptr()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call().data_ptr()
        times.append(time.perf_counter() - start)
    return min(times)


def test_many_adaptive_means_of_few_elements() -> None:
    """A million windows of a thousand elements: once 1,500 times their exponential function, now half of it."""
    x, large = ts.randn(1, 1, 1000), ts.randn(10**6)
    assert _least(lambda: F.adaptive_avg_pool1d(x, 10**6)) < 50 * _least(large.exp)


def test_gradients_of_running_products_with_a_zero() -> None:
    """Linear in the length, as without one; once it was the square."""

    def slope(zero: bool) -> ts.Tensor:
        x = ts.ones(100_000)
        if zero:
            x[5] = 0
        x.requires_grad_()
        (grad,) = ts.autograd.grad(x.cumprod(0).sum(), x)
        return grad

    assert _least(lambda: slope(True)) < 50 * _least(lambda: slope(False))


def test_gradients_of_each_sample() -> None:
    """Of 5,000 samples at once, beside one graph of them all: once hundreds of times that, now the same."""
    weight, samples = ts.randn(16, 10), ts.randn(5000, 16)

    def together() -> ts.Tensor:
        each = weight.expand(5000, 16, 10).clone().requires_grad_()
        return ts.autograd.grad((samples[:, None] @ each).tanh().sum(), each)[0]

    per_sample = ts.func.vmap(ts.func.grad(lambda w, x: (x @ w).tanh().sum()), (None, 0))
    assert _least(lambda: per_sample(weight, samples)) < 30 * _least(together)
