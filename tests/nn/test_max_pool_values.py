"""max_pool1d without indices, where no gradient asks for them: the same numbers as with them."""

from __future__ import annotations

import itertools

import pytest
import tesserack as ts


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_the_same_maxima_with_and_without_places(device: str, dtype: str) -> None:
    for length, kernel, stride, padding, dilation in itertools.product(
        (9, 64, 2310), (1, 3, 8), (1, 2, 3, 8), (0, 1), (1, 2)
    ):
        if padding > kernel // 2 or dilation * (kernel - 1) >= length:
            continue
        x = (ts.randn(2, 3, length) * 50).to(getattr(ts, dtype))
        if x.is_floating_point():
            x[0, 1, length // 2] = float("nan")
        for given in (x.to(device), x.to(device).transpose(0, 1), x.to(device)[:, :, ::2]):
            sizes = kernel, stride, padding, dilation, length % 2 == 0
            if dilation * (kernel - 1) >= given.shape[2]:
                continue
            values, _ = ts.max_pool1d_with_indices(given, *sizes)
            found = ts.nn.functional.max_pool1d(given, *sizes)
            assert found.shape == values.shape and found.dtype == values.dtype
            ts.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
def test_long_windows_and_zeros_of_both_signs(device: str, dtype: str) -> None:
    """Taken by halves or alone: NaN at either end, and of equal zeros the first one's sign."""
    windows = ((64, 64, 0, 1), (70, 20, 0, 1), (70, 100, 0, 1), (5, 1, 2, 3), (300, 300, 0, 1))
    for kernel, stride, padding, dilation in windows:
        x = (ts.randn(2, 2, 1500) * 50).to(getattr(ts, dtype))
        if x.is_floating_point():
            x[0, 0, 0] = x[0, 1, 640] = x[1, 0, 1499] = float("nan")
            x[1, 1] = ts.where(ts.rand(1500) < 0.5, -0.0, 0.0)
        x = x.to(device)
        sizes = kernel, stride, padding, dilation
        values, _ = ts.max_pool1d_with_indices(x, *sizes)
        found = ts.nn.functional.max_pool1d(x, *sizes)
        ts.testing.assert_close(found, values, rtol=0, atol=0, equal_nan=True)
        if x.is_floating_point() and kernel < 64:
            assert ts.equal(found[1, 1].signbit(), values[1, 1].signbit())


@pytest.mark.parametrize("size", [1, 7, 10, 30, 100])
def test_adaptive_maxima_of_lines_with_and_without_places(device: str, size: int) -> None:
    x = ts.randn(2, 3, 210, device=device)
    x[1, 2, 100] = float("nan")
    values, _ = ts.nn.functional.adaptive_max_pool1d(x, size, return_indices=True)
    for given in (x, x[0]):
        found = ts.nn.functional.adaptive_max_pool1d(given, size)
        ts.testing.assert_close(found, values if given is x else values[0], rtol=0, atol=0, equal_nan=True)
    one, other = (x.clone().nan_to_num().requires_grad_() for _ in range(2))
    weight = ts.randn(2, 3, size, device=device)
    (ts.nn.functional.adaptive_max_pool1d(one, size) * weight).sum().backward()
    (ts.nn.functional.adaptive_max_pool1d(other, size, return_indices=True)[0] * weight).sum().backward()
    ts.testing.assert_close(one.grad, other.grad)


def test_gradients_and_transforms_still_see_the_places(device: str) -> None:
    x = ts.arange(8.0, device=device).reshape(1, 1, 8)
    with ts.no_grad():
        pooled = ts.nn.functional.max_pool1d(x.requires_grad_(), 2)
        assert not pooled.requires_grad and pooled.tolist() == [[[1.0, 3.0, 5.0, 7.0]]]
    ts.nn.functional.max_pool1d(x, 2).sum().backward()
    assert x.grad.tolist() == [[[0.0, 1.0] * 4]]
    batched = ts.func.vmap(lambda line: ts.nn.functional.max_pool1d(line, 2))(x.detach())
    assert batched.tolist() == pooled.tolist()
    _, slope = ts.func.jvp(lambda line: ts.nn.functional.max_pool1d(line, 2), (x.detach(),), (ts.ones_like(x),))
    assert slope.tolist() == [[[1.0] * 4]]
