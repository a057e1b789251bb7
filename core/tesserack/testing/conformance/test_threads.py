"""Threads that compute, allocate and differentiate at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing.conformance.card import Card

THREADS = 4


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
            value = float(index * 1000 + number)
            live.append((ts.full((int(random.integers(1, 5000)),), value, device=card.device), value))
            if len(live) > 20:
                tensor, expected = live.pop(int(random.integers(20)))
                low, high = tensor.min().item(), tensor.max().item()
                assert low == high == expected, f"thread {index}: a block of {expected} holds {low} to {high}"

    at_once(work)


def test_reading_one_tensor_at_once(card: Card) -> None:
    """Many readers of one tensor."""
    x = ts.arange(10_000.0, device=card.device)
    total = float(np.arange(10_000.0).sum())
    assert at_once(lambda _: [x.sum().item() for _ in range(50)]) == [[pytest.approx(total)] * 50] * THREADS


def test_handing_tensors_over(card: Card) -> None:
    """Made in one thread, used and freed in another."""

    def make(index: int) -> list[ts.Tensor]:
        return [ts.full((1000,), float(index + k), device=card.device) for k in range(50)]

    for index, made in enumerate(at_once(make)):
        assert [t.mean().item() for t in made] == [float(index + k) for k in range(50)]


def test_copies_at_once(card: Card) -> None:
    """To the device and back, from all threads."""

    def work(index: int) -> None:
        for size in (1, 17, 1000, 20_000):
            array = np.random.default_rng(index).normal(size=size).astype(np.float32)
            found = ts.from_numpy(array.copy()).to(card.device).clone().cpu().numpy()
            np.testing.assert_array_equal(found, array)

    at_once(work)
