"""equal: whether two tensors hold the same elements, at whatever place they first differ."""

from __future__ import annotations

import pytest
import tesserack as ts

DTYPES = [
    ts.bool,
    ts.uint8,
    ts.int8,
    ts.int16,
    ts.int32,
    ts.int64,
    ts.float16,
    ts.bfloat16,
    ts.float32,
    ts.float64,
    ts.complex64,
]
FLOATS = [ts.float16, ts.bfloat16, ts.float32, ts.float64, ts.complex64]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 15, 16, 17, 272, 273, 1000])
def test_where_they_differ(device: ts.device, n: int, dtype: ts.dtype) -> None:
    x = (ts.arange(n, device=device) % 2).to(dtype)
    assert x.equal(x.clone())
    for place in sorted({0, n // 2, n - 1}):
        y = x.clone()
        y[place] = 1 - y[place].to(ts.int64 if dtype == ts.bool else dtype)
        assert not x.equal(y) and not y.equal(x)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values(device: ts.device, dtype: ts.dtype) -> None:
    zeros, nan = ts.zeros(300, dtype=dtype, device=device), ts.full((300,), float("nan"), dtype=dtype, device=device)
    infinite = ts.full((300,), float("inf"), dtype=dtype, device=device)
    assert zeros.equal(-zeros)
    assert not nan.equal(nan)
    assert infinite.equal(infinite.clone()) and not infinite.equal(-infinite)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_views(device: ts.device, dtype: ts.dtype) -> None:
    x = (ts.arange(600, device=device) % 2).to(dtype).reshape(20, 30)
    assert x.t().equal(x.t().contiguous()) and x[3:].equal(x[3:].clone())
    assert x[:, ::2].equal(x[:, ::2].contiguous())
    assert not x[0].equal(x[0, 1:]) and not x.equal(x.t())


def test_views_with_pending_signs(device: ts.device) -> None:
    z = ts.complex(ts.randn(40, device=device), ts.randn(40, device=device))
    assert z.conj().imag.equal(-z.imag) and not z.conj().imag.equal(z.imag)
    assert not z.conj().equal(z) and z.conj().equal(z.conj().resolve_conj())


def test_other_dtype(device: ts.device) -> None:
    x = ts.arange(50, device=device)
    assert x.equal(x.float()) and not x.equal(x.float() + 0.5)


def test_nothing() -> None:
    assert ts.zeros(0, 3).equal(ts.zeros(0, 3)) and not ts.zeros(0, 3).equal(ts.zeros(3, 0))
