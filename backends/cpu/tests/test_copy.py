"""copy_cast, fill and iota."""

from __future__ import annotations

from typing import Any

import kernel_harness as h
import numpy as np
import pytest
from kernel_harness import Array

REAL = h.DTYPES[:13]


def expected_cast(x: Array, dtype: np.dtype[Any]) -> Array:
    return (x != 0) if dtype == np.dtype("?") else x.astype(dtype)


@pytest.mark.parametrize("to", h.DTYPES, ids=str)
@pytest.mark.parametrize("source", h.DTYPES, ids=str)
def test_every_pair_of_dtypes(source: np.dtype[Any], to: np.dtype[Any], rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, (37, 41)).astype(source)
    if source.kind == "c":
        x = (x + 1j * rng.integers(0, 9, x.shape)).astype(source)
    real = x.real if source.kind == "c" and to.kind not in "cb" else x
    for view in (x, x.T, x[::2, ::-3]):
        out = np.empty(view.shape, to)
        h.call("copy_cast", [out], [view])
        part = real if view is x else real.T if view.shape == x.T.shape else real[::2, ::-3]
        np.testing.assert_array_equal(out, expected_cast(part, to))


@pytest.mark.parametrize("to", [d for d in REAL if d.kind in "iu"], ids=str)
@pytest.mark.parametrize("source", ["f2", "f4", "f8"])
def test_unrepresentable_floats_convert_without_trapping(source: str, to: np.dtype[Any]) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1e4, -1e4, -1.5, 2.9, 65504], source)
    out = np.empty(8, to)
    h.call("copy_cast", [out], [x])
    assert out[5] == np.array([-1]).astype(to)[0] and out[6] == 2
    if to == np.dtype("i8"):
        assert (out[:3] == np.iinfo("i8").min).all()


def test_large_unsigned_values() -> None:
    x = np.array([0.0, 1e19, 1.8e19, 2.0**63])
    out = np.empty(4, "u8")
    h.call("copy_cast", [out], [x])
    np.testing.assert_array_equal(out, x.astype("u8"))
    back = np.empty(4)
    h.call("copy_cast", [back], [out])
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dtype", ["f2", h.BFLOAT16], ids=str)
def test_halves_round_to_nearest_even(dtype: Any) -> None:
    bits = np.arange(0, 2**32, 10007, dtype=np.uint64).astype(np.uint32)
    edge = np.array([65519.99, 65520, 65536, 6e-8, 2.98e-8, 2.981e-8, 6.1e-5, np.inf, -np.inf, np.nan, -0.0], "f4")
    x = np.concatenate([bits.view("f4"), edge])
    out = np.empty(x.shape, dtype)
    h.call("copy_cast", [out], [x])
    want = x.astype(dtype)
    same = (out.view("u2") == want.view("u2")) | (np.isnan(out) & np.isnan(want))
    assert same.all(), x[~same][:5]
    every = np.arange(65536, dtype="u2").view(dtype)
    wide = np.empty(65536, "f4")
    h.call("copy_cast", [wide], [every])
    np.testing.assert_array_equal(wide, every.astype("f4"))


def test_copies_keep_the_payload_of_nan() -> None:
    x = np.array([0x7FC12345, 0x7F812345, 0xFFFFFFFF], "u4").view("f4")
    out = np.empty(3, "f4")
    h.call("copy_cast", [out], [x])
    np.testing.assert_array_equal(out.view("u4"), x.view("u4"))


@pytest.mark.parametrize("dtype", ["u1", "i2", "f4", "f8", "c16"])
def test_strides_on_both_sides(dtype: str, rng: np.random.Generator) -> None:
    base = rng.integers(0, 100, (4, 60, 50)).astype(dtype)
    for source in (base, base.transpose(2, 0, 1), base[::-1, ::2, ::-5], np.broadcast_to(base[:1, :1], base.shape)):
        for out in (
            np.empty(source.shape, dtype),
            np.empty(source.shape[::-1], dtype).T,
            np.empty(source.shape, dtype)[:, ::-1],
        ):
            h.call("copy_cast", [out], [source])
            np.testing.assert_array_equal(out, source)


@pytest.mark.parametrize("step", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["i2", "f4", "f8"])
def test_every_few_elements(dtype: str, step: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=(7, 1300 * step)).astype(dtype)
    for view in (x[:, ::step], x[0, 1::step], x[::2, ::step]):
        out = np.empty(view.shape, dtype)
        h.call("copy_cast", [out], [view])
        np.testing.assert_array_equal(out, view)
        wide = np.empty(view.shape, "f8")
        h.call("copy_cast", [wide], [view])
        np.testing.assert_array_equal(wide, view.astype("f8"))


