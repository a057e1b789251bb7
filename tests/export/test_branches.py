"""Sizes that vary as far as they can: those on which programs branch have a range."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.export import Dim, ExportError, InputError, export, load, save

A = Dim.AUTO


class Program(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def over_four(x: Any) -> Any:
    return x * 2 if x.shape[0] > 4 else x


def middle(x: Any) -> Any:
    return x + 1 if 2 < x.shape[0] < 9 else x - 1


def not_three(x: Any) -> Any:
    return x + 1 if x.shape[0] != 3 else x


def odd(x: Any) -> Any:
    return x * 2 if x.shape[0] % 2 else x + 1


def thirds(x: Any) -> Any:
    return x * 2 if x.shape[0] // 3 > 1 else x


def short(x: Any) -> Any:
    if x.shape[0] > 16:
        raise ValueError("too long")
    return x * 3


def table(x: Any) -> Any:
    return x + ts.arange(20.0)[: x.shape[0]]


def twice(x: Any) -> Any:
    return x * 2 if 2 * x.shape[0] + 1 > 12 else x


def factor(x: Any) -> Any:
    return x * (2 if x.shape[0] > 2 else 3)


def few(x: Any) -> Any:
    return x * (2 if x.shape[0] < 5 else 3)


# The example's size, and the least and greatest of the range; None where one size is all.
CASES: dict[str, tuple[Callable[..., Any], int, Any]] = {
    "below": (over_four, 3, (0, 4)),
    "above": (over_four, 7, (5, None)),
    "between": (middle, 5, (3, 8)),
    "beyond": (middle, 20, (9, None)),
    "but one": (not_three, 5, (4, None)),
    "that one": (not_three, 3, None),
    "odd": (odd, 3, None),
    "quotient": (thirds, 3, (0, 5)),
    "refused": (short, 4, (0, 16)),
    "of a table": (table, 7, (0, 20)),
    "expression": (twice, 9, (6, None)),
    "of numbers, above": (factor, 3, (3, None)),
    "of numbers, far above": (factor, 8, (3, None)),
    "of numbers, below": (few, 3, (0, 4)),
}


@pytest.mark.parametrize("hint", [A, Dim.DYNAMIC])
@pytest.mark.parametrize("name", CASES)
def test_a_branch_leaves_a_range(name: str, hint: Any) -> None:
    f, size, wanted = CASES[name]
    if wanted is None and hint is Dim.DYNAMIC:
        with pytest.raises(ExportError, match=r"Constraints violated \(s0\)"):
            export(Program(f), (ts.ones(size),), dynamic_shapes=(({0: hint},),))
        return
    program = export(Program(f), (ts.ones(size),), dynamic_shapes=(({0: hint},),))
    found = [(r.lower, r.upper) for r in program.range_constraints.values()]
    assert found == ([] if wanted is None else [wanted])
    module = program.module()
    lower, upper = wanted or (size, size)
    for n in range(25):
        if n >= lower and (upper is None or n <= upper):
            assert ts.equal(module(ts.ones(n)), f(ts.ones(n)))
        else:
            with pytest.raises(InputError, match=rf"expected .*{lower if n < lower else upper}.*{__file__}:\d+"):
                module(ts.ones(n))


def test_the_branch_is_named_by_its_line() -> None:
    line = over_four.__code__.co_firstlineno + 1
    ranged = export(Program(over_four), (ts.ones(3),), dynamic_shapes=(({0: A},),))
    with pytest.raises(InputError, match=rf"s0: expected 0\.\.4, got 5, .* the branch at {__file__}:{line}$"):
        ranged.module()(ts.ones(5))
    line = odd.__code__.co_firstlineno + 1
    fixed = export(Program(odd), (ts.ones(3),), dynamic_shapes=(({0: A},),))
    for program in (fixed, fixed.run_decompositions(), again(fixed)):
        with pytest.raises(
            InputError, match=rf"expected size 3 .*; the size is fixed by the branch at {__file__}:{line}$"
        ):
            program.module()(ts.ones(5))


def again(program: Any) -> Any:
    file = io.BytesIO()
    save(program, file)
    return load(io.BytesIO(file.getvalue()))


def test_ranges_are_kept() -> None:
    program = export(Program(over_four), (ts.ones(3),), dynamic_shapes=(({0: A(min=2, max=10)},),))
    for each in (program, program.run_decompositions(), again(program)):
        assert [(r.lower, r.upper) for r in each.range_constraints.values()] == [(2, 4)]
        with pytest.raises(InputError, match=r"s0: expected 2\.\.4, got 5, .* the branch at .*test_branches"):
            each.module()(ts.ones(5))


def longer(x: Any, y: Any) -> Any:
    return x.sum() + y.sum() if x.shape[0] > y.shape[0] else x.sum() * y.sum()


def product(x: Any, y: Any) -> Any:
    return x.sum() + y.sum() if x.shape[0] * y.shape[0] > 20 else x.sum() * y.sum()


def apart(x: Any, y: Any) -> Any:
    z = x.sum() * 2 if x.shape[0] > 4 else x.sum()
    return z + (y.sum() if y.shape[0] < 7 else y.sum() * 3)


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (4, 4)])
@pytest.mark.parametrize("f", [longer, product, apart])
def test_sizes_that_decide_together(f: Any, sizes: tuple[int, int]) -> None:
    given = tuple(ts.randn(n) for n in sizes)
    program = export(Program(f), given, dynamic_shapes=(({0: A}, {0: A}),))
    module, ran = program.module(), 0
    for first in range(1, 9):
        for second in range(1, 9):
            x, y = ts.randn(first), ts.randn(second)
            try:
                found = module(x, y)
            except InputError:
                continue
            ran += 1
            assert ts.allclose(found, f(x, y)), (first, second, program.range_constraints)
    assert ran > 2


def test_what_has_a_name_has_no_other_range() -> None:
    with pytest.raises(ExportError, match="Constraints violated"):
        export(Program(over_four), (ts.ones(3),), dynamic_shapes=(({0: Dim("rows")},),))


@pytest.mark.parametrize("dims", [(A, A), (Dim("batch"), Dim("length"))])
def test_one_size_may_be_less_than_another(dims: Any) -> None:
    def pooled(x: Any) -> Any:
        return ts.nn.functional.max_pool1d(x, 3)

    given = (ts.ones(2, 4, 12),)
    program = export(Program(pooled), given, dynamic_shapes=(({0: dims[0], 2: dims[1]},),))
    assert next(iter(program.range_constraints.values())).lower == 0
    for batch in (1, 5):
        x = ts.randn(batch, 4, 9)
        assert ts.equal(program.module()(x), pooled(x))


def alike(x: Any, y: Any) -> Any:
    return x.sum() * 2 if x.shape[0] == y.shape[0] else x.sum() + y.sum()


@pytest.mark.parametrize("hint", [A, Dim.DYNAMIC])
def test_sizes_that_a_branch_takes_for_one_are_one(hint: Any) -> None:
    program = export(Program(alike), (ts.ones(3), ts.ones(3)), dynamic_shapes=(({0: hint}, {0: hint}),))
    assert len(program.range_constraints) == 1
    for size in (1, 3, 8):
        x = ts.randn(size)
        assert ts.allclose(program.module()(x, x + 1), alike(x, x + 1))
    with pytest.raises(InputError, match="expected one size, got 3"):
        program.module()(ts.ones(3), ts.ones(4))


def test_results_that_are_as_close_by_chance_are_told_apart() -> None:
    program = export(Program(alike), (ts.ones(3), ts.ones(3)), dynamic_shapes=(({0: A}, None),))
    x, y = ts.tensor([1.0, 2.0, 3.0]), ts.tensor([4.0, 5.0, 6.0])
    assert program.module()(x, y) == alike(x, y)
