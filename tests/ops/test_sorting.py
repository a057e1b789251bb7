"""sort, topk, median, unique, searchsorted, counting, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(7)
DTYPES = ["bool", "uint8", "int8", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("descending", [False, True])
def test_sort(device: str, dtype: str, dim: int, descending: bool) -> None:
    a = RNG.integers(0, 5, (4, 6, 3)).astype(dtype)
    values, indices = ts.sort(ts.tensor(a, device=device), dim, descending)
    at = indices.cpu().numpy()
    np.testing.assert_array_equal(values.cpu().numpy(), np.take_along_axis(a, at, dim))
    key = -a.astype(np.float64) if descending else a.astype(np.float64)
    np.testing.assert_array_equal(at, np.argsort(key, dim, kind="stable"))


def test_sort_nan_last_and_strided(device: str) -> None:
    a = np.array([[2.0, np.nan, -1.0, np.inf], [0.0, -0.0, np.nan, -np.inf]])
    x = ts.tensor(a, device=device)
    np.testing.assert_array_equal(ts.sort(x)[0].cpu().numpy(), np.sort(a, 1))
    np.testing.assert_array_equal(ts.sort(x.t(), 0)[0].cpu().numpy(), np.sort(a.T, 0))
    np.testing.assert_array_equal(ts.sort(x[:, ::-1])[0].cpu().numpy(), np.sort(a[:, ::-1], 1))
    assert np.isnan(ts.sort(x, descending=True)[0].cpu().numpy()[:, 0]).all()


def test_sort_shapes(device: str) -> None:
    assert ts.sort(ts.tensor(3.0, device=device))[1].item() == 0
    assert ts.sort(ts.zeros(0, 3, device=device), 0)[0].shape == (0, 3)
    assert ts.argsort(ts.tensor([3, 1, 2], device=device)).cpu().numpy().tolist() == [1, 2, 0]
    assert ts.msort(ts.tensor([[3, 1], [2, 5]], device=device)).cpu().numpy().tolist() == [[2, 1], [3, 5]]


@pytest.mark.parametrize("k", [0, 1, 3, 8])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("largest", [False, True])
def test_topk(device: str, k: int, dim: int, largest: bool) -> None:
    a = RNG.permutation(64).reshape(8, 8).astype(np.float32)
    values, indices = ts.topk(ts.tensor(a, device=device), k, dim, largest)
    order = np.argsort(-a if largest else a, dim, kind="stable")
    want = np.take(order, range(k), dim)
    np.testing.assert_array_equal(indices.cpu().numpy(), want)
    np.testing.assert_array_equal(values.cpu().numpy(), np.take_along_axis(a, want, dim))


def test_kth_and_median(device: str) -> None:
    a = RNG.permutation(35).reshape(5, 7).astype(np.float64)
    x = ts.tensor(a, device=device)
    for k in (1, 4, 7):
        np.testing.assert_array_equal(ts.kthvalue(x, k)[0].cpu().numpy(), np.sort(a, 1)[:, k - 1])
    assert ts.median(x).item() == np.sort(a.ravel())[17]
    values, indices = ts.median(x, 1)
    np.testing.assert_array_equal(values.cpu().numpy(), np.median(a, 1))
    np.testing.assert_array_equal(np.take_along_axis(a, indices.cpu().numpy()[:, None], 1)[:, 0], values.cpu().numpy())
    assert ts.median(x, 0, keepdim=True)[0].shape == (1, 7)
    assert ts.median(ts.tensor([4, 1, 3, 2], device=device)).item() == 2


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8"])
@pytest.mark.parametrize("n", [5, 1000, 40000])
@pytest.mark.parametrize("wide", [False, True])
def test_kth_of_integers(device: str, dtype: str, n: int, wide: bool) -> None:
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if wide else (max(info.min, -90), 100)
    a = RNG.integers(low, high, (2, n), dtype=dtype, endpoint=True)
    a[1] = a[1, 0]  # one value all over
    for k in (1, n // 3, n):
        values, indices = ts.kthvalue(ts.tensor(a, device=device), k)
        np.testing.assert_array_equal(values.cpu().numpy(), np.sort(a, 1)[:, k - 1])
        np.testing.assert_array_equal(
            np.take_along_axis(a, indices.cpu().numpy()[:, None], 1)[:, 0], values.cpu().numpy()
        )
    assert ts.median(ts.tensor(a[0], device=device)).item() == np.sort(a[0])[(n - 1) // 2]


def test_median_of_nan(device: str) -> None:
    x = ts.tensor([[1.0, float("nan"), 3.0, 0.0], [4.0, 1.0, 2.0, 3.0]], device=device)
    values, indices = ts.median(x, 1)
    assert np.isnan(values.cpu().numpy()[0]) and indices.cpu().numpy()[0] == 1 and values.cpu().numpy()[1] == 2
    assert np.isnan(ts.median(x).item())
    assert ts.nanmedian(x, 1)[0].cpu().numpy().tolist() == [1.0, 2.0]
    assert np.isnan(ts.median(ts.zeros(0, device=device)).item())


def test_mode(device: str) -> None:
    a = RNG.integers(0, 4, (6, 5, 40))
    for dtype in (ts.int64, ts.uint8, ts.float32, ts.bfloat16, ts.bool):
        x = ts.tensor(a, device=device).to(dtype)
        b = (a != 0).astype(int) if dtype == ts.bool else a
        for dim in (0, 1, 2):
            values, indices = ts.mode(x, dim)
            rows = np.moveaxis(b, dim, -1)
            most = np.array([[np.bincount(row).argmax() for row in plane] for plane in rows])
            last = rows.shape[-1] - 1 - (rows == most[..., None])[..., ::-1].argmax(-1)
            np.testing.assert_array_equal(values.long().cpu().numpy(), most)
            np.testing.assert_array_equal(indices.cpu().numpy(), last)
            assert ts.mode(x, dim, keepdim=True)[1].shape[dim] == 1
    x = ts.tensor([[1.0, float("nan"), 1.0, float("nan"), float("nan")]], device=device, requires_grad=True)
    values, indices = ts.mode(x)
    values.sum().backward()
    assert values.item() == 1.0 and indices.item() == 2 and x.grad.cpu().numpy().tolist() == [[0, 0, 1, 0, 0]]
    with pytest.raises(NotImplementedError, match="no order"):
        ts.mode(ts.ones(3, dtype=ts.complex64, device=device))


def test_gradients(device: str) -> None:
    x = ts.tensor(RNG.permutation(12).reshape(3, 4) * 1.5, device=device, requires_grad=True)
    calls: list[Callable[[Any], Any]] = [
        lambda t: ts.sort(t, 0)[0] ** 2,
        lambda t: ts.sort(t, 1, True)[0] ** 2,
        lambda t: ts.topk(t, 2)[0] ** 2,
        lambda t: ts.topk(t, 2, 0, False)[0] ** 2,
        lambda t: ts.kthvalue(t, 2)[0] ** 2,
        lambda t: ts.median(t, 1)[0] ** 2,
        lambda t: ts.median(t) ** 2,
    ]
    for call in calls:
        assert gradcheck(call, (x,))
        assert gradgradcheck(call, (x,))


@pytest.mark.parametrize("dtype", DTYPES)
def test_unique(device: str, dtype: str) -> None:
    a = RNG.integers(0, 4, (4, 5)).astype(dtype)
    x = ts.tensor(a, device=device)
    want, inverse, counts = np.unique(a, return_inverse=True, return_counts=True)
    got = ts.unique(x, return_inverse=True, return_counts=True)
    for g, w in zip(got, (want, inverse.reshape(a.shape), counts), strict=True):
        np.testing.assert_array_equal(g.cpu().numpy(), w)
    np.testing.assert_array_equal(ts.unique(x).cpu().numpy(), want)


@pytest.mark.parametrize("dim", [0, 1])
def test_unique_along_a_dimension(device: str, dim: int) -> None:
    a = RNG.integers(0, 2, (6, 5) if dim == 0 else (3, 9))
    want, inverse, counts = np.unique(a, return_inverse=True, return_counts=True, axis=dim)
    got = ts.unique(ts.tensor(a, device=device), return_inverse=True, return_counts=True, dim=dim)
    for g, w in zip(got, (want, inverse.reshape(-1), counts), strict=True):
        np.testing.assert_array_equal(g.cpu().numpy(), w)


def test_unique_consecutive(device: str) -> None:
    x = ts.tensor([1, 1, 2, 2, 3, 1, 1], device=device)
    values, inverse, counts = ts.unique_consecutive(x, return_inverse=True, return_counts=True)
    assert values.cpu().numpy().tolist() == [1, 2, 3, 1]
    assert inverse.cpu().numpy().tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert counts.cpu().numpy().tolist() == [2, 2, 1, 2]
    assert ts.unique(ts.zeros(0, device=device)).shape == (0,)


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 100])
def test_searchsorted(device: str, n: int, right: bool) -> None:
    sequence = np.sort(RNG.integers(0, 20, n)).astype(np.float32)
    values = RNG.integers(-1, 22, (3, 8)).astype(np.float32)
    side = "right" if right else "left"
    s, v = ts.tensor(sequence, device=device), ts.tensor(values, device=device)
    want = np.searchsorted(sequence, values, side)
    np.testing.assert_array_equal(ts.searchsorted(s, v, right=right).cpu().numpy(), want)
    np.testing.assert_array_equal(ts.searchsorted(s, v, side=side, out_int32=True).cpu().numpy(), want)
    np.testing.assert_array_equal(ts.bucketize(v, s, right=right).cpu().numpy(), want)


def test_searchsorted_rows(device: str) -> None:
    sequence, values = np.sort(RNG.random((4, 9)), 1), RNG.random((4, 3))
    got = ts.searchsorted(ts.tensor(sequence, device=device), ts.tensor(values, device=device)).cpu().numpy()
    np.testing.assert_array_equal(got, np.stack([np.searchsorted(s, v) for s, v in zip(sequence, values, strict=True)]))
    assert ts.searchsorted(ts.tensor([1.0, 2.0], device=device), 1.5).item() == 1


def test_counting(device: str) -> None:
    a = np.array([3, 1, 1, 0, 5])
    x, w = ts.tensor(a, device=device), np.array([0.5, 1.0, 2.0, 1.0, 4.0])
    np.testing.assert_array_equal(ts.bincount(x).cpu().numpy(), np.bincount(a))
    for many in (3000, 5000, 70000):  # bins for few numbers
        np.testing.assert_array_equal(ts.bincount(x, minlength=many).cpu().numpy(), np.bincount(a, minlength=many))
    np.testing.assert_array_equal(ts.bincount(x, minlength=9).cpu().numpy(), np.bincount(a, minlength=9))
    np.testing.assert_array_equal(ts.bincount(x, ts.tensor(w, device=device)).cpu().numpy(), np.bincount(a, w))
    v = RNG.random(200).astype(np.float32) * 10
    np.testing.assert_array_equal(
        ts.histc(ts.tensor(v, device=device), 10, 2, 8).cpu().numpy(), np.histogram(v, 10, (2, 8))[0]
    )
    wide = ts.tensor([-(2**62), 0, 5, 2**62, 2**63 - 1], device=device)
    assert wide.histc(4, 2, 1e300).tolist() == [3, 0, 0, 0] and wide.histc(2).tolist() == [3, 2]
    np.testing.assert_array_equal(ts.histc(ts.tensor([1.0, 2.0, 3.0], device=device), 2).cpu().numpy(), [1, 2])
    whole = ts.histc(ts.tensor([0, 3, 3, 7, 9, -1], dtype=ts.int32, device=device), 4, 0, 7)
    assert whole.dtype is ts.int32
    np.testing.assert_array_equal(whole.cpu().numpy(), [1, 2, 0, 1])


def test_membership(device: str) -> None:
    a, b = RNG.integers(0, 9, (3, 4)), RNG.integers(0, 9, 5)
    x, y = ts.tensor(a, device=device), ts.tensor(b, device=device)
    np.testing.assert_array_equal(ts.isin(x, y).cpu().numpy(), np.isin(a, b))
    np.testing.assert_array_equal(ts.isin(x, y, invert=True).cpu().numpy(), ~np.isin(a, b))
    np.testing.assert_array_equal(ts.isin(x, 3).cpu().numpy(), a == 3)
    np.testing.assert_array_equal(ts.nn.functional.one_hot(y, 10).cpu().numpy(), np.eye(10, dtype=np.int64)[b])
    assert ts.nn.functional.one_hot(ts.tensor(2, device=device)).cpu().numpy().tolist() == [0, 0, 1]


ERRORS: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "sort_dim": (lambda t: ts.sort(t, 2), IndexError, "out of range"),
    "topk": (lambda t: ts.topk(t, 5), RuntimeError, "out of range"),
    "kthvalue": (lambda t: ts.kthvalue(t, 0), RuntimeError, "out of range"),
    "kthvalue_of_nothing": (lambda t: ts.kthvalue(t[:, :0], 1), IndexError, "non-zero size"),
    "median": (lambda t: ts.median(t[:, :0], 1), IndexError, "non-zero size"),
    "searchsorted": (lambda t: ts.searchsorted(t, t[0]), RuntimeError, "must match"),
    "searchsorted_side": (lambda t: ts.searchsorted(t[0], t, side="middle"), RuntimeError, "side can only be"),
    "bincount": (lambda t: ts.bincount(t[0]), RuntimeError, "integral"),
    "bincount_negative": (lambda t: ts.bincount(ts.tensor([-1], device=t.device)), RuntimeError, "non-negative"),
    "one_hot": (
        lambda t: ts.nn.functional.one_hot(ts.tensor([3], device=t.device), 3),
        RuntimeError,
        "smaller than num_classes",
    ),
    "one_hot_negative": (
        lambda t: ts.nn.functional.one_hot(ts.tensor([-1], device=t.device)),
        RuntimeError,
        "non-negative",
    ),
    "histc": (lambda t: ts.histc(t, 0), RuntimeError, "bins must be > 0"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(device: str, name: str) -> None:
    call, kind, text = ERRORS[name]
    with pytest.raises(kind, match=text):
        call(ts.tensor(np.arange(12.0).reshape(3, 4), device=device))
