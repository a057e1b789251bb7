"""reduce: every opcode over inner, outer and middle dimensions of many layouts."""

from __future__ import annotations

from typing import Any

import kernel_harness as h
import numpy as np
import pytest
from kernel_harness import REDUCTIONS, Array

REAL = h.DTYPES[:13]


def reduce(x: Array, axes: tuple[int, ...], op: str, out: Any, compute: Any = None) -> Array:
    """Arranges x as the contract asks (kept dimensions first) and reduces its last ones."""
    kept = [d for d in range(x.ndim) if d not in axes]
    arranged = x.transpose(*kept, *axes)
    result = np.empty([x.shape[d] for d in kept], out)
    h.call("reduce", [result], [arranged], [len(axes)], opcode=REDUCTIONS.index(op), compute=compute or out)
    return result


SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((2, 4), (1,)),
    ((2, 4), (0,)),
    ((1,), (0,)),
    ((100_000,), (0,)),
    ((300, 2000), (1,)),
    ((300, 2000), (0,)),
    ((3000, 3), (0,)),
    ((200_000, 3), (0,)),
    ((3, 200_000), (1,)),
    ((40, 50, 60), (1,)),
    ((40, 50, 60), (0, 2)),
    ((8, 30, 7, 7), (0, 2, 3)),
    ((8, 30, 7, 7), (1,)),
    ((20_000, 3), (1,)),
    ((5000, 17), (1,)),
    ((700, 90), (1,)),
    ((60, 4, 50, 6), (1, 3)),
    ((5, 6), ()),
]


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u8"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...], axes: tuple[int, ...], dtype: str, op: str, rng: np.random.Generator) -> None:
    x = (rng.normal(size=shape) * 50 if dtype[0] == "f" else rng.integers(0, 1000, shape)).astype(dtype)
    got = reduce(x, axes, op, dtype)
    want = getattr(np, op)(x.astype("g") if dtype[0] == "f" else x, axis=axes) if axes else x
    if dtype[0] == "f" and op == "sum":
        assert (np.abs(got - want) <= 2 * np.finfo(dtype).eps * np.sum(np.abs(x.astype("f8")), axis=axes)).all()
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("op", ["sum", "prod"])
@pytest.mark.parametrize(("shape", "axes"), SHAPES, ids=str)
def test_float32_folded_in_float64(shape: tuple[int, ...], axes: tuple[int, ...], op: str) -> None:
    rng = np.random.default_rng(3)
    x = np.exp2(rng.integers(-1, 2, shape)) if op == "prod" else rng.normal(size=shape)
    x = x.astype("f4")
    want = getattr(np, op)(x.astype("g"), axis=axes) if axes else x
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(reduce(x, axes, op, "f8"), want, rtol=1e-11, atol=1e-11)
        if op == "prod":  # whose range is that of float64 too
            np.testing.assert_array_equal(reduce(x, axes, op, "f4"), want.astype("f4"))


@pytest.mark.parametrize("op", REDUCTIONS)
def test_layouts(op: str, rng: np.random.Generator) -> None:
    base = rng.integers(0, 4, (12, 34, 56)).astype("f8")
    if op == "prod":
        base = np.exp2(np.where(base < 2, 0, base - 2.5))
    views = [
        base,
        base.transpose(2, 0, 1),
        base[::-1, ::2, ::-3],
        np.broadcast_to(base[:, :1], base.shape),
        base[:, :, ::7],
    ]
    for x in views:
        for axes in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)):
            out = "?" if op in ("any", "all") else "i8" if op.startswith("arg") else "f8"
            got = reduce(x, axes, op, out, compute="f8")
            if op.startswith("arg"):
                kept = [d for d in range(3) if d not in axes]
                flat = x.transpose(*kept, *axes).reshape(*(x.shape[d] for d in kept), -1)
                want = getattr(np, op)(flat, axis=-1)
            else:
                want = getattr(np, op)(x, axis=axes)
            if op == "prod":
                np.testing.assert_allclose(got, want, rtol=1e-10)
            else:
                np.testing.assert_array_equal(got, want, err_msg=f"{op} {axes}")


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8", "i4", "u1"])
@pytest.mark.parametrize("shape", [(90, 65, 101), (300, 130, 20), (2, 3000, 128), (40, 7, 3, 60)], ids=str)
def test_short_runs_that_lie_apart(shape: tuple[int, ...], dtype: str, op: str, rng: np.random.Generator) -> None:
    base = rng.integers(0, 3, shape) if op != "prod" else 1 + (rng.random(shape) < 20 / np.prod(shape))
    whole = base.astype(dtype)
    for x in (whole[..., ::2], whole[..., 3:-1], whole[..., ::-3]):
        out = "?" if op in ("any", "all") else "f8" if dtype[0] == "f" else "i8"
        got = reduce(x, tuple(range(x.ndim)), op, out, compute="f8" if dtype[0] == "f" else out)
        np.testing.assert_array_equal(got, getattr(np, op)(x, **({"dtype": out} if op in ("sum", "prod") else {})))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [1, 7, 8, 47, 95, 4096, 4097, 20_000])
