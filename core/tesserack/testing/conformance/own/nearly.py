"""Results that may be rounded otherwise: each element judged by itself, or beside the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

from tesserack.testing import cases

__all__ = ["judge"]


def judge(found: Any, expected: Any, tolerance: float, part: float) -> tuple[str | None, float]:
    """What is wrong, if anything, and the largest error of an element: relative to itself, or to a ``part`` of the
    largest where that is more."""
    worst = 0.0
    for index, (f, e) in enumerate(zip(found, expected, strict=True)):
        left, right = cases.values(f), cases.values(e)
        if left.shape != right.shape:
            return f"result {index}: expected shape {right.shape}, got {left.shape}", float("inf")
        limit = f"; tolerance {tolerance:.0e} of each" if tolerance else "; whole numbers, exact"
        with np.errstate(all="ignore"):
            same = (left == right) | ((left != left) & (right != right))
            size = np.abs(right.astype(np.float64))
            least = part * size[np.isfinite(size)].max(initial=0.0) + 1e-30
            error = np.where(same, 0.0, np.abs(left.astype(np.float64) - right) / np.maximum(size, least))
            error = np.where(~same & ((error == 0) | np.isnan(error)), np.inf, error)
        worst = max(worst, float(error.max(initial=0.0)))
        wrong = error > tolerance
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            told = f"result {index}, element {list(at)}: expected {right[at]}, got {left[at]}"
            return f"{told} ({int(wrong.sum())} of {wrong.size} wrong{limit})", worst
    return None, worst
