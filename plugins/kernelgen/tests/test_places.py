"""Where masks are true, and triangles: as numpy and the cpu say, from one element to several parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts

SHAPES = ((1,), (7,), (5000,), (70_001,), (3, 5), (300, 257), (1, 9000), (9000, 1), (4, 5, 6, 7), (33, 1, 70, 9))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_nonzero(schedule: str, share: float) -> None:
    random = np.random.default_rng(3)
    for shape in SHAPES:
        mask = random.random(shape) < share
        there = ts.from_numpy(mask).to("opencl")
        assert (there.nonzero().cpu().numpy() == np.argwhere(mask)).all(), shape
        values = random.integers(0, 99, shape)
        chosen = ts.from_numpy(values).to("opencl")[there]
        assert (chosen.cpu().numpy() == values[mask]).all(), shape


@pytest.mark.parametrize("dtype", [ts.bool, ts.uint8, ts.float16, ts.float32, ts.float64])
@pytest.mark.parametrize("name", ["tril", "triu"])
def test_triangles(schedule: str, name: str, dtype: ts.dtype) -> None:
    for shape in ((1, 1), (3, 5), (5, 3), (300, 257), (2, 40, 9), (2, 3, 17, 33), (1, 9000)):
        x = ts.ones(shape, dtype=dtype)
        x[..., ::3] = 0
        for diagonal in (-(2**40), -300, -12, -1, 0, 1, 12, 250, 9001):
            made = getattr(x.to("opencl"), name)(diagonal)
            assert ts.equal(made.cpu(), getattr(x, name)(diagonal)), (shape, diagonal)
    y = x.to("opencl")
    getattr(y, f"{name}_")(-1)
    assert ts.equal(y.cpu(), getattr(x, name)(-1))


def test_launches(opencl: Any) -> None:
    """A triangle is one; places are two beside the count of them."""
    x = ts.randn(40, 30, device="opencl")
    mask = x > 0
    for run, most in ((x.tril, 1), (x.triu, 1), (mask.nonzero, 4)):
        before = opencl.statistics.launches
        run()
        assert 0 < opencl.statistics.launches - before <= most, run
