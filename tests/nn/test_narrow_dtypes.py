"""Numbers of four and six bits: every code, rounding against the nearest of all, limits, and what is refused."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import tesserack as ts


def _floats(exponent: int, mantissa: int, bias: int) -> list[float]:
    """By the definition: a sign, an exponent, digits behind a leading one but for the lowest exponent."""
    values = []
    for code in range(1 << (exponent + mantissa)):
        e, digits = code >> mantissa, (code & ((1 << mantissa) - 1)) / (1 << mantissa)
        values.append((1 + digits) * 2.0 ** (e - bias) if e else digits * 2.0 ** (1 - bias))
    return [*values, *(-v for v in values)]


HELD = {
    "float6_e2m3fn": _floats(2, 3, 1),
    "float6_e3m2fn": _floats(3, 2, 3),
    "float4_e2m1fn": _floats(2, 1, 1),
    "int4": [float(k) for k in (*range(8), *range(-8, 0))],
    "uint4": [float(k) for k in range(16)],
}


def nearest(values: Any, held: list[float]) -> Any:
    """The nearest number that is held, of two the one whose code is even."""
    found = []
    for v in np.clip(np.asarray(values, np.float64), min(held), max(held)):
        order = [(abs(x - v), code & 1, np.signbit(x) != np.signbit(v), x) for code, x in enumerate(held)]
        found.append(min(order)[3])
    return np.array(found)


@pytest.mark.parametrize("name", HELD)
def test_every_code(name: str, device: Any) -> None:
    dtype, held = getattr(ts, name), np.array(HELD[name])
    x = ts.arange(len(held), dtype=ts.uint8, device=device).view(dtype)
    assert x.element_size() == 1 and dtype.itemsize == 1
    for wide in (ts.float32, ts.float64, ts.float16, ts.bfloat16):
        assert x.to(wide).cpu().double().tolist() == held.tolist()
    assert np.array_equal(np.signbit(x.float().cpu().numpy()), np.signbit(held))
    assert x.float().to(dtype).view(ts.uint8).tolist() == [*range(len(held))]
    assert x.tolist() == held.tolist() and dtype.is_floating_point == name.startswith("float")
    assert dtype.is_signed == (name != "uint4")


@pytest.mark.parametrize("name", HELD)
def test_rounding(name: str, device: Any) -> None:
    """To nearest, ties to even; what is too large becomes the largest, infinity included."""
    rng = np.random.default_rng(0)
    grid = np.concatenate((np.arange(-520, 521) / 16, rng.normal(size=500) * 4, [1e-30, -1e-30, 3e38, -3e38]))
    values = grid.astype(np.float32)
    found = ts.from_numpy(values).to(device).to(getattr(ts, name)).double().cpu().numpy()
    np.testing.assert_array_equal(found, nearest(values, HELD[name]))
    ends = ts.tensor([float("inf"), float("-inf"), float("nan")], device=device).to(getattr(ts, name)).float().tolist()
    assert ends == [max(HELD[name]), min(HELD[name]), 0.0]
    halves = ts.from_numpy(values[:1041]).to(ts.float16).to(device).to(getattr(ts, name)).double().cpu().numpy()
    np.testing.assert_array_equal(halves, nearest(values[:1041].astype(np.float16), HELD[name]))


@pytest.mark.parametrize("name", HELD)
def test_limits_and_numbers(name: str) -> None:
    dtype, held = getattr(ts, name), HELD[name]
    limits: Any = ts.finfo(dtype) if dtype.is_floating_point else ts.iinfo(dtype)
    assert (limits.min, limits.max, limits.bits) == (min(held), max(held), 6 if "6" in name else 4)
    assert ts.full((2,), max(held), dtype=dtype).tolist() == [max(held)] * 2
    assert ts.full((), min(held), dtype=dtype).item() == min(held)
    assert ts.tensor([1, 3], dtype=dtype).tolist() == [1, 3]
    for wrong in (max(held) + 1, float("inf"), float("nan"), min(held) - 1):
        with pytest.raises(RuntimeError, match=f"cannot be converted to type {name}"):
            ts.full((2,), wrong, dtype=dtype)
    assert name in repr(ts.zeros(2, dtype=dtype))


@pytest.mark.parametrize("name", HELD)
def test_it_is_moved_and_saved(name: str) -> None:
    dtype = getattr(ts, name)
    x = ts.arange(12, dtype=ts.uint8).view(dtype).reshape(3, 4)
    for made, codes in ((x.t().contiguous().t(), range(12)), (ts.cat((x[:1], x[1:])), range(12)), (x[1], range(4, 8))):
        assert made.dtype is dtype and made.contiguous().view(ts.uint8).flatten().tolist() == [*codes]
    assert (x == x).all() and not (x[0] == x[1]).any()
    file = io.BytesIO()
    ts.save({"x": x, "row": x[1], "none": x[:0], "turned": x.t()}, file)
    file.seek(0)
    read = ts.load(file)
    assert read["none"].dtype is dtype and read["none"].shape == (0, 4)
    for key, wanted in (("x", x), ("row", x[1]), ("turned", x.t())):
        codes, expected = (t.contiguous().view(ts.uint8) for t in (read[key], wanted))
        assert read[key].dtype is dtype and codes.equal(expected)


@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + x,
        lambda x: x + 1,
        lambda x: x.sum(),
        lambda x: x.sort(),
        lambda x: x @ x,
        lambda x: x.exp(),
        lambda x: x < x,
        lambda x: ts.cat((x, ts.ones(3))),
        lambda x: ts.promote_types(x.dtype, ts.float32),
        lambda x: ts.set_default_dtype(x.dtype),
        lambda x: x.numpy(),
        lambda x: x.__dlpack__(),
    ],
)
def test_what_storage_does_not_do(name: str, use: Any) -> None:
    """An error that names the dtype, never a number that is wrong."""
    errors = NotImplementedError, RuntimeError, TypeError
    with pytest.raises(errors, match=rf"{name}|Promotion|{name.capitalize()}"):
        use(ts.ones(3, dtype=getattr(ts, name)))


def test_integers_of_four_bits_have_no_gradient() -> None:
    with pytest.raises(RuntimeError, match="floating"):
        ts.zeros(2, dtype=ts.int4).requires_grad_()
