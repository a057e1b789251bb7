"""matmul and linear against float64 (or exact integer) products."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import numpy as np
import pytest
from kernel_harness import BFLOAT16, Array, backend, call

FLOATS = [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16]
INTEGERS = [np.dtype(d) for d in ("u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8")]
# Elements are multiples of 1/8 below 1: products are exact, so only the sum and the store round.
EPS = {np.dtype("f4"): 1e-6, np.dtype("f8"): 1e-15, np.dtype("f2"): 1e-3, BFLOAT16: 8e-3}

SHAPES = [
    (1, 1, 1),
    (1, 1, 500),
    (1, 7, 5),
    (5, 1, 9),
    (4, 64, 64),
    (3, 5, 0),
    (17, 33, 65),
    (64, 64, 64),
    (1, 300, 700),
    (300, 1, 700),
    (8, 257, 300),
    (130, 129, 131),
    (2, 1000, 300),
    (300, 270, 70),
]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Array:
    if np.dtype(dtype) in FLOATS:
        return (rng.integers(-8, 9, shape) / 8).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def check(out: Array, a: Array, b: Array, bias: Array | None = None) -> None:
    """Compares with the product in float64, or modulo 2^n for integers."""
    if out.dtype in FLOATS:
        want = a.astype("f8") @ b.astype("f8")
        if bias is not None:
            want = want + bias.astype("f8")
        scale = max(1.0, float(np.abs(want).max()) if want.size else 1.0)
        assert np.abs(out.astype("f8") - want).max() <= EPS[out.dtype] * scale * 4
        return
    wide = np.dtype("u8") if out.dtype.kind in "iu" else out.dtype
    want = (a.astype(wide) @ b.astype(wide)).astype(out.dtype)
    if bias is not None:
        want = want + bias if out.dtype != bool else want | bias
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dtype", FLOATS + INTEGERS + [np.dtype(bool)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_two_dimensional(shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(m * 7919 + n * 31 + k)
    a, b = random_array(rng, (m, k), dtype), random_array(rng, (k, n), dtype)
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b)):
            out = np.empty((m, n), dtype)
            call("matmul", [out], [left, right], compute="f4")
            check(out, a, b)


@pytest.mark.parametrize("transposed", [False, True])
def test_large_bfloat16(transposed: bool) -> None:
    rng = np.random.default_rng(2)
    a, b = random_array(rng, (600, 520), BFLOAT16), random_array(rng, (520, 700), BFLOAT16)
    out = np.empty((600, 700), BFLOAT16)
    call("matmul", [out], [a, np.asfortranarray(b) if transposed else b], compute="f4")
    check(out, a, b)


@pytest.mark.parametrize("dtype", FLOATS + [np.dtype("i4"), np.dtype(bool)], ids=str)
@pytest.mark.parametrize("shape", [(3, 5, 4), (70, 80, 90), (1, 600, 600), (4, 5, 0)], ids=str)
def test_addend(shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(1)
    a, b = random_array(rng, (m, k), dtype), random_array(rng, (k, n), dtype)
    for base in ((1, n), (m, 1), (1, 1), (m, n)):
        bias = np.broadcast_to(random_array(rng, base, dtype), (m, n))
        out = np.empty((m, n), dtype)
        call("matmul", [out], [a, b, bias], compute="f4")
        check(out, a, b, bias)


@pytest.mark.parametrize("m", [*range(1, 20), 24, 35])
def test_tiles_of_every_height_and_width(m: int) -> None:
    """float32: whole and cut registers, depths that leave a rest, packed blocks or not; nothing beside c is written."""
    rng = np.random.default_rng(m)
    for n in (15, 16, 17, 31, 32, 48, 80, 512):
        for k in (1, 3, 4, 5, 7, 8, 63, 401):
            a, b = random_array(rng, (m, k), "f4"), random_array(rng, (k, n), "f4")
            beside = random_array(rng, (k, n + 500), "f4")[:, :n]
            for left, right in ((a, b), (np.asfortranarray(a), b), (a, beside), (np.asfortranarray(a), beside)):
                room = np.full((m + 2, n + 3), 7, "f4")
                call("matmul", [room[1:-1, 1:-2]], [left, right], compute="f4")
                check(room[1:-1, 1:-2], left, right)
                room[1:-1, 1:-2] = 7
                assert (room == 7).all()


@pytest.mark.parametrize("m", [5, 8, 9, 13, 14, 16, 17, 22, 29, 32, 45, 48, 49])
def test_layers_of_few_rows(m: int) -> None:
    """A weight whose columns are contiguous, from less than a block to more than one, small and large."""
    rng = np.random.default_rng(m)
    for n, k in ((7, 300), (70, 110), (1030, 270), (260, 1030)):
        a, weight = random_array(rng, (m, k), "f4"), random_array(rng, (n, k), "f4")
        for base in (None, (n,), (m, 1), (m, n)):
            room = np.full((m + 2, n + 3), 7, "f4")
            bias = [] if base is None else [np.broadcast_to(random_array(rng, base, "f4"), (m, n))]
            call("matmul", [room[1:-1, 1:-2]], [a, weight.T, *bias], compute="f4")
            check(room[1:-1, 1:-2], a, weight.T, *bias)
            room[1:-1, 1:-2] = 7
            assert (room == 7).all()


@pytest.mark.parametrize("dtype", FLOATS + [np.dtype("i2")], ids=str)
def test_strides_no_library_takes(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(2)
    a, b = random_array(rng, (90, 200), dtype), random_array(rng, (200, 140), dtype)
    row = random_array(rng, (1, 100), dtype)
    for left, right in (
        (a[:, ::2], b[::2]),
        (a[::-1, :100], b[:100, ::-1]),
        (np.broadcast_to(row, (90, 100)), b[:100]),
        (a[:, :100], np.broadcast_to(row.T, (100, 140))),
    ):
        out = np.empty((90, 140), dtype) if right.shape[1] == 140 else np.empty((90, right.shape[1]), dtype)
        call("matmul", [out], [left, right], compute="f4")
        check(out, left, right)
    wide = np.full((90, 300), 7, dtype)
    call("matmul", [wide[:, 3:283:2]], [a, b], compute="f4")
    check(wide[:, 3:283:2], a, b)
    assert (wide[:, 4:284:2] == 7).all()


@pytest.mark.parametrize(("rows", "k"), [(1, 1), (3, 7), (5, 16), (1030, 37), (37, 1030), (2, 0)])
def test_a_float64_matrix_times_a_vector(rows: int, k: int, rng: np.random.Generator) -> None:
    """Rows or columns in runs, parts of larger matrices, vectors with gaps, from either side."""
    large = random_array(rng, (rows + 1, k + 3), "f8")
    vectors = random_array(rng, (2, 2 * k), "f8")
    for a in (large[1:, 3:], np.asfortranarray(large)[1:, 3:], large[::-1, ::-1][1:, 3:]):
        for x in (vectors[0, :k], vectors[0, ::2]):
            out = np.full((rows, 1), 5.0)
            call("matmul", [out], [a, x[:, None]])
            np.testing.assert_allclose(out, a @ x[:, None], rtol=1e-13, atol=1e-13)
            across = np.full((1, rows), 5.0)
            call("matmul", [across], [x[None], a.T])
            np.testing.assert_allclose(across, x[None] @ a.T, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.dtype("f4"), np.dtype("f2"), BFLOAT16, np.dtype("i8")], ids=str)
def test_batches(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(3)
    for a_shape, b_shape, m, n, k in (
        ((6,), (6,), 5, 7, 3),
        ((2, 3), (1, 3), 9, 4, 8),
        ((4, 1), (1, 5), 1, 6, 7),
        ((3,), (1,), 50, 60, 70),
        ((1,), (40,), 16, 16, 16),
    ):
        a, b = random_array(rng, (*a_shape, m, k), dtype), random_array(rng, (*b_shape, k, n), dtype)
        batch = np.broadcast_shapes(a_shape, b_shape)
        out = np.empty((*batch, m, n), dtype)
        wide_a, wide_b = np.broadcast_to(a, (*batch, m, k)), np.broadcast_to(b, (*batch, k, n))
        call("matmul", [out], [wide_a, wide_b], compute="f4")
        check(out, wide_a, wide_b)
        turned = wide_b.swapaxes(-1, -2).copy().swapaxes(-1, -2)
        for base in ((n,), (m, 1), (1, 1)):
            bias = np.broadcast_to(random_array(rng, base, dtype), out.shape)
            call("matmul", [out], [wide_a, turned, bias], compute="f4")
            check(out, wide_a, wide_b, bias)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(4, 4, 1), (1, 3, 5), (1, 1, 1), (2, 32, 1), (2, 33, 1)], ids=str)
def test_batches_of_small_matrices_and_vectors(
    shape: tuple[int, int, int], dtype: str, rng: np.random.Generator
) -> None:
    m, k, n = shape
    a, b = random_array(rng, (300, m, k), dtype), random_array(rng, (300, k, n), dtype)
    across = np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1)
    for left, right in (
        (a, b),
        (across, b),
        (a[::-1], b[:1].repeat(300, 0)),
        (a[:, ::-1], np.broadcast_to(b[0], b.shape)),
    ):
        out = np.full((300, m, n), 5, dtype)
        call("matmul", [out], [left, right])
        np.testing.assert_allclose(out, left @ right, rtol=1e-5)
        addend = random_array(rng, (m, n), dtype)
        call("matmul", [out], [left, right, np.broadcast_to(addend, out.shape)])
        np.testing.assert_allclose(out, left @ right + addend, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex(dtype: str) -> None:
    rng = np.random.default_rng(4)
    a, b = random_array(rng, (9, 14), dtype), random_array(rng, (14, 6), dtype)
    for left, right in ((a, b), (a[:, ::2], b[::2]), (np.asfortranarray(a), b)):
        out = np.empty((9, 6), dtype)
        call("matmul", [out], [left, right], compute=dtype)
        np.testing.assert_allclose(out, left.astype("c16") @ right.astype("c16"), rtol=1e-5, atol=1e-5)


def test_nan_and_infinity_spread() -> None:
    for size in (4, 100):
        a, b = np.ones((size, size), "f4"), np.zeros((size, size), "f4")
        a[1, 2] = np.inf
        b[3, 1] = np.nan
        out = np.empty((size, size), "f4")
        call("matmul", [out], [a, b], compute="f4")
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(out, a @ b)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "shape",
    # Of twice the rows: 14, 16 and 32 fill registers, along dims of every rest.
    [(3, 5, 4), (64, 10, 784), (1, 50, 60), (200, 100, 90), (7, 31, 64), (8, 113, 800), (16, 240, 500), (15, 5, 1200)],
    ids=str,
)
def test_linear(shape: tuple[int, int, int], dtype: np.dtype[Any]) -> None:
    m, n, k = shape
    rng = np.random.default_rng(5)
    x, w, bias = random_array(rng, (2, m, k), dtype), random_array(rng, (n, k), dtype), random_array(rng, (n,), dtype)
    for weight in (w, np.asfortranarray(w)):
        for b in (None, bias):
            out = np.empty((2, m, n), dtype)
            call("linear", [out], [x, weight, b])
            check(out, x, w.T, b)


def test_a_forked_child_multiplies_alone() -> None:
    """The OpenMP pool does not survive a fork: the child must not wait for it."""
    table = backend()
    before = table.get_num_threads(None)
    table.set_num_threads(None, 2)
    a = np.eye(400, dtype="f4")
    out = np.empty_like(a)
    call("matmul", [out], [a, a], compute="f4")
    child = os.fork()
    if child == 0:
        out[:] = 0
        call("matmul", [out], [a, a], compute="f4")
        os._exit(0 if (out == a).all() else 1)
    table.set_num_threads(None, before)
    deadline = time.monotonic() + 60
    while (waited := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.01)
    assert waited[1] == 0


@pytest.mark.parametrize("threads", [1, 2, 16])
@pytest.mark.parametrize(
    ("m", "n", "k"), [(225, 12, 512), (64, 6, 1024), (49, 17, 512), (80, 80, 512), (200, 300, 300)]
)
def test_first_and_later_uses_of_a_weight_have_the_same_bits(m: int, n: int, k: int, threads: int) -> None:
    """From the second on a packed copy is kept."""
    ts = pytest.importorskip("tesserack")
    before = ts.get_num_threads()
    ts.set_num_threads(threads)
    try:
        x, weight = ts.randn(m, k), ts.randn(n, k)
        first = ts.nn.functional.linear(x, weight)
        assert all(ts.equal(first, ts.nn.functional.linear(x, weight)) for _ in range(3))
    finally:
        ts.set_num_threads(before)


@pytest.mark.parametrize("apart", [1, 2, 7, 8, 16, 63])
def test_weights_whose_rows_change_places(apart: int) -> None:
    """The order of what is in a weight counts: rows of 64 are what is read between two of its sums."""
    ts = pytest.importorskip("tesserack")
    x, weight = ts.randn(64, 64), ts.randn(64, 64)
    want = x.double() @ weight.double().T
    for _ in range(4):  # what was made of it is kept from some use on
        ts.testing.assert_close(ts.nn.functional.linear(x, weight).double(), want, rtol=0, atol=1e-4)
    for row in range(64 - apart):
        order = ts.arange(64)
        order[row], order[row + apart] = row + apart, row
        weight.copy_(weight[order])
        want = want[:, order]
        got = ts.nn.functional.linear(x, weight)
        ts.testing.assert_close(got.double(), want, rtol=0, atol=1e-4, msg=lambda text, row=row: f"row {row}: {text}")


@pytest.mark.parametrize("dtype", [*INTEGERS, np.dtype(bool), np.dtype("f2"), BFLOAT16], ids=str)
@pytest.mark.parametrize(
    "shape", [(1, 1, 7), (1, 1, 1500), (1, 9, 70), (9, 1, 70), (1, 600, 3), (1, 1, 0), (600, 1, 0)]
)
def test_rows_and_columns(shape: tuple[int, int, int], dtype: np.dtype[Any], rng: np.random.Generator) -> None:
    """Scalar products and vectors, in runs and with gaps, each of a batch, added to or not."""
    m, n, k = shape
    a, b = random_array(rng, (3, m, 2 * k), dtype), random_array(rng, (3, 2 * k, n), dtype)
    for left, right in (
        (a[..., :k], b[:, :k]),
        (a[..., ::2], b[:, ::2]),
        (a[..., :k], b.transpose(0, 2, 1).copy().transpose(0, 2, 1)[:, :k]),
    ):
        out = np.zeros((3, m, n), dtype)
        call("matmul", [out], [left, right], compute="f4")
        check(out, left, right)
        addend = np.broadcast_to(random_array(rng, (m, n), dtype), out.shape)
        call("matmul", [out], [left, right, addend], compute="f4")
        check(out, left, right, addend)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_complex_operands_with_gaps(dtype: str, rng: np.random.Generator) -> None:
    a, b = random_array(rng, (31, 80), dtype), random_array(rng, (80, 46), dtype)
    addend = random_array(rng, (31, 23), dtype)
    left, right, room = a[:, ::2], b[::2, ::2], np.full((31, 46), 7, dtype)
    want = left.astype("c16") @ right.astype("c16")
    call("matmul", [room[:, ::2]], [left, right], compute=dtype)
    np.testing.assert_allclose(room[:, ::2], want, rtol=1e-4, atol=1e-4)
    call("matmul", [room[:, ::2]], [left, right, addend], compute=dtype)
    np.testing.assert_allclose(room[:, ::2], want + addend, rtol=1e-4, atol=1e-4)
    assert (room[:, 1::2] == 7).all()
    for k in (1, 40):  # of one row and one column
        call("matmul", [room[:1, :1]], [left[:1, :k], right[:k, :1]], compute=dtype)
        np.testing.assert_allclose(room[:1, :1], left[:1, :k] @ right[:k, :1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.dtype("f2"), BFLOAT16], ids=str)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 1), (64, 48), (3, 200)])
def test_halves_are_summed_in_float32(m: int, n: int, dtype: np.dtype[Any]) -> None:
    """Sums of more than 2^11 ones, which stand still in the halves themselves."""
    k = 5000
    out = np.zeros((m, n), dtype)
    call("matmul", [out], [np.ones((m, k), dtype), np.full((k, n), 0.5, dtype)], compute="f4")
    np.testing.assert_array_equal(out, np.full((m, n), k / 2, dtype))
