"""Reductions, scans and norms against torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Call = Callable[..., Any]
RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 4, 5))
Z = X.copy()
Z[0, 1, 2] = Z[2, 0, :2] = 0.0
INTS = RNG.integers(-4, 5, (3, 4, 5))
EMPTY = np.zeros((2, 0, 3))

DIMS: dict[str, Call] = {
    "sum": lambda m, x: [
        x.sum(),
        m.sum(x, 1),
        x.sum(dim=(0, 2), keepdim=True),
        x.sum(-1, keepdim=True),
        x.sum(dim=[]),
        x.sum(None),
    ],
    "sum_dtype": lambda m, x: [x.sum(dtype=m.float32), m.sum(x, 0, dtype=m.float64)],
    "mean": lambda m, x: [x.mean(), m.mean(x, 1), x.mean(dim=(0, 2), keepdim=True)],
    "var": lambda m, x: [
        x.var(),
        x.var(1),
        x.var(dim=(0, 2), correction=0),
        x.var(unbiased=False),
        m.var(x, 1, False, True),
    ],
    "std": lambda m, x: [x.std(), x.std(1), x.std(dim=(0, 2), correction=0, keepdim=True), x.std(unbiased=False)],
    "var_mean": lambda m, x: [m.var_mean(x), m.var_mean(x, 1), m.var_mean(x, dim=(0, 2), correction=0)],
    "std_mean": lambda m, x: [m.std_mean(x), m.std_mean(x, 1, keepdim=True)],
    "amax": lambda m, x: [m.amax(x), m.amax(x, 1), x.amax(dim=(0, 2), keepdim=True)],
    "amin": lambda m, x: [m.amin(x), m.amin(x, 1), x.amin(dim=(0, 2), keepdim=True)],
    "max": lambda m, x: [x.max(), *x.max(1), *m.max(x, -1, keepdim=True)],
    "min": lambda m, x: [x.min(), *x.min(1), *m.min(x, -1, keepdim=True)],
    "aminmax": lambda m, x: [*m.aminmax(x), *m.aminmax(x, dim=1, keepdim=True)],
    "logsumexp": lambda m, x: [m.logsumexp(x, 1), x.logsumexp((0, 2), keepdim=True), x.logsumexp(dim=-1)],
    "cumsum": lambda m, x: [m.cumsum(x, 0), x.cumsum(1), x.cumsum(-1)],
    "cummax": lambda m, x: [*m.cummax(x, 0), *x.cummax(2)],
    "cummin": lambda m, x: [*m.cummin(x, 1)],
    "logcumsumexp": lambda m, x: [m.logcumsumexp(x, 0), m.logcumsumexp(x, 2)],
    "norm": lambda m, x: [
        x.norm(),
        m.norm(x, 1),
        x.norm(3, 1),
        x.norm(p=2, dim=(0, 2), keepdim=True),
        m.norm(x, "fro"),
        x.norm(p="fro", dim=1),
    ],
    "vector_norm": lambda m, x: [
        m.linalg.vector_norm(x),
        m.linalg.vector_norm(x, 1.5, dim=1),
        m.linalg.vector_norm(x, ord=float("inf"), dim=(0, 1)),
        m.linalg.vector_norm(x, -float("inf")),
        m.linalg.vector_norm(x, 0.5, 2),
    ],
    "nansum": lambda m, x: [m.nansum(x), x.nansum(1)],
    "nanmean": lambda m, x: [m.nanmean(x), x.nanmean((0, 1), keepdim=True)],
    "sum_to_size": lambda m, x: [x.sum_to_size(4, 1), x.sum_to_size(3, 4, 5), x.sum_to_size(1, 1, 5)],
    "prod": lambda m, x: [x.prod(), m.prod(x, 1), x.prod(0, keepdim=True)],
    "cumprod": lambda m, x: [m.cumprod(x, 1), x.cumprod(-1)],
}


@pytest.mark.parametrize("name", DIMS)
def test_floats(compare: Call, name: str) -> None:
    compare(DIMS[name], X)


@pytest.mark.parametrize("name", DIMS)
def test_float32_and_half(compare: Call, name: str) -> None:
    compare(DIMS[name], X, dtype="float32")
    if name not in ("logcumsumexp", "var_mean", "vector_norm"):
        compare(DIMS[name], X, dtype="bfloat16")


@pytest.mark.parametrize("name", DIMS)
def test_strided(compare: Call, name: str) -> None:
    compare(
        lambda m, x: DIMS[name](m, x.permute(2, 0, 1).flip(0).transpose(0, 1)),
        np.ascontiguousarray(X.transpose(0, 2, 1)),
    )


@pytest.mark.parametrize("name", ["prod", "cumprod", "sum", "amax", "norm"])
def test_zeros_have_gradients(compare: Call, name: str) -> None:
    compare(DIMS[name], Z)


@pytest.mark.parametrize(
    "name", ["sum", "prod", "cumsum", "cumprod", "amax", "amin", "max", "min", "aminmax", "cummax", "nansum"]
)
@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "int8", "bool"])
def test_integers(compare: Call, name: str, dtype: str) -> None:
    if dtype == "bool" and name in ("cummax", "aminmax", "amin", "amax"):
        pytest.skip("compared as integers")
    if name == "nansum" and dtype == "bool":
        pytest.skip("compared as integers")
    compare(DIMS[name], np.abs(INTS).astype(dtype) if dtype == "uint8" else INTS.astype(dtype))


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8", "bool", "float32"])
def test_sums_as_bool(compare: Call, dtype: str) -> None:
    """Truth is of each addend: those that cancel out count."""
    array = np.array([[2, 3, 0], [-2, 1, 0], [0, 0, 0]]).astype(dtype)
    sums = lambda m, x: [f(x, k, dtype=m.bool) for f in (m.sum, m.prod) for k in (0, 1)]  # noqa: E731
    compare(lambda m, x: [*sums(m, x), x.sum(dtype=m.bool), x[:2, :2].prod(dtype=m.bool)], array, order=0)


@pytest.mark.parametrize("dtype", ["float64", "int64", "uint8", "bool"])
def test_truth_and_positions(compare: Call, dtype: str) -> None:
    array = (np.abs(INTS) > 2).astype(dtype)
    compare(
        lambda m, x: [
            x.any(),
            x.any(1),
            x.all(),
            m.all(x, 2, keepdim=True),
            m.any(x, (0, 1)),
            m.count_nonzero(x),
            m.count_nonzero(x, 1),
        ],
        array,
        order=0,
    )
    if dtype != "bool":
        compare(lambda m, x: [x.argmax(), m.argmax(x, 1), x.argmin(-1, keepdim=True), m.argmin(x)], array, order=0)


def test_nan_and_infinity(compare: Call) -> None:
    x = X.copy()
    x[0, 0, 0], x[1, 1, 1], x[2, 2, 2] = np.nan, np.inf, -np.inf
    for name in ("max", "min", "amax", "sum", "nansum", "nanmean", "logsumexp", "cummax"):
        compare(DIMS[name], x, order=0)
    compare(lambda m, x: [x.argmax(), x.argmin(2), x.any(), x.all()], x, order=0)
    compare(lambda m, x: [x.logsumexp(1), x.logcumsumexp(1)], np.full((2, 3), -np.inf), order=0)


def test_empty(compare: Call, compare_errors: Call) -> None:
    compare(
        lambda m, x: [
            x.sum(),
            x.sum(1),
            x.prod(),
            x.prod(1),
            x.mean(),
            x.mean(1),
            x.any(),
            x.all(1),
            x.sum(0),
            x.cumsum(1),
            x.norm(),
            x.logsumexp(1),
            x.amax(0),
            x.argmax(2),
            *x.max(0),
        ],
        EMPTY,
        order=1,
    )
    for call in (
        lambda m, x: x.max(),
        lambda m, x: x.amax(1),
        lambda m, x: x.argmax(),
        lambda m, x: x.max(1),
        lambda m, x: x.argmin(1),
    ):
        compare_errors(call, EMPTY)


def test_zero_dim(compare: Call) -> None:
    x = np.array(2.5)
    compare(
        lambda m, x: [
            x.sum(),
            x.sum(0),
            x.sum(-1, keepdim=True),
            x.mean(),
            x.prod(0),
            x.max(),
            *x.max(0),
            x.argmax(),
            x.argmax(0),
            x.amax(0),
            x.cumsum(0),
            x.cumprod(0),
            x.logsumexp(0),
            x.norm(),
            x.any(),
            x.cummax(0)[0],
            x.nansum(),
        ],
        x,
    )


def test_errors(compare_errors: Call) -> None:
    for call in (
        lambda m, x: x.sum(3),
        lambda m, x: x.sum((0, 0)),
        lambda m, x: x.sum(dim=(0, -3)),
        lambda m, x: x.long().mean(),
        lambda m, x: x.var(-5),
        lambda m, x: x.long().var(),
        lambda m, x: m.logsumexp(x, 7),
        lambda m, x: x.cumsum(3),
        lambda m, x: x.sum_to_size(2, 5),
        lambda m, x: x.sum("a"),
        lambda m, x: x.max(5),
    ):
        compare_errors(call, X)
