"""Generated pooling and its gradients against the cpu backend."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts

F = ts.nn.functional
MAX = {
    "halves": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "dilated": {"kernel_size": (2, 3), "stride": 1, "padding": (1, 1), "dilation": (3, 2)},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
}
AVERAGE = {
    "halves": {"kernel_size": 2},
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "without padding": {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
    "ceil": {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    "divided": {"kernel_size": (3, 2), "stride": (1, 2), "divisor_override": 5},
}


def run(function: Any, device: str, dtype: Any, channels_last: bool, shape: Any) -> list[Any]:
    ts.manual_seed(2)
    x = ts.randn(shape).to(dtype).to(device)
    if channels_last:
        x = x.contiguous(memory_format=ts.channels_last)
    x.requires_grad_()
    y = function(x)
    values, *more = y if isinstance(y, tuple) else (y,)
    seed = ts.randn(values.shape).to(dtype).to(device)
    return [values.detach(), *more, *ts.autograd.grad(values, [x], seed)]


def check(function: Any, dtype: Any = ts.float32, channels_last: bool = False, shape: Any = (2, 5, 11, 9)) -> None:
    before = ts.backends.fallbacks()
    got = run(function, "opencl", dtype, channels_last, shape)
    assert ts.backends.fallbacks() == before
    tolerance = {ts.float16: 2e-3, ts.bfloat16: 2e-2, ts.float32: 1e-6, ts.float64: 1e-14}[dtype]
    for out, expected in zip(got, run(function, "cpu", dtype, channels_last, shape), strict=True):
        ts.testing.assert_close(out.cpu(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", MAX)
def test_max(schedule: str, name: str, channels_last: bool) -> None:
    check(lambda x: F.max_pool2d(x, return_indices=True, **MAX[name]), channels_last=channels_last)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", AVERAGE)
def test_average(schedule: str, name: str, channels_last: bool) -> None:
    check(lambda x: F.avg_pool2d(x, **AVERAGE[name]), channels_last=channels_last)


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16, ts.float64])
def test_dtypes(schedule: str, dtype: Any) -> None:
    check(lambda x: F.max_pool2d(x, 3, 2, return_indices=True), dtype)
    check(lambda x: F.avg_pool2d(x, 3, 2), dtype)


def test_planes_without_batch(schedule: str) -> None:
    check(lambda x: F.max_pool2d(x, 2, return_indices=True), shape=(3, 8, 8))
    check(lambda x: F.avg_pool2d(x, 2), shape=(3, 8, 8))


def test_integers_and_nan(schedule: str) -> None:
    x = ts.arange(64).reshape(1, 8, 8) - 40
    for dtype in (ts.int8, ts.int64):
        given = x.to(dtype)
        got = F.max_pool2d(given.to("opencl"), 3, 2, padding=1, return_indices=True)
        for out, expected in zip(got, F.max_pool2d(given, 3, 2, padding=1, return_indices=True), strict=True):
            assert ts.equal(out.cpu(), expected)
    y = ts.randn(1, 4, 4)
    y[0, 1, 1] = float("nan")
    values, places = F.max_pool2d(y.to("opencl"), 2, return_indices=True)
    assert values[0, 0, 0].cpu().isnan() and int(places[0, 0, 0]) == 5
