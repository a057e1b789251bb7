"""Reductions, scans, extrema and norms against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5))
INTS = RNG.integers(-4, 5, (3, 4, 5))


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def close(got: ts.Tensor, want: Any, tolerance: float = 1e-12) -> None:
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)


def logsumexp(x: np.ndarray, axis: Any, keepdims: bool) -> np.ndarray:
    return np.log(np.exp(x).sum(axis=axis, keepdims=keepdims))


OVER_DIMS: dict[str, tuple[Callable[..., ts.Tensor], Callable[..., Any]]] = {
    "sum": (ts.sum, np.sum),
    "mean": (ts.mean, np.mean),
    "amax": (ts.amax, np.amax),
    "amin": (ts.amin, np.amin),
    "var": (
        lambda x, d, keepdim: x.var(d, keepdim=keepdim),
        lambda x, axis, keepdims: x.var(axis=axis, ddof=1, keepdims=keepdims),
    ),
    "std": (
        lambda x, d, keepdim: x.std(d, keepdim=keepdim),
        lambda x, axis, keepdims: x.std(axis=axis, ddof=1, keepdims=keepdims),
    ),
    "logsumexp": (ts.logsumexp, logsumexp),
    "norm": (
        lambda x, d, keepdim: x.norm(dim=d, keepdim=keepdim),
        lambda x, axis, keepdims: np.sqrt((x**2).sum(axis=axis, keepdims=keepdims)),
    ),
    "nansum": (ts.nansum, np.nansum),
}
DIMS: list[Any] = [0, 1, -1, (0, 2), (1, 2), (2, 0), (0, 1, 2)]


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", DIMS, ids=str)
@pytest.mark.parametrize("name", OVER_DIMS)
def test_over_dims(device: Any, name: str, dim: Any, keepdim: bool) -> None:
    ours, numpys = OVER_DIMS[name]
    want = numpys(X, axis=dim, keepdims=keepdim)
    close(ours(tensor(X, device), dim, keepdim=keepdim), want)
    close(ours(tensor(X, device, ts.float32), dim, keepdim=keepdim), want, 1e-5)
    strided = tensor(np.ascontiguousarray(X[:, ::-1].transpose(2, 0, 1)), device).permute(1, 2, 0).flip(1)
    close(ours(strided, dim, keepdim=keepdim), want)
    close(ours(tensor(np.repeat(X, 2, 1), device)[:, ::2], dim, keepdim=keepdim), want)
    expanded = tensor(X[:, :1], device).expand(3, 4, 5)
    close(
        ours(expanded, dim, keepdim=keepdim),
        numpys(np.broadcast_to(X[:, :1], X.shape), axis=dim, keepdims=keepdim),
        1e-7,
    )


@pytest.mark.parametrize("name", OVER_DIMS)
def test_gradients(device: Any, name: str) -> None:
    x = tensor(X[:2, :3, :2], device, grad=True)
    for dim in (1, (0, 2)):
        call = lambda t, d=dim: OVER_DIMS[name][0](t, d, keepdim=False)  # noqa: E731
        assert gradcheck(call, (x,))
        assert gradgradcheck(call, (x,))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "bool"])
def test_integers_become_int64(device: Any, dtype: str) -> None:
    a = np.abs(INTS).astype(dtype)
    for ours, numpys in ((ts.sum, np.sum), (ts.prod, np.prod)):
        got = ours(tensor(a, device), 1)
        assert got.dtype == ts.int64
        close(got, numpys(a.astype(np.int64), axis=1))
    assert tensor(a, device).sum(dtype=ts.float32).dtype == ts.float32
    close(tensor(a, device).amax(1), a.max(1).astype(np.int64))


def test_dtype_argument(device: Any) -> None:
    x = tensor([0.6, 0.6, 1.7], device)
    assert x.sum(dtype=ts.int64).item() == 1  # cast first, as PyTorch
    big = ts.full((70000,), 1.0, dtype=ts.float16, device=device)
    assert big.sum(dtype=ts.float32).item() == 70000
    assert big.mean().item() == 1.0  # the sum alone would overflow
    assert ts.ones(3000, dtype=ts.bfloat16, device=device).sum().item() == 3008  # summed exactly, rounded once


def test_prod_and_cumprod_with_zeros(device: Any) -> None:
    a = X[:2, :3, :3].copy()
    a[0, 1, 1] = a[1, :2, 0] = 0
    x = tensor(a, device, grad=True)
    for call in (lambda t: t.prod(), lambda t: t.prod(1), lambda t: t.cumprod(1), lambda t: t.cumprod(-1)):
        assert gradcheck(call, (x,))
        assert gradgradcheck(call, (x,))
    close(x.detach().prod(1, keepdim=True), a.prod(1, keepdims=True))


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_scans(device: Any, dim: int) -> None:
    x, y = tensor(X, device), tensor(np.ascontiguousarray(X.transpose(2, 1, 0)), device).transpose(0, 2)
    for t in (x, y):
        close(t.cumsum(dim), X.cumsum(dim))
        close(t.cumprod(dim), X.cumprod(dim))
        close(t.logcumsumexp(dim), np.log(np.exp(X).cumsum(dim)))
        values, indices = t.cummax(dim)
        close(values, np.maximum.accumulate(X, dim))
        close(t.gather(dim, indices), values.cpu().numpy())
        close(t.cummin(dim).values, np.minimum.accumulate(X, dim))
    small = tensor(X[:2, :3, :2], device, grad=True)
    for call in (ts.cumsum, ts.cumprod, ts.logcumsumexp, lambda t, d: t.cummax(d)[0]):
        assert gradcheck(lambda t, f=call: f(t, dim), (small,))
        assert gradgradcheck(lambda t, f=call: f(t, dim), (small,))


@pytest.mark.parametrize(("shape", "dim"), [((33001,), 0), ((130, 301), 1), ((515, 3, 41), 0)])
def test_long_logcumsumexp(device: Any, shape: tuple[int, ...], dim: int) -> None:
    """Long enough for its groups of groups, which end in the middle; values far apart, equal and infinite."""
    a = np.random.default_rng(5).standard_normal(shape) * 20
    a.flat[::7] = 3.0
    a.flat[-4] = -np.inf
    x = tensor(a, device, grad=True)
    y = x.logcumsumexp(dim)
    want = np.logaddexp.accumulate(a, dim)
    close(y.detach(), want)
    assert y.is_contiguous() and y.shape == shape
    weight = np.cos(np.arange(a.size)).reshape(shape)
    (y * tensor(weight, device)).sum().backward()
    moved, total, w = (np.moveaxis(t, dim, 0) for t in (a, want, weight))
    for j in (0, 1, 4, 63, 64, len(moved) - 1):
        expected = (w[j:] * np.exp(moved[j] - total[j:])).sum(0)
        np.testing.assert_allclose(np.moveaxis(x.grad.cpu().numpy(), dim, 0)[j], expected, rtol=1e-8, atol=1e-9)


def test_scans_stay_exact_far_from_zero(device: Any) -> None:
    x = tensor([-2000.0, 0.0, 3000.0, -np.inf], device)
    np.testing.assert_array_equal(x.logcumsumexp(0).tolist(), [-2000.0, 0.0, 3000.0, 3000.0])
    assert tensor([1, 2, 3], device, ts.int32).cumsum(0).dtype == ts.int64


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "int64", "uint8"])
def test_extrema_and_positions(device: Any, dtype: str) -> None:
    a = np.abs(INTS).astype(float)
    x = tensor(a, device, getattr(ts, dtype))
    values, indices = x.max(1)
    close(values, a.max(1))
    close(indices, a.argmax(1))
    result = x.min(2, keepdim=True)
    close(result.values, a.min(2, keepdims=True))
    close(result.indices, a.argmin(2)[..., None])
    assert x.argmax().item() == a.argmax()
    close(x.transpose(0, 1).argmin(0), a.argmin(1))
    close(ts.aminmax(x, dim=0)[1], a.max(0))
    close(ts.max(x, x.flip(0)), np.maximum(a, a[::-1]))


def test_extrema_meet_nan_and_ties(device: Any) -> None:
    x = tensor([1.0, np.nan, 3.0, np.nan], device)
    assert np.isnan(x.max().item())
    assert x.argmax().item() == 1
    assert x.max(0).indices.item() == 1
    ties = tensor([2.0, 1.0, 2.0], device, grad=True)
    ties.max().backward()
    assert ties.grad.tolist() == [0.5, 0.0, 0.5]
    ties.grad = None
    ties.max(0).values.backward()
    assert ties.grad.tolist() == [1.0, 0.0, 0.0]


def test_truth(device: Any) -> None:
    a = np.array([[0.0, 0.0], [0.0, np.nan]])
    x = tensor(a, device)
    assert x.any().item() is True
    assert x.all().item() is False
    assert x.any(1).tolist() == [False, True]
    assert x.all(0, keepdim=True).tolist() == [[False, False]]
    assert x.byte().any().dtype == ts.uint8
    assert ts.count_nonzero(x).item() == 1
    assert ts.count_nonzero(x, 1).tolist() == [0, 1]


def test_nothing_to_reduce(device: Any) -> None:
    x = ts.empty(2, 0, 3, device=device)
    assert x.sum(1).tolist() == [[0.0] * 3] * 2
    assert x.prod(1).tolist() == [[1.0] * 3] * 2
    assert x.all(1).tolist() == [[True] * 3] * 2
    assert x.any().item() is False
    assert np.isnan(x.mean().item())
    assert tuple(x.sum((0, 2)).shape) == (0,)
    assert tuple(x.amax(0).shape) == (0, 3)
    assert x.logsumexp(1).tolist() == [[-np.inf] * 3] * 2
    for call, error in (
        (lambda: x.max(), RuntimeError),
        (lambda: x.amax(1), IndexError),
        (lambda: x.argmax(1), IndexError),
        (lambda: x.norm(float("inf")), RuntimeError),
    ):
        with pytest.raises(error):
            call()


def test_zero_dims(device: Any) -> None:
    x = tensor(2.5, device, grad=True)
    for call in (
        ts.sum,
        ts.mean,
        ts.prod,
        ts.max,
        ts.norm,
        lambda t: t.sum(0),
        lambda t: t.cumsum(-1),
        lambda t: t.logsumexp(0),
        lambda t: t.max(0)[0],
    ):
        got = call(x)
        assert tuple(got.shape) == ()
        assert got.item() == 2.5
        (grad,) = ts.autograd.grad(got, x)
        assert grad.item() == 1.0
    assert x.argmax().item() == 0


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_moments(device: Any) -> None:
    x = tensor(X, device)
    close(x.var(), X.var(ddof=1))
    close(x.var(unbiased=False), X.var())
    close(x.var((0, 1), correction=2), X.var((0, 1), ddof=2))
    var, mean = ts.var_mean(x, 1, keepdim=True)
    close(var, X.var(1, ddof=1, keepdims=True))
    close(mean, X.mean(1, keepdims=True))
    std, mean = ts.std_mean(x, dim=(0, 2))
    close(std, X.std((0, 2), ddof=1))
    close(mean, X.mean((0, 2)))
    with pytest.warns(UserWarning, match="degrees of freedom"):
        assert np.isnan(ts.ones(1, device=device).var().item())
    far = tensor(X + 1e8, device)
    close(far.var(), X.var(ddof=1), 1e-6)
    grad = tensor(X[:2, :2], device, grad=True)
    assert gradcheck(lambda t: ts.var_mean(t, 1), (grad,))
    assert gradgradcheck(lambda t: ts.std_mean(t, (0, 2)), (grad,))


@pytest.mark.parametrize("p", [0, 0.5, 1, 1.5, 2, 3, float("inf"), -float("inf"), -1.5])
def test_norms(device: Any, p: float) -> None:
    x = tensor(X, device)
    want = np.linalg.norm(X.reshape(-1), p)
    close(x.norm(p), want, 1e-10)
    close(
        ts.linalg.vector_norm(x, p, dim=1, keepdim=True),
        np.apply_along_axis(lambda v: np.linalg.norm(v, p), 1, X)[:, None],
        1e-10,
    )
    small = tensor(X[0, :2, :3], device, grad=True)
    assert gradcheck(lambda t: t.norm(p, 1), (small,))
    assert gradgradcheck(lambda t: t.norm(p, 1), (small,))


def test_norm_of_zeros_has_zero_gradient(device: Any) -> None:
    for p in (1, 1.5, 2, 3):
        x = ts.zeros(3, device=device, requires_grad=True)
        x.norm(p).backward()
        assert x.grad.tolist() == [0.0] * 3


def test_errors(device: Any) -> None:
    x = tensor(X, device)
    for call, error, text in (
        (lambda: x.sum(3), IndexError, "out of range"),
        (lambda: x.sum((0, 0)), RuntimeError, "multiple times"),
        (lambda: x.long().mean(), RuntimeError, "floating point"),
        (lambda: x.long().var(), RuntimeError, "floating point"),
        (lambda: x.cumsum(7), IndexError, "out of range"),
        (lambda: x.sum_to_size(2, 5), RuntimeError, "expandable"),
        (lambda: x.max(0, out=1), TypeError, "out"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_out_and_sum_to_size(device: Any) -> None:
    x, out = tensor(X, device), ts.empty(0, dtype=ts.float64, device=device)
    assert ts.sum(x, 1, out=out) is out
    close(out, X.sum(1))
    close(x.sum_to_size(4, 1), X.sum((0, 2))[:, None])
    assert x.sum_to_size(3, 4, 5) is x


@pytest.mark.parametrize("name", ["sum", "prod", "mean", "nansum", "nanmean", "log_softmax"])
def test_dtypes_beside_out(device: Any, name: str) -> None:
    call, x = getattr(ts, name), tensor(X, device, ts.float32)
    out = ts.empty(0, device=device)
    with pytest.raises(RuntimeError, match="dtype"):
        call(x, 0, out=out, dtype=ts.float64)
    assert call(x, 0, out=out, dtype=ts.float32) is out


def test_sums_in_the_dtype_of_out(device: Any) -> None:
    x = tensor([1.7, 1.7, 1.7], device, ts.float32)
    assert ts.sum(x, 0, out=ts.empty((), dtype=ts.int64, device=device)).item() == 3
    assert ts.prod(x, 0, out=ts.empty((), dtype=ts.int64, device=device)).item() == 1
    big = ts.full((3,), 1e30, device=device)
    assert ts.prod(big, 0, out=ts.empty((), dtype=ts.float64, device=device)).item() == pytest.approx(1e90, rel=1e-6)


@pytest.mark.parametrize("dim", [None, 0, 1], ids=str)
def test_nansum_of_every_width(device: Any, float_dtype: ts.dtype, dim: int | None) -> None:
    """Long and short rows and columns; half types are summed in float32, and NaN has no gradient."""
    array = RNG.integers(-3, 4, (70, 300)).astype("f8")
    array[RNG.random(array.shape) < 0.2] = np.nan
    x = tensor(array, device, float_dtype, grad=True)
    total = ts.nansum(x, dim)
    want = np.nansum(array, axis=dim)
    assert total.dtype == float_dtype
    close(total.detach(), ts.tensor(want).to(float_dtype).double().numpy())
    close(ts.nansum(x.detach()[:, ::2], dim, dtype=ts.float64), np.nansum(array[:, ::2], axis=dim))
    total.sum().backward()
    assert x.grad is not None
    close(x.grad, np.where(np.isnan(array), 0.0, 1.0))


def test_nansum_gradients(device: Any) -> None:
    x = tensor(X, device, grad=True)
    assert gradcheck(lambda t: ts.nansum(t, 1), (x,)) and gradgradcheck(lambda t: ts.nansum(t * t, 1), (x,))
    assert ts.nansum(tensor([np.nan, np.inf, 1.0], device)).item() == np.inf
    assert ts.nansum(tensor([], device)).item() == 0


@pytest.mark.parametrize("offset", [0, 1, 3, 5])
@pytest.mark.parametrize("size", [100, 65_537, 131_073])
def test_halves_that_begin_anywhere(device: Any, offset: int, size: int) -> None:
    x = ts.randn(size).half()
    for reduce in (lambda t: t.amax(), lambda t: t.nansum(), lambda t: t.sum(), lambda t: t.abs().amin()):
        got, wanted = reduce(x.to(device)[offset:]), reduce(x[offset:].double())
        ts.testing.assert_close(got.cpu().double(), wanted, rtol=2e-3, atol=0.3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_remainders_of_zero_have_the_sign_of_what_is_divided(device: Any, dtype: str) -> None:
    a = ts.tensor([-0.0, -1, -3, 1, 1, 0, 5.5, -5.5] * 3, dtype=getattr(ts, dtype), device=device)
    b = ts.tensor([1.0, 1, 1, -1, -0.5, -1, 2, 2] * 3, dtype=getattr(ts, dtype), device=device)
    for n in (3, 24):  # by elements, and by vectors
        found = ts.remainder(a[:n], b[:n])
        assert found.tolist() == ([0, 0, 0, 0, 0, 0, 1.5, 0.5] * 3)[:n]
        signs = [True, True, True, False, False, False, False, False] * 3
        assert ts.signbit(found).tolist() == signs[:n]
