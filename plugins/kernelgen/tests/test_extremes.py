"""Where extremes stand, along memory, across it and in parts: the first of equals, the first NaN before all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts

# Rows by columns: shorter and longer than what an item has side by side, and of several parts.
SHAPES = ((1, 1), (3, 5), (40, 33), (7, 70_001), (70_001, 3), (300, 257))


def filled(kind: str, shape: tuple[int, int]) -> Any:
    x = np.random.default_rng(4).integers(-9, 9, shape).astype(np.float32)
    if kind == "all the least":
        x[:] = -np.inf
    elif kind == "all the greatest":
        x[:] = np.inf
    elif kind == "some NaN":
        x[shape[0] // 2, :: max(1, shape[1] // 3)] = np.nan
    return x


@pytest.mark.parametrize("kind", ["ties", "all the least", "all the greatest", "some NaN"])
def test_places(schedule: str, kind: str) -> None:
    for shape in SHAPES:
        x = filled(kind, shape)
        there = ts.from_numpy(x).to("opencl")
        for name in ("argmax", "argmin"):
            for dim in (0, 1, None):
                made = getattr(there, name)(dim).cpu().numpy()
                assert (made == getattr(np, name)(x, dim)).all(), (shape, name, dim)


@pytest.mark.parametrize("least", [-128, -(2**63)])
def test_places_of_integers(schedule: str, least: int) -> None:
    x = ts.full((40, 33), least, dtype=ts.int8 if least == -128 else ts.int64)
    assert x.to("opencl").argmax(0).tolist() == [0] * 33 and x.to("opencl").argmax().item() == 0
    x[7:, 4:] = least + 1
    assert x.to("opencl").argmax(0).tolist() == [0] * 4 + [7] * 29 and x.to("opencl").argmax().item() == 7 * 33 + 4
