"""Selecting, splitting and counting: positions from the end, sections, no dims, medians of nothing, parts of unique."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts

Program = Callable[[Any], Any]
Run = Callable[[Program], None]


@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("dim", [[], (), [0], (0, -1), None])
@pytest.mark.parametrize("keepdim", [False, True])
def test_truth_along_no_dims(compare_program: Run, name: str, dim: Any, keepdim: bool) -> None:
    def program(m: Any) -> Any:
        x = m.tensor([[1.0, 0.0], [1.0, 2.0]])
        few = getattr(m, name)(x.to(m.uint8), dim=dim, keepdim=keepdim)
        one = getattr(m, name)(m.tensor(1.0), dim=[] if dim == (0, -1) else dim)
        return getattr(m, name)(x, dim=dim, keepdim=keepdim), few, one

    compare_program(program)


def test_positions_may_count_from_the_end(compare_program: Run) -> None:
    compare_program(lambda m: m.take_along_dim(m.arange(6.0).reshape(2, 3), m.tensor([[-1, 0, -2]]), dim=1))


def test_positions_beyond_the_end_are_refused() -> None:
    x = ts.arange(6.0).reshape(2, 3)
    for bad in (-4, 3):
        with pytest.raises(IndexError):
            ts.take_along_dim(x, ts.tensor([[bad]]), dim=1)
    assert ts.take_along_dim(x, ts.tensor([-1, 0])).tolist() == [5.0, 0.0]


@pytest.mark.parametrize("given", [[1, 3], [], [0], [5, 2], [-1], [3, 10], 3, 4])
def test_a_tensor_says_where_to_split(compare_program: Run, given: Any) -> None:
    def program(m: Any) -> Any:
        where = m.tensor(given, dtype=m.int64)
        wide = m.arange(12).reshape(2, 6)
        return m.tensor_split(m.arange(6), where), wide.tensor_split(where, dim=1)

    compare_program(program)


def test_a_tensor_that_says_nothing_about_splitting(compare_errors: Callable[..., None]) -> None:
    compare_errors(lambda m: m.tensor_split(m.arange(6), m.tensor([1.0])))
    compare_errors(lambda m: m.tensor_split(m.arange(6), m.tensor([[1]])))
    compare_errors(lambda m: m.tensor_split(m.arange(6), m.tensor(0)))


def test_what_is_selected_along_a_dim_is_contiguous(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x = m.arange(24.0).reshape(2, 3, 4)
        found = [(d, k, x.kthvalue(2, d, k), x.median(d, k), x.mode(d, k)) for d in range(3) for k in (False, True)]
        return [[t.is_contiguous() for t in pair] for _, _, *pairs in found for pair in pairs]

    compare_program(program)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "int32", "int8", "uint8", "bool"])
def test_the_median_of_nothing(compare_program: Run, dtype: str) -> None:
    compare_program(lambda m: [getattr(m.zeros(0, dtype=getattr(m, dtype)), f)() for f in ("median", "nanmedian")])


def test_parts_of_unique_that_are_not_asked_for() -> None:
    values, inverse, counts = ts.ops._unique2(ts.tensor([3, 1, 3]))
    assert values.tolist() == [1, 3] and inverse.numel() == counts.numel() == 0
