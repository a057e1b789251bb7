"""Small networks learn on the device, as they do on the cpu, and without its help."""

# The names of tesserack and tesserack.nn are collected, which type checkers do not see.
# mypy: disable-error-code="attr-defined,no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack import nn, optim
from tesserack.testing.conformance.card import Card, Record

CLASSES = 4
NEAR = {"float16": (1e-1, 2e-2), "bfloat16": (2e-1, 1e-1)}  # losses on two devices, of dtypes of few digits


def rings(count: int = 512) -> tuple[Any, Any]:
    """Points on two rings, told apart by ring and by half of the plane: a straight line cannot do it."""
    random = np.random.default_rng(0)
    label = random.integers(0, CLASSES, count)
    angle = random.uniform(0.15, np.pi - 0.15, count) + np.pi * (label % 2)
    radius = 1 + label // 2 + random.normal(0, 0.1, count)
    points = np.stack((radius * np.cos(angle), radius * np.sin(angle), random.normal(0, 1, count)), 1)
    return points.astype(np.float32), label


def pictures(count: int = 320) -> tuple[Any, Any]:
    """8 by 8 pictures of horizontal, vertical and two diagonal bars, somewhere, with noise."""
    random = np.random.default_rng(1)
    label = random.integers(0, CLASSES, count)
    images = random.normal(0, 0.3, (count, 1, 8, 8)).astype(np.float32)
    for image, kind in zip(images[:, 0], label, strict=True):
        row, column = random.integers(1, 4, 2)
        for k in range(4):
            at = {0: (row, column + k), 1: (row + k, column), 2: (row + k, column + k), 3: (row + k, column + 3 - k)}
            image[at[int(kind)]] += 1.5
    return images, label


def perceptron() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, CLASSES))


def convolutional() -> nn.Module:
    """Convolution, normalisation, pooling, dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(64, CLASSES),
    )


def adam(parameters: Any) -> Any:
    """Adam, with a bound below which squares of small gradients are nothing that each dtype holds."""
    return optim.Adam(parameters, lr=0.01, eps=1e-4 if ts.get_default_dtype() is ts.float16 else 1e-8)


def sgd(parameters: Any) -> Any:
    """Gradient descent with momentum and weight decay."""
    return optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


def train(model: nn.Module, data: tuple[Any, Any], make: Callable[[Any], Any], epochs: int, device: Any) -> list[float]:
    """The loss of every step."""
    x, y = ts.from_numpy(data[0]).to(ts.get_default_dtype()).to(device), ts.from_numpy(data[1]).to(device)
    optimizer = make(model.parameters())
    losses = []
    for _ in range(epochs):
        for batch in range(0, len(y), 64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[batch : batch + 64]), y[batch : batch + 64])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def accuracy(model: nn.Module, data: tuple[Any, Any], device: Any) -> float:
    """The share of examples the model classifies rightly."""
    model.eval()
    with ts.no_grad():
        guessed = model(ts.from_numpy(data[0]).to(ts.get_default_dtype()).to(device)).argmax(1)
    model.train()
    return float((guessed.cpu().numpy() == data[1]).mean())


def run(build: Callable[[], nn.Module], data: Any, make: Callable[[Any], Any], epochs: int, device: Any) -> Any:
    """Train from one seed; returns the model and the losses."""
    ts.manual_seed(42)
    model = build().to(device)
    return model, train(model, data, make, epochs, device)


RUNS: dict[str, tuple[Callable[[], nn.Module], Any, Callable[[Any], Any], int]] = {
    "perceptron with Adam": (perceptron, rings(), adam, 12),
    "perceptron with SGD": (perceptron, rings(), sgd, 12),
    "convolutional with Adam": (convolutional, pictures(), adam, 8),
    "convolutional with SGD": (convolutional, pictures(), sgd, 8),
}


@pytest.mark.parametrize("name", RUNS)
def test_learns(name: str, card: Card, record: Record) -> None:
    """The loss falls, new examples are classified, and no step needed the cpu."""
    build, data, make, epochs = RUNS[name]
    model, losses = run(build, data, make, epochs, card.device)
    record.case(op=name, dtype=card.real, direction="training")
    assert losses[-1] < losses[0] / 3, f"{name} on {card.name}: the loss went from {losses[0]:.3f} to {losses[-1]:.3f}"
    assert accuracy(model, data, card.device) > 0.95
    helped = ts.backends.fallbacks()
    assert not helped, f"{name} ran on the cpu for: {', '.join(f'{op} ({n} times)' for op, n in helped.items())}"


@pytest.mark.parametrize("name", RUNS)
def test_learns_as_on_the_cpu(name: str, card: Card) -> None:
    """The first steps have the losses that the cpu has, from the same seed: parameters and dropout included."""
    build, data, make, _ = RUNS[name]
    _, found = run(build, data, make, 1, card.device)
    _, expected = run(build, data, make, 1, "cpu")
    rtol, atol = NEAR.get(card.real, (2e-2, 2e-3))
    np.testing.assert_allclose(found, expected, rtol, atol, err_msg=f"{name} on {card.name}")


def test_reads_digits(card: Card) -> None:
    """Handwritten digits, where scikit-learn is installed to bring them."""
    datasets: Any = pytest.importorskip("sklearn.datasets", reason="the digits come with scikit-learn")
    digits = datasets.load_digits()
    images, labels = (digits.images / 16).astype(np.float32).reshape(-1, 64), digits.target.astype(np.int64)

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    model, _ = run(build, (images[:1400], labels[:1400]), adam, 15, card.device)
    enough = 0.88 if card.real in ("float32", "float64") else 0.85
    assert accuracy(model, (images[1400:], labels[1400:]), card.device) > enough
    assert ts.backends.fallbacks() == {}
