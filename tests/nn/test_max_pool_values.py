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