def test_parts_of_complex_numbers(n: int, dtype: str, rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (40, n, 2)).astype(dtype)
    for op in ("sum", "max", "min"):
        np.testing.assert_array_equal(reduce(x, (1,), op, dtype), getattr(np, op)(x, axis=1))
    np.testing.assert_array_equal(reduce(x[:3], (0, 1), "sum", dtype), x[:3].sum((0, 1)))


@pytest.mark.parametrize("source", REAL, ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,)])
def test_every_dtype(source: np.dtype[Any], axes: tuple[int, ...], rng: np.random.Generator) -> None:
    x = rng.integers(0, 5, (60, 70)).astype(source)
    exact = x.astype("f8")
    out = source if source.kind in "fV" or source == h.BFLOAT16 else np.dtype("i8")
    compute = "f8" if source == np.dtype("f8") else "f4" if out == source else "i8"
    np.testing.assert_array_equal(reduce(x, axes, "sum", out, compute), exact.sum(axes).astype(out))
    np.testing.assert_array_equal(reduce(x, axes, "max", source), exact.max(axes).astype(source))
    np.testing.assert_array_equal(reduce(x, axes, "any", "?"), exact.any(axes))
    np.testing.assert_array_equal(reduce(x, axes, "all", "?"), exact.all(axes))
    np.testing.assert_array_equal(reduce(x, axes, "argmin", "i8"), exact.argmin(axes[0]))


@pytest.mark.parametrize("shape", [(3, 5), (4, 3000), (3000, 40), (2, 300_000)])
@pytest.mark.parametrize("axis", [0, 1])
def test_nan_wins(shape: tuple[int, int], axis: int, rng: np.random.Generator) -> None:
    x = rng.normal(size=shape).astype("f4")
    x[1, 2] = np.nan
    x[0, 3] = np.inf
    x[2 % shape[0], 1] = -np.inf
    for op in ("max", "min", "argmax", "argmin"):
        want = getattr(np, op)(x, axis=axis)
        np.testing.assert_array_equal(reduce(x, (axis,), op, "i8" if op.startswith("arg") else "f4", "f4"), want)


