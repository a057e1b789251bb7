"""Scans and binary searches by either schedule, against the cpu backend."""

from __future__ import annotations

import math

import pytest
import tesserack as ts
from tesserack.testing.seeds import turn

# Rows and columns, short ones, and some that are cut into parts.
SHAPES = [((9,), 0), ((30001,), 0), ((3, 700), 1), ((700, 40), 0), ((9000, 9), 0), ((2, 80, 9), 1), ((2, 9, 80), 0)]
CASES = [(*case, ts.float32) for case in SHAPES] + [(*case, d) for case in SHAPES[2:4] for d in (ts.float16, ts.int64)]


@pytest.mark.parametrize(("shape", "dim", "dtype"), turn([*CASES], 3), ids=str)
def test_sums_and_extremes(schedule: str, shape: tuple[int, ...], dim: int, dtype: ts.dtype) -> None:
    ts.manual_seed(0)
    x = ts.randint(0, 5, shape).to(dtype)
    y = x.to("opencl")
    assert ts.equal(y.cumsum(dim).cpu(), x.cumsum(dim))
    for name in ("cummax", "cummin"):
        for mine, theirs in zip(getattr(ts, name)(y, dim), getattr(ts, name)(x, dim), strict=True):
            assert ts.equal(mine.cpu(), theirs)
    if dtype == ts.float32:
        x = 1 + (x - 2) / 4096
        assert ts.allclose(x.to("opencl").cumprod(dim).cpu(), x.cumprod(dim), rtol=1e-6)


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_the_last_of_equal_extremes_stays(schedule: str, value: float) -> None:
    x = ts.full((9001, 9), value)
    x[::700] = 0.5
    for t in (x, x[:, 0].contiguous(), ts.full((9001,), value)):
        for name in ("cummax", "cummin"):
            values, at = getattr(ts, name)(t.to("opencl"), 0)
            expected, expected_at = getattr(ts, name)(t, 0)
            assert ts.equal(values.cpu().nan_to_num(7), expected.nan_to_num(7))
            assert ts.equal(at.cpu(), expected_at)


def test_a_long_sum_keeps_its_digits(schedule: str) -> None:
    ts.manual_seed(0)
    x = ts.randn(1 << 18)
    exact = x.double().cumsum(0)
    assert (x.to("opencl").cumsum(0).cpu().double() - exact).abs().max() < 1e-4


@pytest.mark.parametrize("dtype", [ts.float32, ts.bfloat16], ids=str)
@pytest.mark.parametrize("right", [False, True])
def test_searches_take_one_kernel(schedule: str, dtype: ts.dtype, right: bool) -> None:
    from tesserack_opencl import kernel_statistics

    ts.manual_seed(0)
    for keys, values in (((700,), (3, 900)), ((1,), (7,)), ((2, 3, 50), (2, 3, 33))):
        a, x = ts.randint(-50, 50, keys).to(dtype).sort(-1)[0], ts.randint(-60, 60, values).to(dtype)
        if dtype.is_floating_point:
            x.view(-1)[:3] = ts.tensor([math.nan, math.inf, -math.inf])
        b, y = a.to("opencl"), x.to("opencl")
        ts.searchsorted(b, y, right=right)
        before = kernel_statistics()["launches"]
        found = ts.searchsorted(b, y, right=right)
        assert kernel_statistics()["launches"] == before + 1
        assert ts.equal(found.cpu(), ts.searchsorted(a, x, right=right))
