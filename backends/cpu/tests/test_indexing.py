"""gather, scatter, index_select, nonzero, triangles, embedding and nll_loss against loops in NumPy and torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kernel_harness import BFLOAT16, DTYPES, INDEX_ERROR, Array, KernelError, call
from test_conv import torch

SET, ADD, PROD, MAX, MIN = range(5)
FLOATS = [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    return rng.integers(-3 if dtype.kind not in "ub" else 0, 4, shape).astype(dtype)


@pytest.mark.parametrize("index_dtype", ["i4", "i8"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gather(dtype: np.dtype[Any], index_dtype: str) -> None:
    rng = np.random.default_rng(0)
    base = random_array(rng, (6, 7, 8), dtype)
    for x in (base, base.T, base[::2, ::-1]):
        for dim in range(3):
            shape = [s - 1 for s in x.shape]
            shape[dim] = 11
            index = rng.integers(0, x.shape[dim], shape).astype(index_dtype)
            out = np.empty(shape, dtype)
            call("gather", [out], [x, index], [dim])
            cut = x[tuple(slice(None) if d == dim else slice(s) for d, s in enumerate(shape))]
            np.testing.assert_array_equal(out, np.take_along_axis(cut, index.astype("i8"), dim))


def test_gather_of_many_and_of_broadcast_indices() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(1000, 64)).astype("f4")
    index = rng.integers(0, 1000, (5000, 1))
    out = np.empty((5000, 64), "f4")
    call("gather", [out], [x, np.broadcast_to(index, out.shape)], [0])
    np.testing.assert_array_equal(out, x[index[:, 0]])
    flat, at = rng.normal(size=100_000), rng.integers(0, 100_000, 200_000)
    taken = np.empty(200_000)
    call("gather", [taken], [flat, at], [0])
    np.testing.assert_array_equal(taken, flat[at])
    single = np.empty((), "f4")
    call("gather", [single], [np.array(2.5, "f4"), np.array(0)], [0])
    assert single == 2.5


@pytest.mark.parametrize("bad", [-1, 7, 1 << 40])
def test_a_bad_index_is_an_error(bad: int) -> None:
    x, index = np.zeros((3, 7), "f4"), np.full((3, 2), bad, "i8")
    rows = np.full(2, bad, "i8")
    calls: list[tuple[str, list[Array], list[Array], list[Any]]] = [
        ("gather", [np.empty((3, 2), "f4")], [x, index], [1]),
        ("scatter", [x], [index, np.zeros((3, 2), "f4")], [1]),
        ("index_select", [np.empty((3, 2), "f4")], [x, rows], [1]),
        ("index_add_", [], [x, rows, np.zeros((3, 2), "f4")], [1]),
        ("embedding", [np.empty((2, 4), "f4")], [np.zeros((7, 4), "f4"), rows], []),
        ("embedding_backward", [np.empty((7, 4), "f4")], [np.zeros((2, 4), "f4"), rows], [7, -1]),
    ]
    for op, outputs, inputs, params in calls:
        with pytest.raises(KernelError, match=rf"{op}: index {bad} is out of bounds for dimension \d with size 7") as e:
            call(op, outputs, inputs, params)
        assert e.value.status == INDEX_ERROR


def scatter_loop(base: Array, dim: int, index: Array, source: Array, opcode: int) -> Array:
    out = base.copy()
    wide = out.astype("f8") if out.dtype == BFLOAT16 else out
    for at in np.ndindex(index.shape):
        to = (*at[:dim], int(index[at]), *at[dim + 1 :])
        value = source[at]
        if opcode == SET:
            wide[to] = value
        elif opcode == ADD:
            wide[to] = wide[to] | value if out.dtype == bool else wide[to] + value
        elif opcode == PROD:
            wide[to] = wide[to] & value if out.dtype == bool else wide[to] * value
        else:
            wide[to] = (np.maximum if opcode == MAX else np.minimum)(wide[to], value)
    return wide.astype(out.dtype)


@pytest.mark.parametrize("opcode", [SET, ADD, PROD, MAX, MIN])
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "c"], ids=str)
def test_scatter(dtype: np.dtype[Any], opcode: int) -> None:
    rng = np.random.default_rng(2)
    for dim in range(3):
        base = random_array(rng, (4, 5, 6), dtype)
        shape = [3, 4, 5]
        shape[dim] = 4 if opcode == SET else 9
        if opcode == SET:  # distinct targets: the order of duplicates is free
            index = np.argsort(rng.random((3, 4, 5)[:dim] + (4,) + (3, 4, 5)[dim + 1 :]), axis=dim)
        else:
            index = rng.integers(0, base.shape[dim], shape)
        source = random_array(rng, tuple(index.shape), dtype)
        with np.errstate(over="ignore"):
            want = scatter_loop(base, dim, index, source, opcode)
        for index_dtype in ("i4", "i8"):
            out = base.copy()
            call("scatter", [out], [index.astype(index_dtype), source], [dim], opcode=opcode)
            np.testing.assert_array_equal(out, want)
        out = np.asfortranarray(base)
        call("scatter", [out], [index, np.asfortranarray(source)], [dim], opcode=opcode)
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
def test_scatter_of_complex(dtype: str) -> None:
    index, source = np.array([2, 0, 2]), np.array([1 + 2j, 3j, 5], dtype)
    for opcode, want in ((SET, [3j, 1, 5]), (ADD, [1 + 3j, 1, 7 + 2j]), (PROD, [3j, 1, 5 + 10j])):
        out = np.ones(3, dtype)
        call("scatter", [out], [index, source], [0], opcode=opcode)
        np.testing.assert_array_equal(out, np.array(want, dtype))
    with pytest.raises(KernelError, match="scatter: expected a floating dtype, got complex"):
        call("scatter", [np.ones(3, dtype)], [index, source], [0], opcode=MAX)


def test_scatter_is_deterministic_and_takes_broadcast_sources() -> None:
    rng = np.random.default_rng(3)
    index = rng.integers(0, 50, 20_000)
    source = rng.normal(size=(20_000, 33)).astype("f4")
    want = np.zeros((50, 33), "f4")
    np.add.at(want, index, source)
    out = np.zeros((50, 33), "f4")
    call("scatter", [out], [np.broadcast_to(index[:, None], source.shape), source], [0], opcode=ADD)
    np.testing.assert_array_equal(out, want)
    counts = np.zeros(50, "i8")
    call("scatter", [counts], [index, np.broadcast_to(np.int64(1), index.shape)], [0], opcode=ADD)
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=50))
    counts[:] = 0
    call("scatter", [counts], [index, (1, "i8", 1)], [0], opcode=ADD)
    np.testing.assert_array_equal(counts, np.bincount(index, minlength=50))


def test_scatter_max_keeps_nan() -> None:
    for dtype in FLOATS:
        for opcode in (MAX, MIN):
            out = np.array([1, np.nan, 3], dtype)
            call("scatter", [out], [np.array([0, 1, 2]), np.array([np.nan, 2, 2], dtype)], [0], opcode=opcode)
            assert np.isnan(out[:2].astype("f4")).all() and out[2] == (3 if opcode == MAX else 2)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind != "c"], ids=str)
def test_index_select_and_add(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(4)
    x = random_array(rng, (5, 6, 7), dtype)
    for dim in range(3):
        index = rng.integers(0, x.shape[dim], 9)
        out = np.empty_like(np.take(x, index, dim))
        call("index_select", [out], [x, index], [dim])
        np.testing.assert_array_equal(out, np.take(x, index, dim))
        source = random_array(rng, out.shape, dtype)
        wide = np.broadcast_to(index.reshape([-1 if d == dim else 1 for d in range(3)]), out.shape)
        want = scatter_loop(x, dim, wide, source, ADD)
        target = x.copy()
        call("index_add_", [], [target, index.astype("i4"), source], [dim])
        np.testing.assert_array_equal(target, want)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_embedding(dtype: np.dtype[Any]) -> None:
    rng = np.random.default_rng(5)
    table = random_array(rng, (40, 12), dtype)
    indices = rng.integers(0, 40, (30, 50))
    out = np.empty((30, 50, 12), dtype)
    call("embedding", [out], [table, indices])
    np.testing.assert_array_equal(out, table[indices])
    grad = (rng.integers(-8, 9, out.shape) / 8).astype(dtype)
    for padding in (-1, 3):
        want = np.zeros((40, 12))
        np.add.at(want, indices, grad.astype("f8"))
        if padding >= 0:
            want[padding] = 0
        got = np.full((40, 12), 9, dtype)
        call("embedding_backward", [got], [grad, indices.astype("i4")], [40, padding])
        np.testing.assert_array_equal(got, want.astype(dtype))  # the sums are exact in float32


@pytest.mark.parametrize("shape", [(50, 7), (3, 7, 5, 4)], ids=["rows", "pictures"])
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nll_loss(dtype: np.dtype[Any], reduction: int, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(6)
    x = (rng.integers(-8, 9, shape) / 8).astype(dtype)
    target = rng.integers(0, 7, (shape[0], *shape[2:]))
    target.reshape(-1)[::5] = -100
    for weight in (None, (rng.integers(1, 9, 7) / 8).astype(dtype)):
        wide = torch.from_numpy(x.astype("f8")).requires_grad_()
        wide_weight = None if weight is None else torch.from_numpy(weight.astype("f8"))
        name = ("none", "mean", "sum")[reduction]
        want = torch.nn.functional.nll_loss(wide, torch.from_numpy(target), wide_weight, reduction=name)
        out, total = np.empty(tuple(want.shape), dtype), np.empty((), dtype)
        call("nll_loss_forward", [out, total], [x, target, weight], [reduction, -100])
        tolerance = float(np.finfo(dtype).eps if dtype != BFLOAT16 else 2**-7)
        np.testing.assert_allclose(out.astype("f8"), want.detach().numpy(), rtol=tolerance, atol=tolerance)
        g = np.asarray(rng.integers(1, 9, out.shape) / 8).astype(dtype)
        want.backward(torch.from_numpy(g.astype("f8")))
        dx = np.full_like(x, 9)
        call("nll_loss_backward", [dx], [g, target, weight, total], [list(x.shape), reduction, -100])
        np.testing.assert_allclose(dx.astype("f8"), wide.grad.numpy(), rtol=3 * tolerance, atol=tolerance)


def test_nll_loss_without_classes_or_places() -> None:
    for shape, count in (((4, 0), 4), ((2, 3, 0), 0)):
        x, target = np.zeros(shape, "f4"), np.full((shape[0], *shape[2:]), -100)
        dx, g, total = np.empty(shape, "f4"), np.zeros(target.shape, "f4"), np.zeros((), "f4")
        out = np.full(target.shape, 9, "f4")
        call("nll_loss_forward", [out, total], [x, target, None], [0, -100])
        assert out.size == count and not out.any() and not total
        call("nll_loss_backward", [dx], [g, target, None, total], [list(shape), 0, -100])


def test_nll_loss_refuses_a_bad_target() -> None:
    x = np.zeros((2, 3), "f4")
    with pytest.raises(KernelError, match="target 3 is out of bounds for 3 classes") as caught:
        call("nll_loss_forward", [np.empty((), "f4"), np.empty((), "f4")], [x, np.array([0, 3]), None], [1, -100])
    assert caught.value.status == INDEX_ERROR


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(1,), (9,), (70_001,), (3, 5), (300, 401), (2, 1, 40, 901), (7, 2, 3, 4, 5)])
def test_nonzero(shape: tuple[int, ...], share: float) -> None:
    mask = np.random.default_rng(0).random(shape) < share
    want = np.argwhere(mask)
    found = np.full(want.shape, -1, "i8")
    call("nonzero", [found], [mask])
    np.testing.assert_array_equal(found, want)


def test_nonzero_refuses_what_does_not_fit() -> None:
    mask = np.array([True, False, True])
    for out in (np.empty((3, 1), "i8"), np.empty((2, 2), "i8"), np.empty((2, 1), "i4"), np.empty(2, "i8")):
        with pytest.raises(KernelError, match="nonzero: expected"):
            call("nonzero", [out], [mask])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (2, 5, 3), (700, 300), (1, 1), (2, 3, 1, 4)])
def test_triangles(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    x = random_array(np.random.default_rng(2), shape, dtype)
    rows, columns = shape[-2:]
    for diagonal in (-(2**62), -rows, -1, 0, 1, columns, 2**62):
        near = max(-rows - 1, min(columns + 1, diagonal))
        for name, keep in (
            ("tril", np.tri(rows, columns, near, bool)),
            ("triu", ~np.tri(rows, columns, near - 1, bool)),
        ):
            out = np.full(shape, 3, "f4").astype(dtype)
            call(name, [out], [x], [diagonal])
            np.testing.assert_array_equal(out, np.where(keep, x, np.zeros((), dtype)))


@pytest.mark.parametrize("dtype", ["i4", "i8"])
@pytest.mark.parametrize("upper", [False, True])
def test_triangle_indices(dtype: str, upper: bool) -> None:
    for rows, columns in ((1, 1), (3, 5), (5, 3), (0, 2), (2, 0), (200, 300)):
        for diagonal in (-rows, -2, -1, 0, 1, 2, columns):
            keep = ~np.tri(rows, columns, diagonal - 1, bool) if upper else np.tri(rows, columns, diagonal, bool)
            want = np.stack(np.nonzero(keep)).astype(dtype)
            out = np.full(want.shape, -1, dtype)
            call("triangle_indices", [out], [], [rows, columns, diagonal, int(upper)])
            np.testing.assert_array_equal(out, want)
    with pytest.raises(KernelError, match="triangle_indices: expected room"):
        call("triangle_indices", [np.empty((2, 4), dtype)], [], [2, 2, 0, int(upper)])
