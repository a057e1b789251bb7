"""Pooling against windows cut out one by one in NumPy."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.nn import functional as F

RNG = np.random.default_rng(4)
# Distinct values, so that maxima have no ties and finite differences do not cross them.
X = RNG.permutation(2 * 3 * 7 * 6).reshape(2, 3, 7, 6) / 10.0


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def output_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil: bool) -> int:
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) / stride
    out = (math.ceil(count) if ceil else math.floor(count)) + 1
    return out - 1 if ceil and (out - 1) * stride >= size + padding else out


def windows(plane: tuple[int, int], options: dict[str, Any]) -> Iterator[tuple[int, int, list[int], list[int]]]:
    """(row, column, input rows, input columns) of every window, positions outside the input included."""
    kernel = pair(options["kernel_size"])
    stride, padding, dilation = (
        pair(options.get(k, d)) for k, d in (("stride", kernel), ("padding", 0), ("dilation", 1))
    )
    ceil = options.get("ceil_mode", False)
    sizes = [output_size(plane[d], kernel[d], stride[d], padding[d], dilation[d], ceil) for d in range(2)]
    for i in range(sizes[0]):
        for j in range(sizes[1]):
            rows = [i * stride[0] - padding[0] + k * dilation[0] for k in range(kernel[0])]
            columns = [j * stride[1] - padding[1] + k * dilation[1] for k in range(kernel[1])]
            yield i, j, rows, columns


def pooled(x: np.ndarray, options: dict[str, Any], reduce: Any) -> np.ndarray:
    found = {(i, j): reduce(x, rows, columns) for i, j, rows, columns in windows(x.shape[2:], options)}
    last = max(found)
    return np.stack([found[key] for key in sorted(found)], -1).reshape(*x.shape[:2], last[0] + 1, last[1] + 1)


def inside(positions: list[int], size: int) -> list[int]:
    return [p for p in positions if 0 <= p < size]


def maximum(x: np.ndarray, rows: list[int], columns: list[int]) -> np.ndarray:
    return x[:, :, inside(rows, x.shape[2])][:, :, :, inside(columns, x.shape[3])].max((2, 3))


OPTIONS: list[dict[str, Any]] = [
    {"kernel_size": 2},
    {"kernel_size": (3, 2), "stride": (2, 1), "padding": 1},
    {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "ceil_mode": True},
    {"kernel_size": 2, "stride": 1},
]


@pytest.mark.parametrize(
    "options", [*OPTIONS, {"kernel_size": (3, 2), "padding": 1, "dilation": (2, 3), "stride": 1}], ids=str
)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "int64"])
def test_max(device: Any, options: dict[str, Any], dtype: str) -> None:
    a = X * 10 if dtype == "int64" else X
    x = tensor(a, device, getattr(ts, dtype))
    want = pooled(x.double().cpu().numpy(), options, maximum)
    values, indices = F.max_pool2d(x, **options, return_indices=True)
    np.testing.assert_array_equal(values.double().cpu().numpy(), want)
    picked = x.flatten(2).gather(2, indices.flatten(2)).reshape(want.shape)
    np.testing.assert_array_equal(picked.double().cpu().numpy(), want)
    np.testing.assert_array_equal(F.max_pool2d(x[0], **options).double().cpu().numpy(), want[0])
    last = x.contiguous(memory_format=ts.channels_last)
    np.testing.assert_array_equal(F.max_pool2d(last, **options).double().cpu().numpy(), want)


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("divisor", [None, 3])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_average(device: Any, options: dict[str, Any], include: bool, divisor: int | None) -> None:
    padding = pair(options.get("padding", 0))

    def average(x: np.ndarray, rows: list[int], columns: list[int]) -> np.ndarray:
        total = x[:, :, inside(rows, x.shape[2])][:, :, :, inside(columns, x.shape[3])].sum((2, 3))
        counted = [
            sum(-padding[d] <= p < x.shape[2 + d] + padding[d] for p in positions)
            if include
            else len(inside(positions, x.shape[2 + d]))
            for d, positions in enumerate((rows, columns))
        ]
        return total / (divisor or counted[0] * counted[1])

    want = pooled(X, options, average)
    extra = {"count_include_pad": include, "divisor_override": divisor}
    np.testing.assert_allclose(F.avg_pool2d(tensor(X, device), **options, **extra).cpu().numpy(), want, rtol=1e-12)
    last = tensor(X, device, ts.float32).contiguous(memory_format=ts.channels_last)
    np.testing.assert_allclose(F.avg_pool2d(last, **options, **extra).double().cpu().numpy(), want, rtol=1e-5)
    small = tensor(X[:1, :2], device, grad=True)
    assert gradcheck(lambda t: F.avg_pool2d(t, **options, **extra), (small,))
    assert gradgradcheck(lambda t: F.avg_pool2d(t, **options, **extra), (small,))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_max_gradients(device: Any, options: dict[str, Any]) -> None:
    x = tensor(X[:1, :2], device, grad=True)
    assert gradcheck(lambda t: F.max_pool2d(t, **options), (x,))
    assert gradgradcheck(lambda t: F.max_pool2d(t, **options), (x,))


@pytest.mark.parametrize("size", [1, 2, 3, (4, 5), (7, 6)])
def test_adaptive(device: Any, size: Any) -> None:
    rows, columns = pair(size)

    def span(o: int, n: int, total: int) -> slice:
        return slice(o * total // n, -((o + 1) * total // -n))

    cut = lambda i, j: X[:, :, span(i, rows, 7), span(j, columns, 6)]  # noqa: E731
    mean = np.array([[cut(i, j).mean((2, 3)) for j in range(columns)] for i in range(rows)]).transpose(2, 3, 0, 1)
    top = np.array([[cut(i, j).max((2, 3)) for j in range(columns)] for i in range(rows)]).transpose(2, 3, 0, 1)
    x = tensor(X, device, grad=True)
    np.testing.assert_allclose(F.adaptive_avg_pool2d(x, size).detach().cpu().numpy(), mean, rtol=1e-12)
    np.testing.assert_array_equal(ts.adaptive_max_pool2d(x, size).detach().cpu().numpy(), top)
    assert gradcheck(lambda t: ts.adaptive_avg_pool2d(t, size), (x[:1, :1].detach().requires_grad_(),))


@pytest.mark.parametrize("size", [17, 31, 45, 90])
def test_adaptive_in_many_windows(device: Any, size: int) -> None:
    """More than are taken one by one, as long as each other or not, and more than there are elements."""
    line = np.random.default_rng(3).standard_normal((2, 45, 3))
    cuts = [line[:, o * 45 // size : -((o + 1) * 45 // -size)] for o in range(size)]
    x = tensor(line[..., None, :].swapaxes(1, 2).copy(), device, grad=True)  # (2, 1, 45, 3)
    mean, top = F.adaptive_avg_pool2d(x, (size, 3)), ts.adaptive_max_pool2d(x, (size, 3))
    np.testing.assert_allclose(mean[:, 0].detach().cpu().numpy(), np.stack([c.mean(1) for c in cuts], 1), rtol=1e-12)
    np.testing.assert_array_equal(top[:, 0].detach().cpu().numpy(), np.stack([c.max(1) for c in cuts], 1))
    small = x[:1, :, :, :1].detach().requires_grad_()
    assert gradcheck(lambda t: F.adaptive_avg_pool2d(t, (size, 1)), (small,))
    assert gradcheck(lambda t: ts.adaptive_max_pool2d(t, (size, 1)), (small,))


def test_one_dimension(device: Any) -> None:
    line = X[:, :, 0]
    x = tensor(line, device, grad=True)
    want = np.stack([line[:, :, i : i + 2].max(2) for i in range(5)], -1)
    np.testing.assert_array_equal(ts.max_pool1d(x, 2, 1).detach().cpu().numpy(), want)
    np.testing.assert_allclose(ts.avg_pool1d(x, 3).detach().cpu().numpy(), line.reshape(2, 3, 2, 3).mean(3))
    np.testing.assert_allclose(ts.adaptive_avg_pool1d(x, 2).detach().cpu().numpy(), line.reshape(2, 3, 2, 3).mean(3))
    assert gradcheck(lambda t: ts.max_pool1d(t, 2, 1), (x,))


def test_nan_and_minus_infinity(device: Any) -> None:
    a = np.full((1, 1, 4, 4), -np.inf)
    values, indices = F.max_pool2d(tensor(a, device), 3, 2, 1, 2, return_indices=True)
    assert np.isneginf(values.cpu().numpy()).all()
    assert (indices >= 0).all().item()
    a[0, 0, 1, 1] = np.nan
    assert np.isnan(F.max_pool2d(tensor(a, device), 2).cpu().numpy()[0, 0, 0, 0])


def test_empty_batch_and_errors(device: Any) -> None:
    assert tuple(F.max_pool2d(ts.empty(0, 3, 6, 6, device=device), 2).shape) == (0, 3, 3, 3)
    x = tensor(X, device)
    for call, text in (
        (lambda: F.max_pool2d(x, 3, padding=2), "half"),
        (lambda: F.max_pool2d(x, 9), "too small"),
        (lambda: F.max_pool2d(x, 0), "kernel"),
        (lambda: F.max_pool2d(x, 2, 0), "stride"),
        (lambda: F.max_pool2d(x[0, 0], 2), "C, H, W"),
        (lambda: F.avg_pool2d(x, 2, divisor_override=0), "divisor"),
        (lambda: F.avg_pool2d(x.int(), 2), "not implemented"),
        (lambda: F.max_pool2d(x, (1, 2, 3)), "kernel_size"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
