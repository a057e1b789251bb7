"""Generated convolutions and their gradients against the cpu backend in float64."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts

CASES = {
    "plain": ((2, 3, 9, 11), (5, 3, 3, 3), 1, 1, 1, 1),
    "strided": ((2, 4, 13, 11), (6, 2, 3, 2), (2, 3), (1, 0), (2, 1), 2),
    "line": ((2, 4, 17), (6, 4, 3), 2, 2, 1, 1),
    "volume": ((2, 4, 7, 8, 9), (6, 2, 3, 2, 3), (2, 1, 2), (1, 1, 0), (1, 2, 1), 2),
    "depthwise": ((2, 6, 8, 8), (6, 1, 3, 3), 1, 1, 1, 6),
    "pointwise": ((3, 7, 5, 5), (4, 7, 1, 1), 1, 0, 1, 1),
    "stride beyond kernel": ((2, 3, 12, 12), (4, 3, 2, 2), 3, 0, 1, 1),
    "long padding": ((1, 2, 4, 4), (3, 2, 3, 3), 1, 4, 1, 1),
    "one row": ((2, 3, 1, 40), (4, 3, 1, 5), (1, 2), (0, 2), 1, 1),
}


def run(case: Any, device: str, dtype: Any, layout: Any = None) -> list[Any]:
    image, weight, stride, padding, dilation, groups = case
    ts.manual_seed(1)
    x, w, b = ts.randn(image, dtype=ts.float64), ts.randn(weight, dtype=ts.float64), ts.randn(weight[0])
    x, w, b = (t.to(dtype).to(device) for t in (x, w, b))
    if layout is not None:
        x = x.contiguous(memory_format=layout)
    for t in (x, w, b):
        t.requires_grad_()
    convolve = (ts.nn.functional.conv1d, ts.nn.functional.conv2d, ts.nn.functional.conv3d)[len(image) - 3]
    y = convolve(x, w, b, stride, padding, dilation, groups)
    seed = ts.randn(y.shape, dtype=ts.float64).to(dtype).to(device)
    # The gradient of the bias is a sum of the core's; the other two are the kernels in question.
    return [y.detach(), *ts.autograd.grad(y, [x, w], seed)]


def check(case: Any, dtype: Any, tolerance: float, layout: Any = None) -> None:
    before = ts.backends.fallbacks()
    got = run(case, "opencl", dtype, layout)
    assert ts.backends.fallbacks() == before
    for out, expected in zip(got, run(case, "cpu", ts.float64), strict=True):
        scale = max(1.0, float(expected.abs().max()))
        ts.testing.assert_close(
            out.cpu().double() / scale, expected / scale, rtol=tolerance, atol=tolerance, check_stride=False
        )


@pytest.mark.parametrize("name", CASES)
def test_against_float64(schedule: str, name: str) -> None:
    check(CASES[name], ts.float32, 1e-5)


@pytest.mark.parametrize("name", ["plain", "strided", "volume"])
def test_channels_last(schedule: str, name: str) -> None:
    layout = ts.channels_last_3d if name == "volume" else ts.channels_last
    check(CASES[name], ts.float32, 1e-5, layout)


@pytest.mark.parametrize("dtype, tolerance", [(ts.float64, 1e-12), (ts.float16, 1e-2), (ts.bfloat16, 5e-2)])
def test_dtypes(schedule: str, dtype: Any, tolerance: float) -> None:
    check(CASES["plain"], dtype, tolerance)


def test_many_positions_are_split_among_groups(schedule: str) -> None:
    check(((16, 3, 20, 20), (4, 3, 3, 3), 1, 1, 1, 1), ts.float32, 1e-5)


@pytest.mark.parametrize("dtype, tolerance", [(ts.float32, 1e-5), (ts.float64, 1e-12)])
def test_lines_of_narrow_images_and_long_sums(schedule: str, dtype: Any, tolerance: float) -> None:
    check(((40, 3, 4, 5), (9, 3, 3, 3), 1, 1, 1, 1), dtype, tolerance)
    check(((3, 4, 19, 37), (6, 2, 3, 2), 1, (2, 3), (1, 2), 2), dtype, tolerance)


def test_vectors_stay_within_the_memory_of_images(schedule: str) -> None:
    ts.manual_seed(0)
    w = ts.randn(4, 2, 3, 3)
    for given in (ts.randn(1, 2, 8, 8).expand(40, 2, 8, 8), ts.randn(42, 2, 8, 8)[1:41], ts.randn(300, 2, 1, 1)):
        padding = 1 if given.shape[-1] > 1 else 2
        moved, weight = given.to("opencl"), w.to("opencl").requires_grad_()
        if given.stride(0) == 0:
            moved = given[:1].to("opencl").expand(given.shape)
        y = ts.nn.functional.conv2d(moved, weight, padding=padding)
        (grad,) = ts.autograd.grad(y.square().sum(), weight)
        theirs = w.clone().requires_grad_()
        expected = ts.nn.functional.conv2d(given.contiguous(), theirs, padding=padding)
        (wanted,) = ts.autograd.grad(expected.square().sum(), theirs)
        ts.testing.assert_close(y.detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
        ts.testing.assert_close(grad.cpu(), wanted, rtol=1e-4, atol=1e-2)
