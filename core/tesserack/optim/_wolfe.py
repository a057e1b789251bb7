"""A line search to the strong Wolfe conditions (Nocedal and Wright, Numerical Optimization, algorithms 3.5 and 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from tesserack import Tensor

__all__ = ["Point", "search"]


class Point(NamedTuple):
    """A place on the line: how far, the loss, its gradient, and its slope along the line."""

    at: float
    loss: float
    grad: Tensor
    slope: float


def minimum_between(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through both points, with their slopes, is least; within ``bounds``, by default between them."""
    low, high = (min(a.at, b.at), max(a.at, b.at)) if bounds is None else bounds
    mixed = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = mixed * mixed - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    left, right = (a, b) if a.at <= b.at else (b, a)
    bottom = right.slope - left.slope + 2 * root
    place = right.at - (right.at - left.at) * ((right.slope + root - mixed) / bottom) if bottom else math.nan
    return min(max(place, low), high)


def search(
    evaluate: Callable[[float], Point],
    start: Point,
    first: float,
    length: float,
    tolerance_change: float = 1e-9,
    most: int = 25,
    decrease: float = 1e-4,
    curvature: float = 0.9,
) -> tuple[Point, int]:
    """A point where loss and slope have fallen enough, and how often the loss was computed.

    ``start`` is the point at 0, ``first`` the step tried first, ``length`` the largest element of the direction.
    """

    def too_high(point: Point) -> bool:
        return point.loss > start.loss + decrease * point.at * start.slope

    def flat_enough(point: Point) -> bool:
        return abs(point.slope) <= -curvature * start.slope

    before, now = start, evaluate(first)
    evaluations, tried = 1, 0
    bracket: list[Point] | None = None
    while tried < most:
        if too_high(now) or (tried > 1 and now.loss >= before.loss):
            bracket = [before, now]
            break
        if flat_enough(now):
            return now, evaluations
        if now.slope >= 0:
            bracket = [before, now]
            break
        further = minimum_between(before, now, (now.at + 0.01 * (now.at - before.at), now.at * 10))
        before, now = now, evaluate(further)
        evaluations += 1
        tried += 1
    if bracket is None:
        bracket = [start, now]
    low = 0 if bracket[0].loss <= bracket[1].loss else 1
    stuck = False
    while tried < most and abs(bracket[1].at - bracket[0].at) * length >= tolerance_change:
        place, stuck = _inside(minimum_between(bracket[0], bracket[1]), bracket, stuck)
        now = evaluate(place)
        evaluations += 1
        tried += 1
        if too_high(now) or now.loss >= bracket[low].loss:
            bracket[1 - low] = now
            low = 0 if bracket[0].loss <= bracket[1].loss else 1
            continue
        done = flat_enough(now)
        if not done and now.slope * (bracket[1 - low].at - bracket[low].at) >= 0:
            bracket[1 - low] = bracket[low]
        bracket[low] = now
        if done:
            break
    return bracket[low], evaluations


def _inside(place: float, bracket: list[Point], stuck: bool) -> tuple[float, bool]:
    """``place`` moved away from the ends of the bracket if it stays close to them; and whether it is close now."""
    low, high = sorted(point.at for point in bracket)
    margin = 0.1 * (high - low)
    if min(high - place, place - low) >= margin:
        return place, False
    if stuck or place >= high or place <= low:
        return (high - margin if abs(place - high) < abs(place - low) else low + margin), False
    return place, True
