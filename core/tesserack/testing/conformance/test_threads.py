"""Threads that compute, allocate and differentiate at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.backends._discovery import claims
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card
from tesserack.testing.conformance.exactly import real, rounded

THREADS = 4
CLOSE = {"float32": 1e-5, "float64": 1e-5, "float16": 1e-2, "bfloat16": 8e-2}  # of the largest element


def at_once(work: Callable[[int], Any]) -> list[Any]:
    """The results of work(0), work(1), ... running together; raises what any of them raised."""
    results: list[Any] = [None] * THREADS
    failures: list[BaseException] = []
    start = threading.Barrier(THREADS)

    def body(index: int) -> None:
        start.wait()
        try:
            results[index] = work(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(index,)) for index in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return results


def train(card: Card, seed: int) -> list[float]:
    """A few steps of a small network, with random numbers of its own."""
    generator = ts.Generator(card.device).manual_seed(seed)
    sizes = ((8, 16), (16, 4))
    weights = [ts.randn(*s, generator=generator, device=card.device).requires_grad_() for s in sizes]
    x = ts.randn(32, 8, generator=generator, device=card.device)
    losses = []
    for _ in range(20):
        loss = ((x @ weights[0]).tanh() @ weights[1]).pow(2).mean()
        for weight, grad in zip(weights, ts.autograd.grad(loss, weights), strict=True):
            with ts.no_grad():
                weight -= 0.05 * grad
        losses.append(loss.item())
    return losses


def test_training_at_once(card: Card) -> None:
    """Threads do not disturb each other: the losses are those of one thread alone."""
    alone = [train(card, seed) for seed in range(THREADS)]
    for found, expected in zip(at_once(lambda seed: train(card, seed)), alone, strict=True):
        assert found == pytest.approx(expected, rel=1e-5)


def test_allocating_at_once(card: Card) -> None:
    """Each thread's blocks hold what it wrote."""

    def work(index: int) -> None:
        random = np.random.default_rng(index)
        live: list[tuple[ts.Tensor, float]] = []
        for number in range(300):
            value = float(index * 300 + number)
            live.append((ts.full((int(random.integers(1, 5000)),), value, device=card.device), value))
            if len(live) > 20:
                tensor, expected = live.pop(int(random.integers(20)))
                low, high = tensor.min().item(), tensor.max().item()
                assert low == high == expected, f"thread {index}: a block of {expected} holds {low} to {high}"

    at_once(work)


def test_reading_one_tensor_at_once(card: Card) -> None:
    """Many readers of one tensor."""
    x = real(np.arange(10_000) % 5 == 0, card)
    total = 2000.0
    assert at_once(lambda _: [x.sum().item() for _ in range(50)]) == [[pytest.approx(total)] * 50] * THREADS


def test_handing_tensors_over(card: Card) -> None:
    """Made in one thread, used and freed in another."""

    def make(index: int) -> list[ts.Tensor]:
        return [ts.full((1000,), float(index + k), device=card.device) for k in range(50)]

    for index, made in enumerate(at_once(make)):
        assert [(t.amin().item(), t.amax().item()) for t in made] == [(float(index + k),) * 2 for k in range(50)]


def test_copies_at_once(card: Card) -> None:
    """To the device and back, from all threads."""

    def work(index: int) -> None:
        for size in (1, 17, 1000, 20_000):
            array = rounded(np.random.default_rng(index).normal(size=size), card.real)
            np.testing.assert_array_equal(cases.values(real(array, card).clone()), array)

    at_once(work)


def _numbers(index: int, count: int, device: Any) -> Any:
    return (ts.arange(count) * 31 % 97 + index).to(ts.get_default_dtype()).to(device)


def _factor(index: int, size: int, device: Any) -> Any:
    """A matrix of numbers so small that halves hold the products of two."""
    return (_numbers(index, size * size, device) % 5).reshape(size, size)


# One call of each required kernel, of which every thread knows what it must give.
CALLS: dict[str, Callable[[int, Any], Any]] = {
    "copy_cast": lambda i, d: _numbers(i, 4000, d).reshape(40, 100).t().contiguous(),
    "fill": lambda i, d: ts.full((4000,), float(i), device=d),
    "iota": lambda i, d: ts.arange(i, i + 4000, device=d),
    "pointwise": lambda i, d: _numbers(i, 4000, d) * (i + 2),
    "reduce": lambda i, d: _numbers(i, 4000, d).reshape(100, 40).sum(1),
    "scan": lambda i, d: _numbers(i, 400, d).cumsum(0),
    "matmul": lambda i, d: _factor(i, 30, d) @ _factor(i, 30, d),
    "gather": lambda i, d: _numbers(i, 4000, d)[ts.arange(3999, -1, -1, device=d)],
    "scatter": lambda i, d: ts.zeros(97, device=d).index_add(0, _numbers(0, 4000, d).long(), _numbers(i, 4000, d)),
    "sort": lambda i, d: _numbers(i, 2000, d).sort().values,
    "random_bits": lambda i, d: ts.rand(4000, generator=ts.Generator(d).manual_seed(i), device=d),
}


