"""Generated convolutions and their gradients against the cpu backend in float64."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tesserack as ts
from tesserack.testing.seeds import turn

CASES = {
    "plain": ((2, 3, 9, 11), (5, 3, 3, 3), 1, 1, 1, 1),
    "strided": ((2, 4, 13, 11), (6, 2, 3, 2), (2, 3), (1, 0), (2, 1), 2),
    "line": ((2, 4, 17), (6, 4, 3), 2, 2, 1, 1),
    "volume": ((2, 4, 7, 8, 9), (6, 2, 3, 2, 3), (2, 1, 2), (1, 1, 0), (1, 2, 1), 2),
    "depthwise": ((2, 6, 8, 8), (6, 1, 3, 3), 1, 1, 1, 6),
    "depthwise of strips": ((2, 5, 70, 60), (5, 1, 5, 3), 1, (2, 1), 1, 5),
    "pointwise": ((3, 7, 5, 5), (4, 7, 1, 1), 1, 0, 1, 1),
    "stride beyond kernel": ((2, 3, 12, 12), (4, 3, 2, 2), 3, 0, 1, 1),
    "long padding": ((1, 2, 4, 4), (3, 2, 3, 3), 1, 4, 1, 1),
    "one row": ((2, 3, 1, 40), (4, 3, 1, 5), (1, 2), (0, 2), 1, 1),
    "short line": ((5, 3, 17), (4, 3, 3), 1, 1, 1, 1),
    "no border": ((2, 3, 9, 11), (5, 3, 3, 2), 1, 0, 1, 1),
    "far taps": ((2, 2, 40, 43), (3, 2, 3, 3), 1, (9, 13), (9, 13), 1),
    "strips of rows": ((2, 3, 21, 203), (70, 3, 3, 3), 1, 1, 1, 1),
    "rows beyond a tile": ((1, 2, 3, 2100), (3, 2, 3, 3), 1, 1, 1, 1),
    "many channels": ((3, 130, 6, 7), (11, 130, 3, 3), 1, 1, 1, 1),
    "stride of several taps": ((3, 4, 13, 12), (6, 2, 3, 3), 2, 1, 1, 2),
    "large window by two": ((2, 3, 17, 20), (4, 3, 7, 7), 2, 3, 1, 1),
    "strides of two kinds": ((2, 3, 14, 23), (4, 3, 4, 5), (3, 2), (2, 1), 1, 1),
    "one tap by two": ((2, 5, 9, 8), (3, 5, 1, 1), 2, 0, 1, 1),
    "positions without taps and taps without positions": ((2, 3, 1, 3), (3, 3, 3, 3), (2, 3), 1, 1, 1),
    "strips of rows by two": ((2, 3, 43, 403), (70, 3, 3, 3), 2, 1, 1, 1),
    "groups of several": ((9, 8, 7, 5), (12, 4, 3, 3), 1, 1, 1, 2),
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


@pytest.mark.parametrize("name", turn([*CASES], 3))  # seconds each, to compile
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


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_is_not_finite_stays_where_it_belongs(schedule: str, value: float, stride: int) -> None:
    """Positions between images, which vectors go over, add nothing to the gradient of a weight."""
    ts.manual_seed(3)
    x, w = ts.randn(3, 2, 4, 5), ts.randn(3, 2, 3, 3)
    x[1, 1, 2, 4] = value  # at the border: three taps never read it
    found = []
    for device in ("opencl", "cpu"):
        weight = w.to(device).requires_grad_()
        y = ts.nn.functional.conv2d(x.to(device), weight, stride=stride, padding=1)
        (grad,) = ts.autograd.grad(y, weight, ts.ones_like(y))
        found.append((y.detach().cpu(), grad.cpu()))
    for ours, theirs in zip(*found, strict=True):
        assert ts.equal(ours.isfinite(), theirs.isfinite())
        finite = theirs.isfinite()
        ts.testing.assert_close(ours[finite], theirs[finite], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("simd_bytes, local_bytes", turn([(32, 1 << 18), (16, 1 << 20), (64, 1 << 15)], 3))
def test_other_processors(opencl: Any, simd_bytes: int, local_bytes: int) -> None:
    """Narrower vectors and less local memory than those of the processor at hand; with little, patches are copied."""
    from tesserack_opencl import backend

    known = opencl.device(0)
    opencl._devices[0] = dataclasses.replace(known, serial=True, simd_bytes=simd_bytes, local_bytes=local_bytes)
    opencl.install(backend)  # the core forgets the plans it holds
    try:
        for name in ("plain", "strips of rows", "many channels", "groups of several", "depthwise of strips"):
            check(CASES[name], ts.float32, 1e-5)
        check(CASES["plain"], ts.float64, 1e-12)
    finally:
        opencl._devices[0] = known
        opencl.install(backend)


def test_images_are_read_once(opencl: Any) -> None:
    """On processors convolutions are computed from images in local memory, forward and backward; gradients of those of
    other strides than 1 as several of stride 1."""
    if not opencl.device(0).serial:
        pytest.skip("the first device is no processor")
    plans: list[str] = []
    compiled = opencl.kernel

    def kernel(device: Any, source: str, name: str) -> int:
        plans.append(name)
        return compiled(device, source, name)

    opencl.kernel = kernel
    try:
        x = ts.randn(3, 2, 6, 13, device="opencl").requires_grad_()
        w = ts.randn(4, 2, 3, 3, device="opencl").requires_grad_()
        ts.nn.functional.conv2d(x, w, padding=1).sum().backward()
        assert plans.count("direct") == 2 and plans.count("direct_weight") == 1
        plans.clear()
        ts.nn.functional.conv2d(x, w, padding=1, stride=2).sum().backward()
        assert plans.count("direct") == 5 and plans.count("direct_weight") == 4
    finally:
        del opencl.kernel
