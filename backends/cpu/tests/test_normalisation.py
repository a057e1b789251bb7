"""softmax, layer norm, batch norm and var_mean against float64 formulas."""

from __future__ import annotations

from typing import Any

import kernel_harness as h
import numpy as np
import pytest
from kernel_harness import Array

FLOATS = [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), h.BFLOAT16]
TOLERANCE = {np.dtype("f4"): 2e-6, np.dtype("f8"): 1e-13, np.dtype("f2"): 2e-3, h.BFLOAT16: 1.6e-2}


def statistics_dtype(dtype: np.dtype[Any]) -> str:
    return "f8" if dtype == np.dtype("f8") else "f4"


def close(got: Array, want: Array, dtype: np.dtype[Any], factor: float = 1.0) -> None:
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(
        got.astype("f8"), want, rtol=TOLERANCE[dtype] * factor, atol=TOLERANCE[dtype] * factor * scale
    )


def softmax64(x: Array, dim: int) -> Array:
    e = np.exp(x - x.max(dim, keepdims=True))
    share: Array = e / e.sum(dim, keepdims=True)
    return share


SHAPES = [
    ((4, 7), 1),
    ((4, 7), 0),
    ((3, 1000), 1),
    ((5, 33, 6), 1),
    ((2, 9, 40), 1),
    ((2, 5000), 1),
    ((70, 3, 90), 0),
    ((6,), 0),
]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_softmax(shape: tuple[int, ...], dim: int, dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    x = (rng.normal(size=shape) * 4).astype(dtype)
    g = rng.normal(size=shape).astype(dtype)
    y, log_y, dx = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    x64, g64 = x.astype("f8"), g.astype("f8")
    h.call("softmax", [y], [x], [dim])
    close(y, softmax64(x64, dim), dtype)
    h.call("log_softmax", [log_y], [x], [dim])
    close(log_y, np.log(softmax64(x64, dim)), dtype)
    y64, log64 = y.astype("f8"), log_y.astype("f8")
    h.call("softmax_backward", [dx], [g, y], [dim])
    close(dx, y64 * (g64 - (g64 * y64).sum(dim, keepdims=True)), dtype)
    h.call("log_softmax_backward", [dx], [g, log_y], [dim])
    close(dx, g64 - np.exp(log64) * g64.sum(dim, keepdims=True), dtype, 4)


def test_softmax_at_the_limits() -> None:
    x = np.array([[1e30, 0, -1e30], [-np.inf, 0, 0], [-np.inf] * 3, [np.nan, 1, 2], [88, 89, 90]], "f4")
    y = np.empty_like(x)
    h.call("softmax", [y], [x], [1])
    np.testing.assert_array_equal(y[0], [1, 0, 0])
    np.testing.assert_array_equal(y[1], [0, 0.5, 0.5])
    assert np.isnan(y[2]).all() and np.isnan(y[3]).all()
    np.testing.assert_allclose(y[4], softmax64(x[4:].astype("f8"), 1)[0], rtol=1e-6)
    scalar, out = np.array(3.0, "f4"), np.empty((), "f4")
    h.call("softmax", [out], [scalar], [0])
    assert out == 1


@pytest.mark.parametrize("n", [5, 16, 40, 1030])
def test_softmax_under_a_mask(n: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(64, n)).astype("f4")
    x[rng.uniform(size=x.shape) < 0.3] = -np.inf  # near and far numbers beside each other
    x[rng.uniform(size=x.shape) < 0.1] = -95.0  # whose exponentials are subnormal
    x[:, 0] = 0
    y, log_y = np.empty_like(x), np.empty_like(x)
    h.call("softmax", [y], [x], [1])
    want = softmax64(x.astype("f8"), 1)
    np.testing.assert_allclose(y, want, rtol=1e-6, atol=2e-45)
    assert (y[np.isneginf(x)] == 0).all()
    h.call("log_softmax", [log_y], [x], [1])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(log_y, np.log(want), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
@pytest.mark.parametrize(
    ("shape", "normalized"), [((4, 7), (7,)), ((50, 1000), (1000,)), ((3, 5, 6, 7), (6, 7)), ((2, 9000), (9000,))]
)
def test_layer_norm(
    shape: tuple[int, ...], normalized: tuple[int, ...], affine: str, dtype: np.dtype[Any], rng: np.random.Generator
) -> None:
    lead = shape[: len(shape) - len(normalized)]
    x = (rng.normal(size=shape) * 2 + 3).astype(dtype)
    g = rng.normal(size=shape).astype(dtype)
    w = None if affine == "none" else rng.normal(size=normalized).astype(dtype)
    b = rng.normal(size=normalized).astype(dtype) if affine == "both" else None
    stats = (*lead, *[1] * len(normalized))
    y, mean, rstd = np.empty_like(x), np.empty(stats, statistics_dtype(dtype)), np.empty(stats, statistics_dtype(dtype))
    h.call("native_layer_norm", [y, mean, rstd], [x, w, b], [list(normalized), 1e-5])
    axes = tuple(range(len(lead), len(shape)))
    x64, g64 = x.astype("f8"), g.astype("f8")
    mean64 = x64.mean(axes, keepdims=True)
    rstd64 = 1 / np.sqrt(x64.var(axes, keepdims=True) + 1e-5)
    xhat = (x64 - mean64) * rstd64
    w64 = 1.0 if w is None else w.astype("f8")
    close(mean, mean64, np.dtype(statistics_dtype(dtype)))
    close(rstd, rstd64, np.dtype(statistics_dtype(dtype)))
    close(y, xhat * w64 + (0 if b is None else b.astype("f8")), dtype, 2)
    dx, dw, db = np.empty_like(x), np.empty(normalized, dtype), np.empty(normalized, dtype)
    h.call("native_layer_norm_backward", [dx, dw, db], [g, x, mean, rstd, w], [list(normalized)])
    gw = g64 * w64
    want = rstd64 * (gw - gw.mean(axes, keepdims=True) - xhat * (gw * xhat).mean(axes, keepdims=True))
    rows = tuple(range(len(lead)))
    close(dx, want, dtype, 4)
    close(dw, (g64 * xhat).sum(rows), dtype, 4)
    close(db, g64.sum(rows), dtype, 4)


def test_layer_norm_far_from_zero(rng: np.random.Generator) -> None:
    x = (rng.normal(size=(8, 4096)) + 1e4).astype("f4")
    y, mean, rstd = np.empty_like(x), np.empty((8, 1), "f4"), np.empty((8, 1), "f4")
    h.call("native_layer_norm", [y, mean, rstd], [x, None, None], [[4096], 1e-5])
    x64 = x.astype("f8")
    np.testing.assert_allclose(rstd[:, 0], 1 / np.sqrt(x64.var(1) + 1e-5), rtol=1e-6)
    constant = np.full((2, 64), 7.7, "f4")
    h.call("native_layer_norm", [y[:2, :64].copy(), mean[:2], rstd[:2]], [constant, None, None], [[64], 1e-5])
    np.testing.assert_allclose(rstd[:2, 0], 1 / np.sqrt(1e-5), rtol=1e-4)


def as_channels_last(x: Array) -> Array:
    """The same values, C innermost in memory."""
    order = (0, *range(2, x.ndim), 1)
    back = (0, x.ndim - 1, *range(1, x.ndim - 1))
    return np.ascontiguousarray(x.transpose(order)).transpose(back)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("layout", ["rows", "channels last", "mixed"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (6, 5, 11), (3, 4, 9, 7), (8, 33, 30, 30), (2, 3, 4, 5, 6)])
def test_batch_norm(
    shape: tuple[int, ...], training: bool, layout: str, dtype: np.dtype[Any], rng: np.random.Generator
) -> None:
    c, stat = shape[1], statistics_dtype(dtype)
    arrange = as_channels_last if layout != "rows" else np.ascontiguousarray
    x = arrange((rng.normal(size=shape) * 2 + 1).astype(dtype))
    g = rng.normal(size=shape).astype(dtype)
    g = g if layout == "mixed" else arrange(g)
    w, b = rng.normal(size=c).astype(dtype), rng.normal(size=c).astype(dtype)
    running_mean, running_var = rng.normal(size=c).astype(dtype), rng.uniform(1, 2, c).astype(dtype)
    old_mean, old_var = running_mean.astype("f8"), running_var.astype("f8")
    y, mean, rstd = arrange(np.empty(shape, dtype)), np.empty(c, stat), np.empty(c, stat)
    h.call("native_batch_norm", [y, mean, rstd], [x, w, b, running_mean, running_var], [training, 0.1, 1e-5])
    axes = (0, *range(2, len(shape)))
    spread = (1, c, *[1] * (len(shape) - 2))
    x64, g64 = x.astype("f8"), g.astype("f8")
    count = x.size // c
    mean64 = x64.mean(axes) if training else old_mean
    var64 = x64.var(axes) if training else old_var
    rstd64 = 1 / np.sqrt(var64 + 1e-5)
    xhat = (x64 - mean64.reshape(spread)) * rstd64.reshape(spread)
    close(mean, mean64, np.dtype(stat), 2)
    close(rstd, rstd64, np.dtype(stat), 2)
    close(y, xhat * w.astype("f8").reshape(spread) + b.astype("f8").reshape(spread), dtype, 2)
    if training:
        close(running_mean, 0.9 * old_mean + 0.1 * mean64, dtype)
        close(running_var, 0.9 * old_var + 0.1 * var64 * count / (count - 1), dtype)
    else:
        np.testing.assert_array_equal(running_mean.astype("f8"), old_mean)
    dx, dw, db = arrange(np.empty(shape, dtype)), np.empty(c, dtype), np.empty(c, dtype)
    h.call("native_batch_norm_backward", [dx, dw, db], [g, x, w, mean, rstd], [training])
    want = g64 * 1.0
    if training:
        want = g64 - g64.mean(axes).reshape(spread) - xhat * (g64 * xhat).mean(axes).reshape(spread)
    close(dx, want * (w.astype("f8") * rstd64).reshape(spread), dtype, 6)
    close(dw, (g64 * xhat).sum(axes), dtype, 6)
    close(db, g64.sum(axes), dtype, 6)


def test_batch_norm_without_parameters(rng: np.random.Generator) -> None:
    x = rng.normal(size=(5, 4, 3)).astype("f4")
    y, mean, rstd = np.empty_like(x), np.empty(4, "f4"), np.empty(4, "f4")
    h.call("native_batch_norm", [y, mean, rstd], [x, None, None, None, None], [True, 0.1, 1e-5])
    want = (x - x.mean((0, 2), keepdims=True)) / np.sqrt(x.var((0, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, want, atol=1e-6)
    with pytest.raises(h.KernelError, match="running_mean and running_var"):
        h.call("native_batch_norm", [y, mean, rstd], [x, None, None, None, None], [False, 0.1, 1e-5])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("correction", [0.0, 1.0])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((2, 4), (1,)), ((300, 40), (0,)), ((6, 5, 70), (0, 2)), ((150_000,), (0,)), ((9, 40, 21), (1,))],
)
def test_var_mean(
    shape: tuple[int, ...], axes: tuple[int, ...], correction: float, dtype: np.dtype[Any], rng: np.random.Generator
) -> None:
    x = (rng.normal(size=shape) + 2).astype(dtype)
    for view in (x, x[::-1]):
        kept = [d for d in range(x.ndim) if d not in axes]
        arranged = view.transpose(*kept, *axes)
        out = [np.empty([shape[d] for d in kept], dtype) for _ in range(2)]
        h.call("var_mean", out, [arranged], [len(axes), correction])
        x64 = view.astype("f8")
        close(out[0], x64.var(axes, ddof=int(correction)), dtype, 2)
        close(out[1], x64.mean(axes), dtype)


def test_variance_of_too_few_elements() -> None:
    var, mean = np.empty((), "f4"), np.empty((), "f4")
    h.call("var_mean", [var, mean], [np.array([3.0], "f4")], [1, 1.0])
    assert np.isnan(var) and mean == 3.0
