"""max_pool2d and avg_pool2d, values and gradients, against torch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from kernel_harness import BFLOAT16, INDEX_ERROR, KernelError, call
from test_conv import laid_out

torch = pytest.importorskip("torch")
functional = torch.nn.functional

FLOATS = [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16]

# input shape, kernel, stride, padding, dilation, ceil
MAX_CASES: list[tuple[tuple[int, ...], Any, Any, Any, Any, bool]] = [
    ((2, 3, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((2, 3, 9, 11), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((2, 5, 9, 11), (3, 2), (2, 3), (1, 1), (1, 1), True),
    ((3, 12, 13), (3, 3), (1, 1), (1, 0), (2, 2), False),
    ((1, 4, 10, 10), (3, 3), (3, 3), (1, 1), (2, 1), True),
    ((2, 2, 3, 301), (1, 3), (1, 1), (0, 1), (1, 1), False),  # rows as long as many registers
    ((2, 2, 4, 402), (3, 5), (2, 2), (1, 2), (1, 2), True),
    ((1, 3, 3, 2100), (2, 2), (1, 2), (0, 0), (1, 1), False),
    ((1, 2, 3, 350), (1, 4), (1, 3), (0, 0), (1, 1), False),
]


def max_pooled(case: Any, dtype: np.dtype[Any], channels_last: bool) -> tuple[Any, Any, Any]:
    """The input and values of torch's, as float64 with gradients, and the kernel's indices; they are compared."""
    shape, kernel, stride, padding, dilation, ceil = case
    x = np.random.default_rng(0).integers(0, 6, shape).astype(dtype)  # many ties
    if dtype in FLOATS:
        x[..., 2, 3] = np.nan
        x[..., 5:7, 5:7] = -np.inf
    wide = torch.from_numpy(x.astype("f8")).requires_grad_()
    want, at = functional.max_pool2d_with_indices(wide, kernel, stride, padding, dilation, ceil)
    values = laid_out(np.empty(tuple(want.shape), dtype), channels_last)
    indices = np.empty_like(values, dtype="i8")
    params = [list(kernel), list(stride), list(padding), list(dilation), ceil]
    call("max_pool2d_with_indices", [values, indices], [laid_out(x, channels_last)], params)
    np.testing.assert_array_equal(values.astype("f8"), want.detach().numpy())
    np.testing.assert_array_equal(indices, at.numpy())
    return wide, want, indices


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", FLOATS + [np.dtype("i4"), np.dtype("u1")], ids=str)
@pytest.mark.parametrize("case", MAX_CASES, ids=str)
def test_max_pool(case: Any, dtype: np.dtype[Any], channels_last: bool) -> None:
    max_pooled(case, dtype, channels_last and len(case[0]) == 4)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", MAX_CASES, ids=str)
def test_max_pool_backward(case: Any, dtype: np.dtype[Any], channels_last: bool) -> None:
    shape, channels_last = case[0], channels_last and len(case[0]) == 4
    wide, want, indices = max_pooled(case, dtype, channels_last)
    g = np.random.default_rng(1).integers(-4, 5, tuple(want.shape)).astype(dtype)
    want.backward(torch.from_numpy(g.astype("f8")))
    dx = laid_out(np.empty(shape, dtype), channels_last)
    call("max_pool2d_backward", [dx], [laid_out(g, channels_last), indices], [list(shape)])
    np.testing.assert_array_equal(dx.astype("f8"), wide.grad.numpy())


def test_max_pool_backward_refuses_a_bad_index() -> None:
    indices = np.full((1, 1, 1, 1), 4, "i8")
    with pytest.raises(KernelError, match="index 4 is out of bounds") as caught:
        call(
            "max_pool2d_backward",
            [np.empty((1, 1, 2, 2), "f4")],
            [np.ones((1, 1, 1, 1), "f4"), indices],
            [[1, 1, 2, 2]],
        )
    assert caught.value.status == INDEX_ERROR


AVG_CASES = [
    ((2, 3, 8, 8), (2, 2), (2, 2), (0, 0)),
    ((2, 3, 9, 11), (3, 3), (2, 2), (1, 1)),
    ((3, 9, 7), (3, 2), (2, 3), (1, 1)),
]


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", AVG_CASES, ids=str)
def test_avg_pool(case: Any, dtype: np.dtype[Any], channels_last: bool) -> None:
    shape, kernel, stride, padding = case
    channels_last = channels_last and len(shape) == 4
    rng = np.random.default_rng(0)
    tolerance = 2 * float(np.finfo(dtype).eps if dtype != BFLOAT16 else 2**-7)
    x = (rng.integers(-8, 9, shape) / 8).astype(dtype)
    for ceil, include, override in product((False, True), (False, True), (None, 3)):
        wide = torch.from_numpy(x.astype("f8")).requires_grad_()
        want = functional.avg_pool2d(wide, kernel, stride, padding, ceil, include, override)
        out = laid_out(np.empty(tuple(want.shape), dtype), channels_last)
        params = [list(kernel), list(stride), list(padding), ceil, include, override]
        call("avg_pool2d", [out], [laid_out(x, channels_last)], params)
        np.testing.assert_allclose(out.astype("f8"), want.detach().numpy(), atol=tolerance, rtol=tolerance)
        g = (rng.integers(-8, 9, tuple(want.shape)) / 8).astype(dtype)
        want.backward(torch.from_numpy(g.astype("f8")))
        dx = laid_out(np.empty(shape, dtype), channels_last)
        call("avg_pool2d_backward", [dx], [laid_out(g, channels_last)], [list(shape), *params])
        np.testing.assert_allclose(dx.astype("f8"), wide.grad.numpy(), atol=tolerance * 2, rtol=tolerance * 2)


def test_a_nan_stays_in_its_windows() -> None:
    x = np.ones((1, 1, 4, 4), "f4")
    x[0, 0, 0, 0] = np.nan
    out = np.empty((1, 1, 2, 2), "f4")
    call("avg_pool2d", [out], [x], [[2, 2], [2, 2], [0, 0], False, True, None])
    assert np.isnan(out[0, 0, 0, 0]) and (out.ravel()[1:] == 1).all()