@pytest.mark.parametrize("op", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_every_run_of_a_long_row_counts(dtype: str, op: str) -> None:
    run, n = 8192, 9 * 8192 + 5  # two groups of four runs, one run and a rest
    for at in (*range(7, n, run), *range(run - 1, n, run), n - 1):
        for value in (-3.0 if op == "min" else 3.0, np.nan):
            x = np.zeros(n, dtype)
            x[at] = value
            np.testing.assert_array_equal(reduce(x, (0,), op, dtype), value)


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("shape", [(20_000, 3), (600, 32), (600, 33), (40, 7, 35)])
def test_positions_in_short_rows(shape: tuple[int, ...], op: str, rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, shape).astype("f4")
    if op == "argmax":
        x[x == 2] = np.nan
    np.testing.assert_array_equal(reduce(x, (len(shape) - 1,), op, "i8"), getattr(np, op)(x, axis=-1))
    np.testing.assert_array_equal(reduce(x[:, ::-1], (len(shape) - 1,), op, "i8"), getattr(np, op)(x[:, ::-1], axis=-1))


def test_first_position_of_ties() -> None:
    x = np.zeros((4, 200_000), "f4")
    x[:, 777] = x[:, 190_000] = 5.0
    np.testing.assert_array_equal(reduce(x, (1,), "argmax", "i8"), [777] * 4)
    np.testing.assert_array_equal(reduce(np.ascontiguousarray(x.T), (0,), "argmax", "i8"), [777] * 4)
    np.testing.assert_array_equal(reduce(np.full(5, np.nan, "f4"), (0,), "argmin", "i8"), 0)


def test_a_long_float_sum_keeps_its_digits(rng: np.random.Generator) -> None:
    x = rng.uniform(0, 1, 1 << 22).astype("f4")
    for shape, axes in (((1 << 22,), (0,)), ((1 << 20, 4), (0, 1)), ((1 << 11, 1 << 11), (0, 1))):
        got = reduce(x.reshape(shape), axes, "sum", "f4")
        assert h.ulp_error(got.reshape(1), x.astype("f8").sum().reshape(1))[0] <= 1
    columns = reduce(x.reshape(1 << 20, 4), (0,), "sum", "f4")
    assert h.ulp_error(columns, x.astype("f8").reshape(1 << 20, 4).sum(0)).max() <= 1


def test_integer_sums_wrap_and_products_keep_range() -> None:
    x = np.full(10, 2**62, "i8")
    assert reduce(x, (0,), "sum", "i8") == np.sum(x)
    tall = np.array([1e30, 1e30, 1e-30, 1e-30], "f4")
    np.testing.assert_allclose(reduce(tall, (0,), "prod", "f4"), 1.0, rtol=1e-6)


def test_the_direction_of_a_pass_does_not_change_the_result(rng: np.random.Generator) -> None:
    x = rng.normal(size=(3, 1 << 19)).astype("f4")  # cut into parts, read forwards and backwards in turns
    first, second = reduce(x, (1,), "sum", "f4"), reduce(x, (1,), "sum", "f4")
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(first, x.astype("f8").sum(1), rtol=1e-6, atol=1e-3)


def test_threads_do_not_change_the_result(rng: np.random.Generator) -> None:
    x = rng.normal(size=(1 << 20,)).astype("f4")
    results = []
    before = h.backend().get_num_threads(None)
    for threads in (1, 2, 3):
        h.backend().set_num_threads(None, threads)
        results.append(reduce(x, (0,), "sum", "f4").item())
    h.backend().set_num_threads(None, before)
    assert len(set(results)) == 1


def test_bad_calls_are_errors() -> None:
    with pytest.raises(h.KernelError, match="unknown opcode 99"):
        h.call("reduce", [np.empty((), "f4")], [np.ones(3, "f4")], [1], opcode=99, compute="f4")
    with pytest.raises(h.KernelError, match="reduced dimensions"):
        h.call("reduce", [np.empty((), "f4")], [np.ones(3, "f4")], [5], opcode=0, compute="f4")


@pytest.mark.parametrize("shape", [(1,), (31,), (9000,), (40, 70), (3, 5, 33), (70_000, 2)])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8"])
def test_bytes_are_tested_as_they_are(dtype: str, shape: tuple[int, ...]) -> None:
    """Values whose bits have nothing in common; one that is not as the others, at either end."""
    for fill, other in ((0, 2), (2, 0), (4, 0)):
        for place in (0, -1, None):
            x = np.full(shape, fill, dtype)
            if place is not None:
                x.reshape(-1)[place] = other
            for view in (x, x[::-1], x[..., ::2], np.broadcast_to(x[..., :1], shape)):
                for axis in range(x.ndim):
                    for out in ("bool", "uint8"):
                        for op, wanted in (("any", view.any(axis)), ("all", view.all(axis))):
                            np.testing.assert_array_equal(reduce(view, (axis,), op, out), wanted.astype(out))
