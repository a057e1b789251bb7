"""nextafter and frexp against NumPy, over all kinds of bit patterns."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_harness import Array, call

INTEGERS = {"f4": "i4", "f8": "i8", "f2": "i2"}


def patterns(dtype: str, seed: int) -> Array:
    """Random bits, then zeros, least and largest numbers, infinities and one, of either sign."""
    whole = np.iinfo(INTEGERS[dtype])
    bits = np.random.default_rng(seed).integers(whole.min, whole.max, 70_000, whole.dtype, endpoint=True)
    edges = np.array([0, np.inf, 1, np.finfo(dtype).max, np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal])
    return np.concatenate([bits.view(dtype), *(edges.astype(dtype) * sign for sign in np.array([1, -1], dtype))])


@pytest.mark.parametrize("dtype", list(INTEGERS))
def test_nextafter(dtype: str) -> None:
    x, y = patterns(dtype, 0), patterns(dtype, 1)
    x = np.concatenate([x, x, np.repeat(x[-12:], 12)])
    y = np.concatenate([y, x[: len(y)], np.tile(y[-12:], 12)])
    out = np.empty_like(x)
    call("nextafter", [out], [x, y])
    want = np.where(x == y, y, np.nextafter(x, y))  # NumPy's for float16 answers x for zeros of two signs
    np.testing.assert_array_equal(out, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(out[number]), np.signbit(want[number]))


@pytest.mark.parametrize("dtype", list(INTEGERS))
def test_frexp(dtype: str) -> None:
    x = patterns(dtype, 2)
    mantissa, exponent = np.empty_like(x), np.empty(x.shape, "i4")
    call("frexp", [mantissa, exponent], [x])
    wide = x.astype("f8")
    want, power = np.frexp(wide)
    np.testing.assert_array_equal(mantissa.astype("f8"), want)
    np.testing.assert_array_equal(exponent, np.where(np.isfinite(wide), power, 0))
    number = ~np.isnan(wide)
    np.testing.assert_array_equal(np.signbit(mantissa[number]), np.signbit(x[number]))
