"""softmax and log_softmax against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(5)


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize(
    ("shape", "dim"), [((5,), 0), ((3, 4), 1), ((3, 4), 0), ((2, 3, 4), 1), ((2, 3, 4), -3), ((2, 300), 1), ((1, 1), 1)]
)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-13), ("float32", 1e-5), ("bfloat16", 2e-2), ("float16", 3e-3)]
)
def test_values(device: Any, shape: tuple[int, ...], dim: int, dtype: str, tolerance: float) -> None:
    a = RNG.standard_normal(shape) * 3
    x = tensor(a, device, getattr(ts, dtype))
    a = x.double().cpu().numpy()
    for got, want in (
        (x.softmax(dim), softmax(a, dim)),
        (x.log_softmax(dim), np.log(softmax(a, dim))),
        (ts.softmin(x, dim), softmax(-a, dim)),
    ):
        assert got.dtype == getattr(ts, dtype)
        np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        x.transpose(0, -1).softmax(0).double().cpu().numpy(),
        softmax(a.swapaxes(0, -1), 0),
        rtol=tolerance,
        atol=tolerance,
    )


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients(device: Any, dim: int) -> None:
    x = tensor(RNG.standard_normal((2, 3, 2)), device, grad=True)
    for call in (ts.softmax, ts.log_softmax):
        assert gradcheck(lambda t, f=call: f(t, dim), (x,))
        assert gradgradcheck(lambda t, f=call: f(t, dim), (x,))


def test_third_derivative(device: Any) -> None:
    x = tensor(RNG.standard_normal(3), device, grad=True)

    def second(t: ts.Tensor) -> ts.Tensor:
        (first,) = ts.autograd.grad((t.softmax(0) ** 2).sum(), t, create_graph=True)
        return ts.autograd.grad(first.sum(), t, create_graph=True)[0]

    assert gradcheck(second, (x,))


def test_extremes(device: Any) -> None:
    x = tensor([[1e30, 0.0, -1e30], [-np.inf, 0.0, 0.0]], device)
    np.testing.assert_array_equal(x.softmax(1).cpu().numpy(), [[1, 0, 0], [0, 0.5, 0.5]])
    assert x.log_softmax(1)[0].tolist() == [0.0, -1e30, -2e30]
    assert np.isnan(tensor([-np.inf, -np.inf], device).softmax(0).cpu().numpy()).all()


def test_dtype_zero_dims_and_empty(device: Any) -> None:
    assert ts.tensor([1, 2], device=device).softmax(0, dtype=ts.float32).sum().item() == pytest.approx(1)
    assert ts.tensor([1.0], device=device).softmax(0, dtype=ts.float64).dtype == ts.float64
    assert ts.tensor(3.0, device=device).softmax(-1).item() == 1
    assert ts.tensor(3.0, device=device).log_softmax(0).item() == 0
    assert tuple(ts.empty(3, 0, device=device).softmax(1).shape) == (3, 0)
    with pytest.raises(IndexError, match="out of range"):
        ts.ones(2, 3, device=device).softmax(2)
    with pytest.raises(NotImplementedError, match="int64"):
        ts.tensor([1, 2], device=device).softmax(0)
