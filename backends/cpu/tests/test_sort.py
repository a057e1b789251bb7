"""sort and topk against NumPy's stable sort."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from kernel_harness import BFLOAT16, DTYPES, Array, call

REAL = [d for d in DTYPES if d.kind != "c"]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Values with ties, both zeros, infinities and NaN."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        few = rng.integers(0, 5, shape, dtype=dtype)
        return np.where(
            rng.random(shape) < 0.5, few, rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        )
    x = rng.normal(size=shape).astype("f4").astype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, 1.0], "f4").astype(dtype)
    return np.where(rng.random(shape) < 0.3, special[rng.integers(0, 7, shape)], x)


def stable_order(x: Array, descending: bool) -> Array:
    """Positions along the last dimension, NaN greatest, ties by position."""
    keys = x.astype("f8") if x.dtype == BFLOAT16 or x.dtype.kind == "f" else x
    rank = np.empty(keys.shape, "i8")
    for row in np.ndindex(keys.shape[:-1]):
        rank[row] = np.unique(keys[row], return_inverse=True, equal_nan=True)[1]
    return np.argsort(-rank if descending else rank, axis=-1, kind="stable")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("shape", [(1,), (7,), (5, 33), (2, 3, 100), (3, 2000), (70_000,)], ids=str)
def test_sort(shape: tuple[int, ...], dtype: np.dtype[Any], descending: bool) -> None:
    x = random_array(np.random.default_rng(0), shape, dtype)
    values, positions = np.empty(shape, dtype), np.empty(shape, "i8")
    call("sort", [values, positions], [x], [descending])
    np.testing.assert_array_equal(positions, stable_order(x, descending))
    assert values.tobytes() == np.take_along_axis(x, positions, -1).tobytes()


def test_sort_of_strided_tensors() -> None:
    base = random_array(np.random.default_rng(1), (40, 60), np.dtype("f4"))
    for x in (base.T, base[::2, ::-3], np.broadcast_to(base[:1], (8, 60))):
        values, positions = np.empty(x.shape[::-1], "f4").T, np.empty(x.shape, "i8")
        call("sort", [values, positions], [x], [False])
        np.testing.assert_array_equal(positions, stable_order(x, False))
        np.testing.assert_array_equal(values, np.take_along_axis(x, positions, -1))
    values0, positions0 = np.empty((), "f4"), np.empty((), "i8")
    call("sort", [values0, positions0], [np.array(3.5, "f4")], [True])
    assert values0 == 3.5 and positions0 == 0


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("dtype", REAL, ids=str)
@pytest.mark.parametrize("case", [(1, 1), (10, 10), (500, 1), (500, 7), (500, 300), (20_000, 50)], ids=str)
def test_topk(case: tuple[int, int], dtype: np.dtype[Any], largest: bool) -> None:
    n, k = case
    x = random_array(np.random.default_rng(2), (4, n), dtype)
    values, positions = np.empty((4, k), dtype), np.empty((4, k), "i8")
    order = stable_order(x, largest)[:, :k]
    call("topk", [values, positions], [x], [k, 1, largest, True])
    np.testing.assert_array_equal(positions, order)
    assert values.tobytes() == np.take_along_axis(x, positions, -1).tobytes()
    call("topk", [values, positions], [x], [k, 1, largest, False])
    np.testing.assert_array_equal(np.sort(positions), np.sort(order))


@pytest.mark.parametrize("dtype", [d for d in REAL if d.kind != "b"], ids=str)  # which come as bytes
@pytest.mark.parametrize("shape", [(1,), (5, 33), (40, 9), (3, 2000)], ids=str)
def test_modes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = random_array(np.random.default_rng(2), shape, dtype)
    positions = np.empty((*shape[:-1], 1), "i8")
    call("rank_positions", [positions], [x], [-3])
    for row in np.ndindex(shape[:-1]):
        keys = x[row].astype("f8") if dtype == BFLOAT16 or dtype.kind == "f" else x[row]
        values, counts = np.unique(keys, return_counts=True, equal_nan=False)
        most = values[counts.argmax()]
        assert positions[row][0] == np.flatnonzero(keys == most)[-1]


def test_the_mode_of_nothing_but_nan_is_the_first() -> None:
    positions = np.empty((1, 1), "i8")
    call("rank_positions", [positions], [np.full((1, 5), np.nan, "f4")], [-3])
    assert positions[0, 0] == 0


@pytest.mark.parametrize("n", [1, 2, 5, 100, 3000])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int8"])
def test_searching_for_values_in_any_order(n: int, right: bool, dtype: str) -> None:
    """Ascending, descending, twice over, NaN among them: what is found from the last one and what is not."""
    rng = np.random.default_rng(n)
    keys = np.sort((rng.standard_normal(n) * 50).astype(dtype))
    drawn = (rng.standard_normal(700) * 50).astype(dtype)
    ascending = np.sort(drawn)
    twice = np.concatenate([np.arange(100), np.arange(100)]).astype(dtype)
    for values in (drawn, ascending, ascending[::-1].copy(), twice, np.repeat(keys, 3)[:900]):
        if dtype.startswith("float"):
            values[-3:] = np.nan
            values[len(values) // 2] = np.inf
        found = ts.searchsorted(ts.tensor(keys), ts.tensor(values), right=right).numpy()
        np.testing.assert_array_equal(found, np.searchsorted(keys, values, "right" if right else "left"))