# Above the size at which the interpreter is let go, so that kernels really run at once.
LARGE_CALLS: dict[str, Callable[[int, Any], Any]] = {
    "copy_cast": lambda i, d: _numbers(i, 60_000, d).reshape(200, 300).t().contiguous(),
    "fill": lambda i, d: ts.full((60_000,), float(i), device=d),
    "iota": lambda i, d: ts.arange(i, i + 60_000, device=d),
    "pointwise": lambda i, d: _numbers(i, 60_000, d) * (i + 2),
    "reduce": lambda i, d: _numbers(i, 60_000, d).reshape(300, 200).sum(1),
    "scan": lambda i, d: (_numbers(i, 60_000, d) % 3).cumsum(0),
    "matmul": lambda i, d: _factor(i, 160, d) @ _factor(i, 160, d),
    "gather": lambda i, d: _numbers(i, 60_000, d)[ts.arange(59_999, -1, -1, device=d)],
    "scatter": lambda i, d: ts.zeros(97, device=d).index_add(
        0, _numbers(0, 60_000, d).long(), _numbers(i, 60_000, d) % 3
    ),
    "sort": lambda i, d: _numbers(i, 60_000, d).reshape(2, -1).sort().values,
    "random_bits": lambda i, d: ts.rand(60_000, generator=ts.Generator(d).manual_seed(i), device=d),
}


@pytest.mark.parametrize("name", LARGE_CALLS)
def test_large_kernel_in_many_threads(name: str, card: Card) -> None:
    """The same for sizes at which kernels overlap: while one runs, other threads call it."""
    expected = [LARGE_CALLS[name](index, "cpu") for index in range(THREADS)]

    def work(index: int) -> None:
        for _ in range(8):
            found = LARGE_CALLS[name](index, card.device).cpu()
            worst = (found - expected[index]).abs().max().item()
            assert worst <= CLOSE[card.real] * expected[index].abs().max().item(), (
                f"{name} of {found.numel()} elements on {card.name} gave wrong values while other threads ran it: it "
                "keeps a buffer, or arguments, that calls share, and is unsafe where the interpreter is let go"
            )

    at_once(work)


@pytest.mark.parametrize("name", CALLS)
def test_kernel_in_many_threads(name: str, card: Card) -> None:
    """A kernel keeps nothing that calls in other threads write to: no static buffer, no arguments set one by one."""
    expected = [CALLS[name](index, "cpu") for index in range(THREADS)]

    def work(index: int) -> None:
        for _ in range(30):
            found = CALLS[name](index, card.device).cpu()
            worst = (found - expected[index]).abs().max().item()
            assert worst <= CLOSE[card.real] * expected[index].abs().max().item(), (
                f"{name} on {card.name} gave wrong values while other threads called it: it keeps a buffer, or "
                "arguments, that calls share"
            )

    at_once(work)


_FIRST_USE = """
import sys, threading
import tesserack as ts
name, count = sys.argv[1], 8
ts.set_default_dtype(getattr(ts, sys.argv[2]))
barrier, problems = threading.Barrier(count), []
def work(index):
    barrier.wait()
    try:
        x = ts.full((1000,), float(index), device=name)
        found = ((x + 1).sum() * 2).item(), (x.reshape(10, 100) @ ts.ones(100, 3, device=name))[0, 0].item()
        if found != ((index + 1) * 2000.0, index * 100.0):
            problems.append(f"thread {index} got {found}")
    except BaseException as error:
        problems.append(f"thread {index}: {type(error).__name__}: {error}")
threads = [threading.Thread(target=work, args=(index,)) for index in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(*problems, sep="; ", file=sys.stderr)
sys.exit(bool(problems))
"""


def test_first_use_from_many_threads(card: Card) -> None:
    """A process whose threads use the device before it was ever used: each finds it ready."""
    if card.name not in claims():
        pytest.skip("not installed: registered by this process")
    for _ in range(2):
        command = [sys.executable, "-c", _FIRST_USE, str(card.device), card.real]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120)
        told = done.stderr.strip()[-2000:]
        if done.returncode:
            pytest.fail(f"{card.name}, first used by 8 threads at once ({done.returncode}): {told}", pytrace=False)
