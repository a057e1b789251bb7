"""Rows that are converted several numbers at a time, against one by one: at every length, near every limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts

LENGTHS = [1, 7, 8, 9, 15, 16, 17, 33, 1000]


def placed(special: Any, n: int, rng: np.random.Generator) -> Any:
    """Ordinary numbers with special ones among them, which only some of the registers hold."""
    x = rng.integers(-1000, 1000, n).astype(special.dtype)
    places = rng.random(n) < 0.2
    x[places] = rng.choice(special, places.sum())
    return x


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("to", ["float32", "float64"])
def test_int64_to_floats(n: int, to: str) -> None:
    edges = [2**51, 2**52, 2**53, 2**24, 2**62]
    near = [sign * (edge + step) for edge in edges for step in (-1, 0, 1) for sign in (1, -1)]
    x = placed(np.array([*near, -(2**63), 2**63 - 1, 2**24 + 1, 2**40 + 2**16 + 1]), n, np.random.default_rng(n))
    np.testing.assert_array_equal(ts.tensor(x).to(getattr(ts, to)).numpy(), x.astype(to))


@pytest.mark.parametrize("n", LENGTHS)
def test_float32_to_int64(n: int) -> None:
    special = np.float32([2**31, -(2**31), 2.0**31 - 128, 1e18, -1e18, 0.99, -0.99, 2**24 + 2, 3e9, -3e9])
    x = placed(special, n, np.random.default_rng(n)) + np.float32(0.25)
    np.testing.assert_array_equal(ts.tensor(x).to(ts.int64).numpy(), x.astype(np.int64))
    far = np.float32([np.nan, np.inf, -np.inf, 1e30] * 4)
    assert ts.tensor(far).to(ts.int64).tolist() == [-(2**63)] * 16


def bfloat16(x: Any) -> Any:
    """The bits, by rounding to nearest even."""
    bits = x.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(x), (bits >> 16) | 0x40, rounded).astype(np.uint16)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_float32_to_halves(n: int, to: str) -> None:
    rng = np.random.default_rng(n)
    bits = np.uint32(
        [0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0x80000000, 0x3F808000]
    )
    numbers = np.float32([65504, 65519.996, 65520, 2**-24, 2**-25, 2**-25 * 1.001, 1 + 2**-11, 1 + 3 * 2**-11, -0.1])
    x = placed(np.concatenate([bits.view(np.float32), numbers]), n, rng)
    seen = ts.tensor(x).to(getattr(ts, to))
    back = seen.float().numpy()
    if to == "bfloat16":
        np.testing.assert_array_equal(seen.view(ts.int16).numpy().view(np.uint16), bfloat16(x))
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = x.astype(np.float16).astype(np.float32) if to == "float16" else back
    np.testing.assert_array_equal(back, wanted)
    assert (np.isnan(back) == np.isnan(x)).all()


@pytest.mark.parametrize("n", LENGTHS)
def test_exp2(n: int) -> None:
    x = placed(
        np.float32([87.1, -87.1, 127.5, 128, -149, -150, -126.5, np.inf, -np.inf, np.nan]), n, np.random.default_rng(n)
    )
    x = np.where(np.isfinite(x), x / 7, x).astype(np.float32)
    with np.errstate(over="ignore"):
        wanted = np.exp2(x.astype(np.float64))
    np.testing.assert_allclose(ts.tensor(x).exp2().numpy(), wanted.astype(np.float32), rtol=2.5e-7, atol=2e-45)
    whole = ts.arange(-149.0, 128.0)
    assert whole.exp2().tolist() == [2.0**k for k in range(-149, 128)]


@pytest.mark.parametrize("width", [3, 300, 513, 1025, 5000])
def test_rows_that_lie_askew(width: int) -> None:
    """Rows above and below 2 KiB, which are copied in other ways, at every distance from a line's begin."""
    x = np.arange(3 * (width + 20), dtype=np.float32).reshape(3, width + 20)
    t = ts.tensor(x)
    for first in range(9):
        part, wanted = t[:, first : first + width], x[:, first : first + width]
        np.testing.assert_array_equal(part.contiguous().numpy(), wanted)
        np.testing.assert_array_equal(ts.cat([part.contiguous(), t], 1).numpy(), np.concatenate([wanted, x], 1))
        np.testing.assert_array_equal(t.roll(first, 1).numpy(), np.roll(x, first, 1))
        np.testing.assert_array_equal(part.contiguous()[ts.tensor([2, 0])].numpy(), wanted[[2, 0]])
