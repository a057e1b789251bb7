"""Tensors written to: outputs that fit, operands as outputs, wider dtypes, views that are resized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts

Program = Callable[[Any], Any]
Run = Callable[[Program], None]


@pytest.mark.filterwarnings("ignore:.*resized")
def test_an_output_that_fits_into_its_memory_stays_there(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x, y = m.zeros(10), m.zeros(2, 6)
        part, turned = x[2:5], y.t()
        m.add(m.ones(2), m.ones(2), out=part)
        m.sum(m.ones(2, 3), 0, out=turned)
        return x, part, part.storage_offset(), y, turned

    compare_program(program)


@pytest.mark.filterwarnings("ignore:.*resized")
def test_an_output_of_another_shape_may_be_an_operand() -> None:
    grown = ts.arange(4.0)
    ts.add(grown, ts.ones(3, 4), out=grown)
    assert grown.tolist() == [[1.0, 2.0, 3.0, 4.0]] * 3


def test_an_output_of_a_wider_dtype_holds_the_results_own_numbers(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        truth, small = m.tensor([True, True]), m.tensor([200, 100], dtype=m.uint8)
        half = m.tensor([2049.0, 1 / 3], dtype=m.float16)
        return [
            m.add(truth, truth, out=m.zeros(2, dtype=m.int8)),
            m.add(truth, True, out=m.zeros(2)),
            m.add(small, small, out=m.zeros(2, dtype=m.int32)),
            m.mul(small, 2, out=m.zeros(2)),
            m.sub(small[1:], small[:1], out=m.zeros(1, dtype=m.int64)),
            m.addcmul(small, small, small, out=m.zeros(2).double()),
            m.exp(half.neg(), out=m.zeros(2)),
            m.add(half, half, out=m.zeros(2, 2)[:, 0].double()),
            m.gt(small, 150, out=m.zeros(2)),
        ]

    compare_program(program)


def test_moments_by_unbiased_take_an_output(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x = m.arange(12.0).reshape(3, 4) ** 2
        return [
            call(*args, **kwargs, out=out)
            for call in (m.std, m.var)
            for args, kwargs in (((x, 1, True, False), {}), ((x, 1, False), {}), ((x,), {"dim": 1, "unbiased": True}))
            for out in (m.zeros(3), m.zeros(3, 2)[:, 0])
        ]

    compare_program(program)


def test_views_may_be_resized_within_their_memory(compare_program: Run) -> None:
    def program(m: Any) -> Any:
        x = m.arange(10.0)
        part = x[2:5].resize_(2, 2)
        turned = m.arange(10.0).reshape(2, 5).t().resize_(3, 2)
        part[0, 0] = 7
        return x, part, part.storage_offset(), turned, turned.stride()

    compare_program(program)


def test_views_do_not_grow_out_of_their_memory() -> None:
    with pytest.raises(RuntimeError, match="more than the tensor has of which this is a view"):
        ts.arange(10.0)[2:5].resize_(20)


def test_a_number_may_be_copied_in(compare_program: Run) -> None:
    compare_program(lambda m: [m.zeros(3).copy_(2.5), m.zeros(2, dtype=m.int32).copy_(2), m.zeros(2).copy_(True)])
