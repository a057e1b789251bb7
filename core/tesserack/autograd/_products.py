"""Products with Jacobians by recorded gradients, and how deep in transforms of functions the caller is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd._run import grad

__all__ = ["depth", "gradients", "level", "push_forward"]

_state = threading.local()


@contextmanager
def level() -> Iterator[None]:
    """Within it, a transform runs: what inner ones give stays recorded, for it to differentiate."""
    _state.depth = depth() + 1
    try:
        with ts.enable_grad():
            yield
    finally:
        _state.depth -= 1


def depth() -> int:
    """How many transforms are running."""
    return getattr(_state, "depth", 0)


def gradients(outputs: list[Tensor], inputs: list[Tensor], cotangents: list[Tensor] | None = None) -> list[Tensor]:
    """Recorded gradients by ``inputs``, zeros where an output does not depend on one."""
    used = [k for k, y in enumerate(outputs) if y.requires_grad]
    if not used:
        return [ts.zeros_like(x) for x in inputs]
    found = grad(
        [outputs[k] for k in used],
        inputs,
        None if cotangents is None else [cotangents[k] for k in used],
        create_graph=True,
        allow_unused=True,
    )
    return [ts.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def push_forward(outputs: list[Tensor], inputs: list[Tensor], tangents: list[Tensor]) -> list[Tensor]:
    """J v for each output: the backward pass is linear in its cotangents, and differentiated by them gives J."""
    smooth = [y for y in outputs if y.is_floating_point() or y.is_complex()]
    seeds = [ts.zeros_like(y).requires_grad_() for y in smooth]
    pulled = gradients(smooth, inputs, seeds)
    pushed = iter(gradients(pulled, seeds, tangents) if seeds else [])
    return [next(pushed) if y.is_floating_point() or y.is_complex() else ts.zeros_like(y) for y in outputs]
