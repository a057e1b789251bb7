"""convolution and its gradients against torch in float64."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from kernel_harness import BFLOAT16, Array, call

torch = pytest.importorskip("torch")

FLOATS = [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16]
TOLERANCE = {np.dtype("f4"): 2e-6, np.dtype("f8"): 1e-14, np.dtype("f2"): 2e-3, BFLOAT16: 1e-2}

# batch, in, out, groups, input size, kernel, stride, padding, dilation
CASES: list[tuple[Any, ...]] = [
    (2, 3, 5, 1, (9,), (3,), (1,), (1,), (1,)),
    (1, 4, 4, 2, (20,), (5,), (2,), (2,), (2,)),
    (2, 3, 8, 1, (9, 11), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 16, 32, 1, (12, 12), (3, 3), (2, 2), (1, 1), (1, 1)),
    (3, 16, 16, 16, (10, 9), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 6, 9, 3, (10, 9), (3, 2), (2, 1), (0, 1), (1, 2)),
    (1, 1, 1, 1, (5, 5), (5, 5), (1, 1), (0, 0), (1, 1)),
    (2, 32, 16, 1, (7, 7), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 5, 7, 1, (8, 8), (3, 3), (3, 3), (2, 2), (2, 2)),
    (2, 4, 6, 1, (5, 6, 7), (3, 2, 3), (1, 2, 1), (1, 0, 1), (1, 1, 2)),
    (1, 16, 16, 1, (6, 6, 6), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    # Large enough for tiles where images lie channels-last.
    (2, 16, 24, 1, (17, 13), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 5, 19, 1, (16, 16), (3, 5), (1, 1), (2, 0), (1, 1)),
    (1, 20, 8, 1, (40, 41), (3, 3), (2, 2), (1, 1), (1, 1)),
    (2, 32, 34, 2, (16, 16), (3, 3), (1, 1), (1, 1), (1, 1)),
    (2, 18, 17, 1, (20, 21), (3, 2), (1, 1), (3, 2), (2, 3)),
    (1, 16, 16, 1, (12, 24), (1, 1), (1, 1), (3, 4), (1, 1)),
    (3, 33, 9, 1, (11, 12), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 48, 18, 2, (12, 22), (2, 2), (1, 2), (0, 1), (1, 1)),
    (1, 16, 20, 1, (600,), (4,), (1,), (2,), (3,)),
    (1, 16, 12, 1, (5, 9, 10), (3, 2, 3), (1, 1, 1), (2, 0, 1), (2, 1, 1)),
    (2, 16, 8, 1, (3, 9, 8), (2, 3, 3), (2, 1, 1), (1, 4, 1), (1, 2, 1)),
]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    return (rng.integers(-8, 9, shape) / 8).astype(dtype)


def empty(shape: tuple[int, ...], dtype: Any, channels_last: bool) -> Array:
    if not channels_last:
        return np.empty(shape, dtype)
    return np.moveaxis(np.empty((shape[0], *shape[2:], shape[1]), dtype), -1, 1)


def laid_out(x: Array, channels_last: bool) -> Array:
    out = empty(x.shape, x.dtype, channels_last)
    out[...] = x
    return out


def check(got: Array, want: Any) -> None:
    reference = want.detach().numpy()
    assert got.shape == reference.shape
    error = np.abs(got.astype("f8") - reference).max()
    assert error <= TOLERANCE[got.dtype] * max(1.0, float(np.abs(reference).max()))


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_gradients(case: Any, dtype: np.dtype[Any], channels_last: bool) -> None:
    batch, c_in, c_out, groups, size, kernel, stride, padding, dilation = case
    rng = np.random.default_rng(0)
    x = random_array(rng, (batch, c_in, *size), dtype)
    w = random_array(rng, (c_out, c_in // groups, *kernel), dtype)
    b = random_array(rng, (c_out,), dtype)
    tx, tw, tb = (torch.from_numpy(v.astype("f8")).requires_grad_() for v in (x, w, b))
    conv = (torch.conv1d, torch.conv2d, torch.conv3d)[len(size) - 1]
    ty = conv(tx, tw, tb, stride, padding, dilation, groups)
    params = [list(stride), list(padding), list(dilation), groups]
    x_laid = laid_out(x, channels_last)

    out = empty(tuple(ty.shape), dtype, channels_last)
    call("convolution", [out], [x_laid, w, b], params)
    check(out, ty)
    w_laid = laid_out(w, channels_last)
    call("convolution", [out], [x_laid, w_laid, None], params)
    check(out, ty - tb.reshape(1, -1, *[1] * len(size)))

    g = random_array(rng, tuple(ty.shape), dtype)
    ty.backward(torch.from_numpy(g.astype("f8")))
    g_laid = laid_out(g, channels_last)
    dx = empty(x.shape, dtype, channels_last)
    for weight in (w, w_laid):
        call("convolution_backward_input", [dx], [g_laid, weight], [list(x.shape), *params])
        check(dx, tx.grad)
    for weight_last in (False, channels_last):
        dw = empty(w.shape, dtype, weight_last)
        call("convolution_backward_weight", [dw], [g_laid, x_laid], [list(w.shape), *params])
        check(dw, tw.grad)


@pytest.mark.skipif("TESSERACK_SANITIZED" in os.environ, reason="takes minutes under a sanitizer")
@pytest.mark.parametrize(
    ("dtype", "channels_last"), [(np.dtype("f4"), False), (np.dtype("f4"), True), (BFLOAT16, False)], ids=str
)
def test_gradient_of_a_weight_in_parts(dtype: Any, channels_last: bool) -> None:
    """A batch with more work than is done between two looks for an interrupt: the parts are added up."""
    rng = np.random.default_rng(2)
    x, g = (laid_out(random_array(rng, (8, 512, 48, 48), dtype), channels_last) for _ in range(2))
    params = [[512, 512, 3, 3], [1, 1], [1, 1], [1, 1], 1]
    whole, part = (np.empty((512, 512, 3, 3), dtype) for _ in range(2))
    call("convolution_backward_weight", [whole], [g, x], params)
    want = np.zeros(whole.shape)
    for i in range(8):
        call("convolution_backward_weight", [part], [g[i : i + 1], x[i : i + 1]], params)
        want += part
    scale = 1e-5 if dtype != BFLOAT16 else 1e-2
    np.testing.assert_allclose(whole.astype("f8"), want, rtol=scale, atol=scale * np.abs(want).max())


def test_channels_last_weight_and_mixed_layouts() -> None:
    rng = np.random.default_rng(1)
    x, w = random_array(rng, (4, 16, 8, 8), "f4"), random_array(rng, (16, 16, 3, 3), "f4")
    want = torch.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), padding=1)
    out = np.empty((4, 16, 8, 8), "f4")
    call("convolution", [out], [laid_out(x, True), laid_out(w, True), None], [[1, 1], [1, 1], [1, 1], 1])
    check(out, want)
    strided = np.empty((4, 16, 8, 16), "f4")[..., ::2]
    call("convolution", [strided], [x, w, None], [[1, 1], [1, 1], [1, 1], 1])
    check(strided, want)
