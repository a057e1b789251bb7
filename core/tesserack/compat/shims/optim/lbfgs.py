"""``torch.optim.lbfgs``: the line search, which other minimisers take from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tesserack import Tensor
from tesserack.optim._wolfe import Point, minimum_between, search

__all__: list[str] = []


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> float:
    """Where the cubic through two places ``x``, with values ``f`` and slopes ``g``, is least."""
    first, second = (Point(float(x), float(f), Tensor(), float(g)) for x, f, g in ((x1, f1, g1), (x2, f2, g2)))
    return minimum_between(first, second, None if bounds is None else (float(bounds[0]), float(bounds[1])))


def _strong_wolfe(
    obj_func: Callable[[Any, float, Any], tuple[Any, Tensor]],
    x: Any,
    t: Any,
    d: Tensor,
    f: Any,
    g: Tensor,
    gtd: Any,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[Any, Tensor, float, int]:
    """Loss, gradient and step where ``obj_func(x, t, d)`` has fallen enough, and how often it was called."""
    losses = {0.0: f}

    def evaluate(at: float) -> Point:
        losses[at], grad = obj_func(x, at, d)
        return Point(at, float(losses[at]), grad.clone(), grad.dot(d).item())

    start = Point(0.0, float(f), g.clone(), float(gtd))
    length = d.abs().max().item()
    point, evaluated = search(evaluate, start, float(t), length, tolerance_change, max_ls, c1, c2)
    return losses[point.at], point.grad, point.at, evaluated