@pytest.mark.parametrize("size", [0, 1, 63, 1000, 300_001])
def test_truth_of_bytes(size: int, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, size).astype("u1")
    for source in (x, x.view("i1")):
        truth = np.empty(size, "?")
        h.call("copy_cast", [truth], [source])
        np.testing.assert_array_equal(truth.view("u1"), x != 0)
    for to in ("u1", "i1"):
        number = np.empty(size, to)
        h.call("copy_cast", [number], [x.view("?")])  # true whatever its bits
        np.testing.assert_array_equal(number, x != 0)


@pytest.mark.parametrize("shape", [(1000, 1000), (2048, 1024), (3, 100_000), (100_000, 3)])
def test_large_transposes(shape: tuple[int, int], rng: np.random.Generator) -> None:
    x = rng.normal(size=shape).astype("f4")
    out = np.empty(shape[::-1], "f4")
    h.call("copy_cast", [out], [x.T])
    np.testing.assert_array_equal(out, x.T)


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_copy_of_a_scalar_operand(dtype: np.dtype[Any]) -> None:
    out = np.empty((2, 3), "f8")
    h.call("copy_cast", [out], [(1, dtype, 2)])
    assert (out == 1).all()


@pytest.mark.parametrize("dtype", h.DTYPES, ids=str)
def test_fill(dtype: np.dtype[Any]) -> None:
    for value in (3, 1.0, True):
        for out in (np.zeros((7, 300), dtype), np.zeros((7, 300), dtype).T, np.zeros((7, 300), dtype)[::2, ::3]):
            h.call("fill", [out], params=[value])
            np.testing.assert_array_equal(out, np.full(out.shape, value).astype(dtype))


def test_fill_touches_only_its_view() -> None:
    base = np.zeros((20, 30), "i4")
    h.call("fill", [base[3:9, 2::4]], params=[-5])
    want = np.zeros((20, 30), "i4")
    want[3:9, 2::4] = -5
    np.testing.assert_array_equal(base, want)


def test_fill_exact_limits() -> None:
    out = np.empty(3, "u8")
    h.call("fill", [out], params=[2**64 - 1])
    assert (out == 2**64 - 1).all()
    big = np.empty(2, "i8")
    h.call("fill", [big], params=[2**63 - 1])
    assert (big == 2**63 - 1).all()


@pytest.mark.parametrize("dtype", REAL[1:], ids=str)
def test_iota(dtype: np.dtype[Any]) -> None:
    n = 100
    out = np.empty(n, dtype)
    integral = dtype.kind in "iu"
    h.call("iota", [out], params=[2, 1] if integral else [2.0, 0.5])
    want = 2 + np.arange(n) if integral else 2.0 + 0.5 * np.arange(n)
    np.testing.assert_array_equal(out, want.astype(dtype))


def test_iota_strided_and_long() -> None:
    base = np.zeros(400_000, "i8")
    h.call("iota", [base[::-2]], params=[-3, 7])
    np.testing.assert_array_equal(base[::-2], -3 + 7 * np.arange(200_000))
    assert (base[::2] == 0).all()


@pytest.mark.parametrize("dtype", ["f4", "i4", "u4"])
@pytest.mark.parametrize(
    "shape", [(64, 64), (65, 79), (130, 200), (200, 130), (1024, 64), (2048, 1600)]
)  # the last is large enough to be stored past the caches
def test_matrices_by_columns_are_moved_by_lines(dtype: str, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Bits as they are, NaN with their payloads among them."""
    words = rng.integers(0, 2**32, shape, dtype=np.uint32).view(dtype)
    for rows, cols in (shape, (shape[0] - 1, shape[1])):
        source = words[:rows, :cols].T
        wide = np.zeros((cols, rows + 16), dtype)
        for _ in range(3):
            for out in (np.empty((cols, rows), dtype), wide[:, :rows], wide[:, 3 : 3 + rows]):
                h.call("copy_cast", [out], [source])
                assert np.array_equal(out.copy().view(np.uint32), source.copy().view(np.uint32))
        assert not wide[:, rows + 3 :].any()


@pytest.mark.parametrize("width", [*range(1, 18), 31, 32, 33, 48, 63, 64, 65])
def test_joining_short_runs(width: int, rng: np.random.Generator) -> None:
    """Of every count of bytes, each beside others that must stay."""
    a, b = (rng.integers(0, 255, (37, w), dtype=np.uint8) for w in (width, 5))
    out = np.zeros((37, 2 * width + 5), np.uint8)
    h.call("cat", [out], [a, b, a[::-1].copy()], [h.Tensors(0, 3), 1])
    np.testing.assert_array_equal(out, np.concatenate([a, b, a[::-1]], 1))
