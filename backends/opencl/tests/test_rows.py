"""Reductions, softmax and normalisations at lengths that vectors end within, against float64."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest
import tesserack as ts
import tesserack.nn.functional as F
from tesserack.testing.seeds import turn

TOLERANCE = {ts.float32: 1e-5, ts.bfloat16: 6e-2}
SHAPES = [(1,), (17,), (100_003,), (33, 1000), (300, 7), (2049, 40), (3001, 49), (5, 130, 77), (4, 3, 5, 70)]
LAYOUTS: dict[str, Callable[[ts.Tensor], ts.Tensor]] = {
    "whole": lambda x: x,
    "every_second": lambda x: x[..., ::2],
    "turned": lambda x: x.transpose(0, -1),
    "moved": lambda x: x.flatten()[1:],
}


def _error(got: ts.Tensor, expected: ts.Tensor) -> float:
    """The largest difference, as a part of the largest number."""
    return float((got.cpu().double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30))


@pytest.mark.parametrize(("shape", "layout", "dtype"), turn([*product(SHAPES, LAYOUTS, TOLERANCE)], 3), ids=str)
def test_reductions(shape: tuple[int, ...], layout: str, dtype: ts.dtype) -> None:
    ts.manual_seed(0)
    x = ts.randn(*shape).to(dtype)
    here, there = LAYOUTS[layout](x.double()), LAYOUTS[layout](x.to("opencl"))
    if not here.numel():
        pytest.skip("nothing is left")
    for dim in range(here.dim()):
        for name in ("sum", "amax", "amin"):
            got, expected = getattr(there, name)(dim), getattr(here, name)(dim)
            scale = max(1.0, here.abs().sum(dim).max().item() / max(expected.abs().max().item(), 1e-30))
            assert _error(got, expected) <= TOLERANCE[dtype] * (scale if name == "sum" else 1), (name, dim)
    assert _error(there.abs().mean(), here.abs().mean()) <= TOLERANCE[dtype]


def test_extremes_keep_nan_and_infinities() -> None:
    x = ts.full((3, 70), -3.0)
    x[1, 69], x[2] = float("nan"), -float("inf")
    there = x.to("opencl")
    assert there.amax(1).isnan().tolist() == [False, True, False] and there.amax(1)[2].item() == -float("inf")
    assert there.amax(0).isnan().sum().item() == 1 and there[0].amax().item() == -3.0


ROWS: dict[str, Callable[[ts.Tensor], ts.Tensor]] = {
    "softmax": lambda x: F.softmax(x, -1),
    "softmax_across": lambda x: F.softmax(x, 0),
    "log_softmax": lambda x: F.log_softmax(x, -1),
    "log_softmax_across": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], x[0].detach() + 1, x[0].detach()),
    "rms_norm": lambda x: F.rms_norm(x, x.shape[-1:], x[0].detach() + 1),
    "batch_norm": lambda x: F.batch_norm(x, None, None, x[0].detach() + 1, x[0].detach(), True),
}


SIZES = [(3, 5), (33, 16), (7, 100), (5, 9000), (300, 17), (40, 33)]


@pytest.mark.parametrize(("name", "shape", "dtype"), turn([*product(ROWS, SIZES, TOLERANCE)], 3), ids=str)
def test_rows(name: str, shape: tuple[int, int], dtype: ts.dtype) -> None:
    ts.manual_seed(0)
    x, weights = (ts.randn(*shape) * 2).to(dtype), ts.randn(*shape).to(dtype)
    results = []
    for given, by in ((x.double(), weights.double()), (x.to("opencl"), weights.to("opencl"))):
        given.requires_grad_()
        made = ROWS[name](given)
        made.backward(by)
        results.append((made.detach(), given.grad))
    for expected, got in zip(*results, strict=True):
        assert _error(got, expected) <= 3 * TOLERANCE[dtype]


def test_what_is_stored_past_the_cache() -> None:
    """As much as is stored without being read first."""
    x = ts.randn(9000, 1003)
    there = x.to("opencl")
    ts.testing.assert_close(F.softmax(there, 1).cpu(), F.softmax(x, 1), rtol=1e-5, atol=1e-7)
    ts.testing.assert_close(F.softmax(there, 0).cpu(), F.softmax(x, 0), rtol=1e-5, atol=1e-7)
    ts.testing.assert_close(F.layer_norm(there, (1003,)).cpu(), F.layer_norm(x, (1003,)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [ts.float16, ts.float32, ts.float64])
@pytest.mark.parametrize("shape", [(1 << 17,), (1, 300, 512), (100003,), (3, 70000)])
def test_spread_and_norm_of_long_rows(shape: tuple[int, ...], dtype: ts.dtype) -> None:
    """Shared among groups, where the length has a divisor; the mean is far from 0, so squares alone will not do."""
    x = (ts.rand(*shape, generator=ts.Generator().manual_seed(0)) + 20).to(dtype)
    tolerance = {ts.float16: 2e-3, ts.float32: 1e-5, ts.float64: 1e-11}[dtype]
    before = ts.backends.fallbacks()  # other tests count theirs
    for given, ours in ((x, x.to("opencl")), (x[..., 1::2], x.to("opencl")[..., 1::2])):
        for function in (ts.var, ts.std, ts.norm):
            found, expected = function(ours).cpu().double(), function(given.double())
            assert ts.allclose(found, expected, rtol=tolerance), (function.__name__, found, expected)
    assert ts.backends.fallbacks() == before
