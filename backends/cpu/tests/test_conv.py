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
    # For tiles of 2 x 2 positions: odd sizes, paddings, channels that fill no register, long rows, few tiles.
    (2, 21, 35, 1, (9, 14), (3, 3), (1, 1), (0, 2), (1, 1)),
    (1, 17, 18, 1, (5, 1100), (3, 3), (1, 1), (1, 0), (1, 1)),
    (3, 40, 130, 1, (7, 7), (3, 3), (1, 1), (2, 1), (1, 1)),
    (1, 24, 16, 1, (33, 40), (3, 3), (1, 1), (3, 4), (1, 1)),
    (20, 16, 20, 1, (6, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
    # For planes, of few output channels: strips of each count, bands, strides, paddings wider than the image.
    (2, 1, 6, 1, (28, 28), (5, 5), (1, 1), (2, 2), (1, 1)),
    (2, 6, 3, 1, (9, 50), (2, 3), (2, 1), (3, 4), (2, 3)),
    (1, 3, 13, 1, (5, 300), (4, 7), (1, 1), (2, 3), (1, 1)),
    (3, 2, 5, 1, (6, 12), (3, 3), (1, 1), (5, 14), (1, 1)),
    (1, 7, 2, 1, (90, 130), (3, 1), (1, 1), (1, 0), (1, 1)),
    (2, 15, 15, 1, (13, 16), (1, 2), (1, 1), (0, 0), (1, 1)),
    # Halves go through float32's kernels of the library where there are none of their own.
    (2, 24, 24, 24, (17, 15), (3, 3), (2, 2), (1, 1), (1, 1)),
    # Products over planes as they lie, and by groups.
    (2, 5, 9, 1, (24, 25), (1, 1), (1, 1), (0, 0), (1, 1)),
    (2, 6, 10, 2, (24, 25), (1, 1), (1, 1), (0, 0), (1, 1)),
    # Few results of a large weight.
    (1, 128, 257, 1, (4, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
    (1, 200, 150, 1, (7, 5), (3, 3), (2, 2), (1, 1), (1, 1)),
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


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
@pytest.mark.parametrize("channels", [(16, 16), (3, 6)], ids=str)
def test_what_is_not_finite_stays_where_it_belongs(
    channels: tuple[int, int], value: float, channels_last: bool
) -> None:
    """Sums and differences of neighbours would spread an infinity to positions that do not see it, and overflow."""
    rng = np.random.default_rng(3)
    x, g = (random_array(rng, (2, n, 12, 12), "f4") / 1024 for n in channels)
    w = random_array(rng, (channels[1], channels[0], 3, 3), "f4") / 1024
    params = [[1, 1], [1, 1], [1, 1], 1]
    spoilt_x, spoilt_g = x.copy(), g.copy()
    for spoilt in (spoilt_x, spoilt_g):
        spoilt[0, 2, 4:6, 4:7] = value
    tx, tw = (torch.from_numpy(v.astype("f8")).requires_grad_() for v in (spoilt_x, w))
    ty = torch.conv2d(tx, tw, padding=1)
    (want_dx,) = torch.autograd.grad(ty, tx, torch.from_numpy(spoilt_g.astype("f8")), retain_graph=True)
    (want_dw,) = torch.autograd.grad(ty, tw, torch.from_numpy(g.astype("f8")))
    spoilt_x, spoilt_g, g = (laid_out(v, channels_last) for v in (spoilt_x, spoilt_g, g))
    out, dx, dw = empty(g.shape, "f4", channels_last), empty(x.shape, "f4", channels_last), np.empty(w.shape, "f4")
    call("convolution", [out], [spoilt_x, w, None], params)
    call("convolution_backward_input", [dx], [spoilt_g, w], [list(x.shape), *params])
    call("convolution_backward_weight", [dw], [g, spoilt_x], [list(w.shape), *params])
    for got, want in ((out, ty.detach().numpy()), (dx, want_dx.numpy()), (dw, want_dw.numpy())):
        reference = np.where(np.abs(want) > np.finfo("f4").max, np.copysign(np.inf, want), want)
        finite = np.isfinite(reference)
        assert finite.any()
        np.testing.assert_array_equal(got[~finite], reference[~finite])
        scale = np.abs(reference[finite]).max()
        np.testing.assert_allclose(got[finite], reference[finite], rtol=0, atol=2e-6 * scale)


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


def test_weights_of_a_single_one() -> None:
    """Each at another place of the weight, some times: none is taken for an earlier one."""
    ts = pytest.importorskip("tesserack")
    x = ts.randn(5, 6, 12, 12)
    weights = ts.eye(2400)[:300].reshape(300, 16, 6, 5, 5)
    patches = ts.nn.functional.unfold(x, 5).reshape(5, 150, 8, 8)
    for weight in [*range(300)] * 3:
        out, at = divmod(weight, 150)
        want = ts.zeros(5, 16, 8, 8)
        want[:, out] = patches[:, at]
        assert ts.equal(ts.nn.functional.conv2d(x, weights[weight]), want), weight


@pytest.mark.parametrize("channels_last", [False, True])
def test_weights_that_are_kept_and_change(channels_last: bool, rng: np.random.Generator) -> None:
    """Few results for every weight: what was made of it is kept, until its contents are others, in place."""
    x = random_array(rng, (1, 32, 8, 8), "f4")
    weights = [random_array(rng, (48, 32, 3, 3), "f4") for _ in range(2)]
    wants = [torch.conv2d(torch.from_numpy(x).double(), torch.from_numpy(w).double(), padding=1) for w in weights]
    laid, w = laid_out(x, channels_last), np.empty_like(weights[0])
    for which in (0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 0):
        w[...] = weights[which]
        out = empty((1, 48, 8, 8), np.dtype("f4"), channels_last)
        call("convolution", [out], [laid, w, None], [[1, 1], [1, 1], [1, 1], 1])
        check(out, wants[which])
