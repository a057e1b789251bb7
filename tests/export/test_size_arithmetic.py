"""What Python makes of sizes that vary: the program's number at every size, not only at those that were tried."""

from __future__ import annotations

import contextlib
import math
import random
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.export import Dim, ExportError, InputError, export
from tesserack.nn import functional as F
from tesserack.testing.seeds import generator

N, M = Dim("n", min=2, max=300), Dim("m", min=2, max=300)
EVERY = [*range(2, 40), 63, 64, 65, 97, 128, 200, 255, 256, 299, 300]


class Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


PROGRAMS = {
    "half": lambda x: x[: x.shape[0] // 2],
    "even": lambda x: x[: x.shape[0] // 2 * 2] * 1,
    "from a third": lambda x: x[x.shape[0] // 3 :],
    "remainder": lambda x: x[x.shape[0] % 3 :],
    "padded to a multiple": lambda x: F.pad(x, (0, 0, 0, -(-x.shape[0] // 4) * 4 - x.shape[0])),
    "padded by the remainder": lambda x: F.pad(x, (0, 0, 0, (4 - x.shape[0] % 4) % 4)),
    "rounded half": lambda x: x[: round(x.shape[0] / 2)],
    "truncated": lambda x: x[: int(x.shape[0] * 0.7)],
    "ceil": lambda x: x.new_zeros(math.ceil(x.shape[0] / 3)),
    "floor": lambda x: x.new_zeros(math.floor(x.shape[0] * 0.33)),
    "of a number without its history": lambda x: x.new_zeros(int(x.shape[0] * 0.5) // 3 + 1),
    "no less": lambda x: x.new_zeros(max(x.shape[0] - 6, 1)),
    "no more": lambda x: x.new_zeros(min(x.shape[0] // 2, 9) + 1),
    "of a long period": lambda x: x.new_zeros(-(-(math.ceil(x.shape[0] / 16) % 8) // 16) + 1),
    "after strides": lambda x: F.max_pool1d(x.t(), 3, 2, 1)[:, : ((x.shape[0] - 1) // 2 + 1) // 2],
    "one of parts": lambda x: x.tensor_split(3)[1],
    "scaled": lambda x: F.interpolate(x.t()[None], size=x.shape[0] * 3 // 2)[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_one_size(name: str) -> None:
    program = export(Calls(PROGRAMS[name]), (ts.randn(8, 3),), dynamic_shapes=({0: N},)).module()
    for n in EVERY:
        x = ts.randn(n, 3)
        assert ts.equal(program(x), PROGRAMS[name](x)), n


def test_an_area_by_parts() -> None:
    def cut(x: Any) -> Any:
        return x.reshape(-1)[: x.shape[0] * x.shape[1] // 3], x.new_zeros(x.shape[0] // 2 + x.shape[1] % 5)

    program = export(Calls(cut), (ts.randn(6, 9),), dynamic_shapes=({0: N, 1: M},)).module()
    for n, m in zip(EVERY, reversed(EVERY), strict=True):
        x = ts.randn(n, m)
        assert all(ts.equal(a, b) for a, b in zip(program(x), cut(x), strict=True)), (n, m)


def test_branches_on_what_is_made_of_a_size() -> None:
    """Are seen where they lie beyond the sizes that are tried anyway."""
    with pytest.raises(ExportError, match="n"):
        export(Calls(lambda x: x * 2 if x.shape[0] // 2 > 57 else x), (ts.randn(8, 3),), dynamic_shapes=({0: N},))
    short = Dim("n", min=2, max=114)
    export(Calls(lambda x: x * 2 if x.shape[0] // 2 > 57 else x), (ts.randn(8, 3),), dynamic_shapes=({0: short},))


def _formula(rng: random.Random, depth: int, names: list[str]) -> str:
    if depth == 0 or rng.random() < 0.15:
        return rng.choice(names)
    a, c, k = _formula(rng, depth - 1, names), rng.choice([2, 3, 4, 5, 7, 8, 16]), rng.choice([1, 2, 3, 4])
    return rng.choice([
        f"({a} // {c})", f"({a} + {k})", f"({a} * {k})", f"({a} % {c})", f"(-(-{a} // {c}))", f"round({a} / {c})",
        f"(({a} + {c - 1}) // {c} * {c})", f"({c} - {a} % {c})",
        f"math.ceil({a} / {c})", f"(({a} - {k}) // 2 + 1)", f"math.floor({a} * 0.9)",
    ])  # fmt: skip


def test_random_formulas() -> None:
    """Those that are told are right; most are told. (After ``int()`` of a float what is made further is not seen.)"""
    rng, told = generator("formulas of sizes"), 0
    for _ in range(20):
        names = rng.choice([["n"], ["n", "m"]])
        text = _formula(rng, rng.choice([1, 2, 2]), names)
        size = eval(f"lambda n, m: abs({text}) + 1", {"math": math})
        shapes = {0: N, 1: M} if len(names) > 1 else {0: N}
        model = Calls(lambda x, size=size: x.new_zeros(size(*x.shape)))
        try:
            program = export(model, (ts.zeros(rng.choice([4, 6, 8, 13]), 9),), dynamic_shapes=(shapes,)).module()
        except ExportError:
            continue
        told += 1
        for n in EVERY:
            m = rng.randint(2, 300) if len(names) > 1 else 9
            assert program(ts.zeros(n, m)).shape[0] == size(n, m), (text, n, m)
    assert told >= 15


def shifted_remainder(x: Any) -> Any:
    return ts.arange(max(1, (34 - x.shape[0]) % 50))


def few_copies(x: Any) -> Any:
    return x.repeat(1 + int(min(1, math.ceil(x.shape[0] / 6)) ** 0.5) % 5)


@pytest.mark.parametrize("f", [shifted_remainder, few_copies])
def test_sizes_at_which_a_number_changes_are_tried(f: Any) -> None:
    class Program(nn.Module):
        def forward(self, other: Any, x: Any) -> Any:
            return other.sum() + f(x)

    sizes = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO})
    program = export(Program(), (ts.ones(3, 8), ts.ones(7)), dynamic_shapes=sizes).module()
    for size in range(1, 70):
        try:
            found = program(ts.ones(4, 6), ts.ones(size))
        except InputError:
            continue
        assert found.shape == f(ts.ones(size)).shape


# Each is one thing at most sizes, and another at few.
NESTED = {
    "of limits of limits": lambda x, y: (
        x.sum(0)
        * max(min(min(4, x.shape[1]), x.shape[0]), y.shape[0])
        / (1 + abs(min(6 + x.shape[0], x.shape[0] - y.shape[0] + 4)))
    ),
    "a remainder of a product": lambda x, y: ts.arange(
        max(1, ((1 + x.shape[1]) * (x.shape[0] - x.shape[1] + 6) + abs(6 - y.shape[0])) % 50)
    ),
    "one size by chance": lambda x, y: y.new_zeros(
        1 + min((y.shape[0] - x.shape[1]) % 7, min(7, x.shape[1]) + min(y.shape[0], 9))
    ),
    "one of its parts by chance": lambda x, y: (
        x.sum(0) * min(abs(y.shape[0] - x.shape[1]) % 5, x.shape[1] + x.shape[0] - x.shape[1] % 4)
    ),
    "fixed but at equal sizes": lambda x, y: y.new_zeros(
        1 + min(1, abs(min(x.shape[0], y.shape[0]) - x.shape[1]))
    ),
    "a number but near one size": lambda x, y: ts.arange(max(1, min(abs(x.shape[1] - 3), 8))),
    "of a list": lambda x, y: x.new_zeros(max([x.shape[0], y.shape[0], 3]) + min(x.shape) * 2),
    "a number by a size": lambda x, y: x.new_zeros(50 // (1 + x.shape[0]) + int(max(3, y.shape[0]) * 1.5)),
}  # fmt: skip


def _beside_the_program(f: Any, example: tuple[int, int, int], rng: random.Random) -> int:
    """At how many sizes the exported program gives what this one does, where it takes them."""

    class Program(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return f(x, y)

    def given(row: tuple[int, ...]) -> tuple[Any, Any]:
        return ts.ones(row[:2]), ts.ones(row[2])

    sizes = ({0: Dim.AUTO, 1: Dim.AUTO}, {0: Dim.AUTO})
    program, taken = export(Program(), given(example), dynamic_shapes=sizes).module(), 0
    rows = [tuple(rng.randint(0, most) for _ in example) for most in (12, 12, 60) for _ in range(30)]
    rows += [(*example[:k], n, *example[k + 1 :]) for k in range(3) for n in (0, 1, 2, 3, 5, 10, 20, 60)]
    for row in rows:
        try:
            found = program(*given(row))
        except InputError:
            continue
        expected = f(*given(row))
        assert found.shape == expected.shape and ts.allclose(found, expected, equal_nan=True), row
        taken += 1
    return taken


@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("example", [(8, 6, 4), (3, 4, 6), (4, 4, 4)])
def test_limits_within_others(name: str, example: tuple[int, int, int]) -> None:
    assert _beside_the_program(NESTED[name], example, generator("sizes beside a program")) > 60


def _nested(rng: random.Random, depth: int) -> str:
    sizes = ["x.shape[0]", "x.shape[1]", "y.shape[0]"]
    if depth == 0 or rng.random() < 0.12:
        return rng.choice([*sizes, *sizes, str(rng.randint(1, 8))])
    a, b, c = _nested(rng, depth - 1), _nested(rng, depth - 1), rng.choice([2, 3, 4, 5, 7, 8, 16, 50])
    return rng.choice([
        f"min({a}, {b})", f"max({a}, {b})", f"({a} % {c})", f"({a} // {c})", f"({a} + {b})", f"({a} - {b})",
        f"({a} * {rng.choice([*sizes, '2', '3'])})", f"abs({a} - {b})", f"max({c}, {a})", f"min({a}, {c})",
    ])  # fmt: skip


def test_random_formulas_of_three_sizes() -> None:
    """Nested of limits, remainders and products: those that are told are right."""
    rng, told = generator("nested formulas of sizes"), 0
    for turn in range(16):
        text = _nested(rng, 3)
        count, factor = f"y.new_zeros(1 + abs({text}) % 97)", f"x.sum(0) * ({text}) / (1 + abs({_nested(rng, 2)}))"
        f = eval(f"lambda x, y: {count if turn % 2 else factor}")
        with contextlib.suppress(ExportError):
            told += _beside_the_program(f, (rng.choice([3, 4, 8]), rng.choice([4, 6]), rng.choice([4, 9])), rng) > 60
    assert told >= 13


BRANCHES = {
    "of a sum": lambda x, y: x * 2 if x.shape[0] + y.shape[0] > 9 else x,
    "of the greater": lambda x, y: x * 2 if max(x.shape[0], y.shape[0]) > 5 else x,
}


@pytest.mark.parametrize("name", BRANCHES)
@pytest.mark.parametrize("example", [(8, 6, 4), (4, 6, 9)])
def test_branches_on_what_is_made_of_two_sizes(name: str, example: tuple[int, int, int]) -> None:
    """Where neither size takes the other branch by itself, sizes at which both do are tried."""
    assert _beside_the_program(BRANCHES[name], example, generator("sizes beside a branch")) > 5
