"""``cond`` in exported programs by what is compared of sizes that vary, or of values: both branches stay."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.export import Dim, ExportError, export, load, save

SIZES = [1, 2, 4, 5, 6, 9, 10, 23]


class Program(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def more(x: Any) -> Any:
    return x.cos() + x.sin()


def less(x: Any) -> Any:
    return x.sin()


def in_the_call(x: Any) -> Any:
    return ts.cond(x.shape[0] > 4, more, less, (x,))


def before_the_call(x: Any) -> Any:
    many = x.shape[0] >= 5
    y = x * 2
    return ts.cond(many, more, less, (y,))


def negated(x: Any) -> Any:
    return ts.cond(
        not x.shape[0] > 4,
        more,
        less,
        (x,),
    )


def even(x: Any) -> Any:
    return ts.cond(x.shape[0] % 2 == 0, more, less, (x,))


def of_a_result(x: Any) -> Any:
    y = ts.cat([x, x])
    return ts.cond(y.shape[0] * 3 - 1 < 25, more, less, (y,))


def one_in_another(x: Any) -> Any:
    return ts.cond(x.shape[0] > 4, lambda x: ts.cond(x.shape[0] > 8, more, less, (x,)), lambda x: x * 2, (x,))


@pytest.mark.parametrize("program", [in_the_call, before_the_call, negated, even, of_a_result, one_in_another])
@pytest.mark.parametrize("hint", [Dim("n"), Dim.AUTO])
def test_a_size_tells_the_branch(program: Any, hint: Any) -> None:
    file = io.BytesIO()
    made = export(Program(program), (ts.ones(4, 3),), dynamic_shapes=(({0: hint},),))
    save(made, file)
    file.seek(0)
    for module in (made.module(), load(file).module()):
        for n in SIZES:
            x = ts.randn(n, 3)
            assert ts.equal(module(x), program(x)), n


def test_two_sizes_are_compared() -> None:
    def program(x: Any, y: Any) -> Any:
        return ts.cond(x.shape[0] * 2 + 1 > y.shape[0], lambda x, y: x.sum() + y.sum(), lambda x, y: x.sum(), (x, y))

    shapes = (({0: Dim("n")}, {0: Dim("m")}),)
    module = export(Program(program), (ts.ones(4), ts.ones(6)), dynamic_shapes=shapes).module()
    for n, m in [(2, 4), (2, 5), (2, 6), (9, 19), (9, 18), (40, 3)]:
        x, y = ts.randn(n), ts.randn(m)
        assert module(x, y) == program(x, y)


def test_a_number_of_a_tensor_tells_the_branch() -> None:
    def program(x: Any) -> Any:
        return ts.cond(x.sum().item() > 4, more, less, (x,))

    module = export(Program(program), (ts.ones(2),)).module()
    for total in (1.0, 3.9, 4.1, 90.0):
        x = ts.tensor([total, 0.0])
        assert ts.equal(module(x), program(x))


def test_a_size_that_does_not_vary_leaves_one_branch() -> None:
    made = export(Program(in_the_call), (ts.ones(6, 3),))
    assert "cond" not in str(made.graph)


def test_what_is_made_of_several_comparisons_is_no_such_condition() -> None:
    def program(x: Any) -> Any:
        return ts.cond(x.shape[0] > 4 and x.shape[0] < 9, more, less, (x,))

    with pytest.raises(ExportError, match="it takes other steps"):
        export(Program(program), (ts.ones(4, 3),), dynamic_shapes=(({0: Dim("n")},),))


def test_a_condition_that_was_compared_before_another_is_not_taken_for_it() -> None:
    def program(x: Any, y: Any) -> Any:
        one = x.shape[0] > 4
        assert isinstance(y.shape[0] > 2, bool)
        return ts.cond(one, lambda x, y: x.sum() + y.sum(), lambda x, y: x.sum() - y.sum(), (x, y))

    with warnings.catch_warnings(), pytest.raises(ExportError, match="it takes other steps"):
        shapes = (({0: Dim("n")}, {0: Dim("m")}),)
        export(Program(program), (ts.ones(4), ts.ones(6)), dynamic_shapes=shapes)
