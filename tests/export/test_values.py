"""Exported programs whose sizes and numbers follow from values, against the program itself on other data."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import tesserack as ts
from tesserack import _check, _check_is_size, nn
from tesserack.aten.operators import namespace
from tesserack.export import Dim, export, load, save
from tesserack.library.definitions import get_ctx
from tesserack.nn import functional as F
from tesserack.utils._pytree import tree_leaves


class Program(nn.Module):
    def __init__(self, f: Any) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: ts.Tensor) -> Any:
        return self.f(x)


def item_slice(x: Any) -> Any:
    n = (x > 0).sum().item()
    _check_is_size(n)
    _check(n <= x.numel())
    return x.flatten()[:n], x.flatten()[n:]


def parts(x: Any) -> Any:
    n = (x[0] > 0).sum().item()
    _check(n >= 0)
    _check(n <= 4)
    a, b = x.split([n, 4 - n], 1)
    return a * 2, b + 1


def largest(x: Any) -> Any:
    k = (x[0] > 0).sum().item()
    _check(k >= 0)
    _check(k < 5)
    return x.topk(k, 1).values


def as_many_as_rows(x: Any) -> Any:
    n = x.new_full((), x.shape[0]).long().item()
    _check(n == x.shape[0])
    return x + ts.ones(n, 1)


def sorted_rows(x: Any) -> Any:
    y = x[(x[:, 0] > 0).nonzero().squeeze(1)]
    order = y[:, 1].sort()[1]
    return y[order], order.numel()


def two_numbers(x: Any) -> Any:
    a, b = x.abs().sum(1).long()[:2].tolist()
    _check(a >= 0)
    _check(b >= 0)
    _check(a + 1 < 50)
    return ts.zeros(a, b)


def written_under_a_mask(x: Any) -> Any:
    y, near = x.clone(), x > 0.5
    y[near] = x[near] * 2
    y[:, 0][near[:, 0]] = 1.0
    return y


def written_in_rows(x: Any) -> Any:
    y = ts.zeros_like(x)
    for column in range(3):
        rows, _ = ts.where(x[:, column : column + 1] > 0)
        y[rows] += x[rows] * (column + 1)
    return y


def in_branches(x: Any) -> Any:
    return ts.cond(x.sum() > 0, lambda v: v * 2.0, lambda v: v + 1.0, (x.nonzero().float(),))


PROGRAMS = {
    "nonzero": lambda x: x.relu().nonzero() * 2,
    "by dims": lambda x: sum(x.relu().nonzero(as_tuple=True)),
    "where": lambda x: x[ts.where(x > 0)],
    "argwhere": lambda x: ts.argwhere(x > 0) + 1,
    "mask": lambda x: (x[x > 0].sum(), x[x > 0] * 2, x[:, x[0] > 0]),
    "masked_select": lambda x: x.masked_select(x > 0).relu(),
    "unique": lambda x: ts.unique(x.round(), return_inverse=True, return_counts=True),
    "unique rows": lambda x: ts.unique(x.round(), dim=0),
    "unique_consecutive": lambda x: ts.unique_consecutive(x.round()),
    "repeat_interleave": lambda x: ts.repeat_interleave(x, (x[0] > 0).long() + 1, dim=1),
    "bincount": lambda x: ts.bincount(x.abs().flatten().long(), minlength=2),
    "joined": lambda x: ts.cat([x.nonzero(), x.nonzero() + 1]).reshape(-1, 2, 2),
    "products": lambda x: x[x > 0].unsqueeze(0) @ x[x > 0].unsqueeze(1),
    "count": lambda x: ts.arange((x > 0).sum().item()) + 1,
    "scaled": lambda x: x * x.sum().item() - (1 - x.max().item() * 2),
    "returned": lambda x: x.sum().item(),
    "rounded": lambda x: x + math.floor(x.sum().item()) + int(x.sum().item()) - round(x.sum().item()),
    "absolute": lambda x: x + abs(x.sum().long().item()) + abs(x.sum().item()),
    "from the end": lambda x: x.flatten()[: x.sum().long().item()],
    "from there": lambda x: x.flatten()[x.abs().sum().long().item() :],
    "an index": lambda x: (x.flatten()[x.argmax().item()], x[x[:, 0].argmax().item()] + 1),
    "an index of few": lambda x: x[0, 1:][x[0, 1:].argmax().item()] * x[0][x[0].argmin().item()],
    "written under a mask": written_under_a_mask,
    "written in rows": written_in_rows,
    "padded": lambda x: F.pad(x, (0, (x > 0).sum().item())),
    "bounded": lambda x: x + min(x.sum().long().item(), 3) - max((x > 0).nonzero().shape[0], 4),
    "slices": item_slice,
    "split": parts,
    "topk": largest,
    "equal": as_many_as_rows,
    "rows": sorted_rows,
    "two numbers": two_numbers,
    "branches": in_branches,
}


def forms(program: Any) -> list[Any]:
    """The program, as it comes from a file, and both by their parts."""
    file = io.BytesIO()
    save(program, file)
    file.seek(0)
    loaded = load(file)
    return [program, loaded, program.run_decompositions({}), loaded.run_decompositions()]


@pytest.mark.parametrize("varies", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_what_data_tells(name: str, varies: bool) -> None:
    f = PROGRAMS[name]
    example = ts.randn(3, 4, generator=ts.Generator().manual_seed(1))
    exported = export(Program(f), (example,), dynamic_shapes={"x": {0: Dim("rows", min=2, max=64)}} if varies else None)
    for program in forms(exported):
        for seed in range(6):
            x = ts.randn(2 + seed if varies else 3, 4, generator=ts.Generator().manual_seed(seed))
            got, expected = tree_leaves(program.module()(x)), tree_leaves(f(x))
            assert len(got) == len(expected)
            for one, other in zip(got, expected, strict=True):
                assert ts.equal(one, other) if isinstance(other, ts.Tensor) else one == other


@pytest.mark.parametrize("varies", [False, True])
def test_conditions_are_kept(varies: bool) -> None:
    def f(x: Any) -> Any:
        found = (x > 0).nonzero()
        _check(found.shape[0] >= 3)
        n = x.sum().long().item()
        _check(3 - n < 2)
        _check(n // 9 == 1)
        return found + n

    exported = export(Program(f), (ts.ones(3, 4),), dynamic_shapes={"x": {0: Dim("rows", max=64)}} if varies else None)
    for program in forms(exported):
        assert program.module()(ts.ones(3, 4)).equal(f(ts.ones(3, 4)))
        for x, told in (
            (ts.zeros(3, 4), ">= 3"),
            (-ts.ones(3, 4).fill_diagonal_(-1), "< 2"),
            (ts.ones(3, 4) * 9, "== 1"),
        ):
            with pytest.raises(RuntimeError, match="Runtime assertion failed for expression.*" + told):
                program.module()(x)


def test_sizes_that_rules_of_operators_leave_open() -> None:
    @ts.library.custom_op("test_values::kept", mutates_args=())
    def kept(x: ts.Tensor) -> ts.Tensor:
        return x[x > 0].clone()

    @kept.register_fake
    def _(x: ts.Tensor) -> ts.Tensor:
        return x.new_empty(get_ctx().new_dynamic_size(max=x.numel()))

    exported = export(Program(lambda x: kept(x).reshape(-1, 1) * 2), (ts.ones(3, 4),))
    x = ts.randn(3, 4)
    assert exported.module()(x).equal(kept(x).reshape(-1, 1) * 2)
    with pytest.raises(RuntimeError, match="get_ctx"):
        get_ctx()

    @kept.register_fake
    def _(x: ts.Tensor) -> ts.Tensor:
        return x.new_empty(get_ctx().new_dynamic_size(min=3, max=2))

    with pytest.raises(ValueError, match="expected 0 <= min <= max, got min=3, max=2"):
        export(Program(kept), (ts.ones(3, 4),))


def test_assertions_as_operators() -> None:
    aten = namespace("aten")
    assert aten._assert_scalar.default(3 > 2, "told") is None
    with pytest.raises(RuntimeError, match="told"):
        aten._assert_scalar.default(2 > 3, "told")
    for operator in (aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default):
        assert operator(3, min=1, max=3) is None and operator(3) is None
        with pytest.raises(RuntimeError, match=r"Invalid value range for 4 between \[1, 3\]"):
            operator(4, min=1, max=3)


def test_conditions_of_several_comparisons_and_lines() -> None:
    def f(x: Any) -> Any:
        n = x.sum().long().item()
        _check(
            n > 3,
            lambda: "several lines",
        )
        _check(not n >= 20)
        _check(5 <= n <= 15 and n != 9)
        return x + n

    exported = export(Program(f), (ts.ones(3, 4),))
    assert exported.module()(ts.ones(3, 4)).equal(ts.full((3, 4), 13.0))
    for scale, told in ((0.25, "u0 > 3"), (2.0, "u0 < 20"), (0.34, "u0 >= 5"), (1.5, "u0 <= 15"), (0.75, "u0 != 9")):
        with pytest.raises(RuntimeError, match="Runtime assertion failed for expression " + told):
            exported.module()(ts.ones(3, 4) * scale)


def test_numbers_that_a_program_compares_are_tried() -> None:
    for f in (
        lambda x: x + 1 if x.sum().long().item() * 2 + 3 > 4000 else x,
        lambda x: x + 1 if x.sum().item() / 2 - 1 > 30 else x,
        lambda x: x + 1 if 7 - x.sum().long().item() == 4 else x,
        lambda x: x if (x > 0).nonzero().shape[0] != 7 else x + 1,
        lambda x: x + min(max(x.sum().long().item(), 0), 3),
    ):
        with pytest.raises(RuntimeError, match=r"other steps|could not be told"):
            export(Program(f), (ts.ones(3, 4),))
