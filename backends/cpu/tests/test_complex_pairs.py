"""Products of complex numbers by what shortcuts there are: bit by bit what their parts give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts

VALUES = [0.0, -0.0, 1.0, -2.5, 1e-30, 3e38, np.inf, -np.inf, np.nan]
NUMBERS = [2, -0.0, 2j, 1 - 3j, complex(np.inf, 0), complex(0, np.nan), np.inf, np.nan]
DTYPES = [ts.complex64, ts.complex128]
SIZES = [1, 2, 3, 4, 5, 9, 81]


def numbers(n: int, dtype: ts.dtype) -> ts.Tensor:
    """All pairs of values, as many as asked for, at a place that no vector would choose."""
    every = np.array([complex(a, b) for a in VALUES for b in VALUES])
    return ts.tensor(np.resize(every, n + 1)).to(dtype)[1:]


def parts(x: Any) -> tuple[Any, Any]:
    return x.real.numpy().copy(), x.imag.numpy().copy()


def check(found: ts.Tensor, a: tuple[Any, Any], b: tuple[Any, Any]) -> None:
    with np.errstate(all="ignore"):
        wanted = a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]
    for got, want in zip(parts(found), wanted, strict=True):
        np.testing.assert_array_equal(got, want)
        number = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_by_a_number(n: int, dtype: ts.dtype) -> None:
    x = numbers(n, dtype)
    real = x.real.numpy().dtype.type
    for number in NUMBERS:
        by = real(np.real(number)), real(np.imag(number))
        if not isinstance(number, complex):
            by = by[0], real(by[0] != by[0])
        check(x * number, parts(x), by)
        check(x.clone().mul_(number), parts(x), by)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_by_real_and_complex_numbers(n: int, dtype: ts.dtype) -> None:
    x, y = numbers(n, dtype), numbers(n, dtype).flip(0)
    real = ts.tensor(np.resize(np.array(VALUES), n + 2)).to(dtype.to_real())[2:]
    by = real.numpy(), np.isnan(real.numpy()).astype(real.numpy().dtype)
    check(x * real, parts(x), by)
    check(real * x, parts(x), by)
    check(x * y, parts(x), parts(y))
    check(x * x, parts(x), parts(x))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_conjugates(n: int, dtype: ts.dtype) -> None:
    x = numbers(n, dtype)
    for made in (x.conj_physical(), x.conj().resolve_conj(), x.clone().conj_physical_()):
        re, im = parts(made)
        np.testing.assert_array_equal(re, parts(x)[0])
        np.testing.assert_array_equal(im, -parts(x)[1])
        np.testing.assert_array_equal(np.signbit(im), ~np.signbit(parts(x)[1]))
