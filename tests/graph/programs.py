"""Random programs of tensors: views, writes into them, random numbers, aliases; and what records and compares them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import _native
from tesserack.jit import _sizes  # noqa: F401  # sizes are traced by its class

PACKAGE = os.path.dirname(ts.__file__) + os.sep


def record(function: Callable[..., Any], *inputs: ts.Tensor, warn: Any = None) -> Any:
    """The graph of a function that returns a list of tensors, and that list."""
    tracer = _native._Tracer(PACKAGE, warn or (lambda text: None))
    for k, tensor in enumerate(inputs):
        tracer.add_input(tensor, f"x{k}")
    tracer.begin()
    try:
        results = function(*inputs)
        return tracer.end(results), results
    finally:
        tracer.cancel()


def run(graph: Any, *inputs: ts.Tensor) -> list[ts.Tensor]:
    """What a graph of one level gives."""
    return _native._GraphRunner(graph).run(list(inputs))  # type: ignore[no-any-return]


def same_bits(a: ts.Tensor, b: ts.Tensor) -> bool:
    """Equal in dtype, shape and every bit of every element."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if not a.numel():
        return True
    one, other = (t.detach().resolve_conj().resolve_neg().contiguous().reshape(-1).view(ts.uint8) for t in (a, b))
    return one.equal(other)


class Program:
    """A program that follows from its seed: called, it computes on its inputs and gives every tensor that it made."""

    def __init__(self, seed: int, steps: int = 12, writes: bool = True, draws: bool = True) -> None:
        self.seed, self.steps, self.writes, self.draws = seed, steps, writes, draws

    def __call__(self, *inputs: ts.Tensor) -> list[ts.Tensor]:
        chance = random.Random(self.seed)
        made = [t * 1.5 for t in inputs]
        for _ in range(self.steps):
            made.append(self.step(chance, made))
        return made

    def step(self, chance: random.Random, made: list[ts.Tensor]) -> ts.Tensor:
        """One call, on what was made before."""
        x = chance.choice(made)
        other = next((t for t in chance.sample(made, len(made)) if t.shape == x.shape), x)
        pure: list[Callable[[], ts.Tensor]] = [
            lambda: x + other,
            lambda: x * other,
            lambda: (x - other).relu(),
            lambda: x.sin() * 1.0,
            lambda: x + x.new_full((), 2.0),
            lambda: x.neg().neg(),
            lambda: x.softmax(-1) if x.ndim else x.exp(),
            lambda: ts.where(x > 0, x, other),
            lambda: x.clone(),
            lambda: x.to(ts.float64).sum().to(x.dtype).expand(x.shape),
            lambda: x.cumsum(0) if x.ndim else x * 2,
        ]
        views: list[Callable[[], ts.Tensor]] = [
            lambda: x.transpose(0, -1) if x.ndim else x,
            lambda: x[1:] if x.ndim and x.shape[0] > 1 else x.view(x.shape),
            lambda: x.reshape(-1, x.shape[-1]) if x.ndim else x.unsqueeze(0),
            lambda: x.flatten() if x.ndim else x.unsqueeze(0),
            lambda: x.unsqueeze(0).squeeze(0),
            lambda: x[..., 0] if x.ndim > 1 else x,
            lambda: x.detach(),
        ]
        apart = x.clone() if 0 in x.stride() else x  # no two elements in one place
        writing: list[Callable[[], ts.Tensor]] = [
            lambda: apart.mul_(0.5),
            lambda: apart.add_(other.clone()),
            lambda: apart.copy_(ts.tensor(3.0)),
            lambda: self.put(apart),
        ]
        drawing: list[Callable[[], ts.Tensor]] = [
            lambda: ts.rand(x.shape),
            lambda: ts.nn.functional.dropout(x, 0.5),
            lambda: x + ts.randn_like(x),
        ]
        kinds = [pure, pure, views] + [writing] * self.writes + [drawing] * self.draws
        return chance.choice(chance.choice(kinds))()

    @staticmethod
    def put(x: ts.Tensor) -> ts.Tensor:
        """A write into a part."""
        if x.ndim:
            x[:1] = 7.0
        return x


def inputs(seed: int) -> list[ts.Tensor]:
    """For a program."""
    generator = ts.Generator().manual_seed(seed)
    shape = random.Random(seed).choice([(3, 4), (2, 3, 4), (5,), (4, 4)])
    return [ts.randn(shape, generator=generator) for _ in range(2)]
