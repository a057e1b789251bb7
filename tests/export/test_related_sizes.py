"""Sizes without a name vary by themselves, or with those that the program ties them to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.export import Dim, ExportError, export

A, D = Dim.AUTO, Dim.DYNAMIC
named = Dim("named")
r = ts.randn


class Program(nn.Module):
    def __init__(self, f: Callable[..., Any]) -> None:
        super().__init__()
        self.f = f

    def forward(self, *args: Any) -> Any:
        return self.f(*args)


def cached(x: Any, kept: Any) -> Any:
    return [(ts.cat([k, x], 1), ts.cat([v, x], 1)) for k, v in kept]


def kept(batch: int, length: int) -> list[tuple[Any, Any]]:
    return [(r(batch, length, 2), r(batch, length, 2)) for _ in range(6)]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], Any, tuple[Any, ...]]] = {
    "add": (lambda x, y: x + y, (r(4, 5), r(4, 5)), ((A, A), (A, A)), (r(6, 7), r(6, 7))),
    "square": (lambda x, y: x + y, (r(4, 4), r(4, 4)), ((A, A), (A, A)), (r(6, 7), r(6, 7))),
    "square, dynamic": (lambda x, y: x + y, (r(4, 4), r(4, 4)), ((D, D), (D, D)), (r(6, 7), r(6, 7))),
    "three": (lambda x, y, z: x + y * z, (r(4, 4),) * 3, ((A, A), (A, A), (A, A)), (r(5, 6),) * 3),
    "square product": (lambda x, y: x @ y, (r(4, 4), r(4, 4)), ((A, A), (A, A)), (r(6, 7), r(7, 3))),
    "apart": (lambda x, y: x[1:] + y, (r(6), r(5)), ((A,), (A,)), (r(9), r(8))),
    "apart, dynamic": (lambda x, y: x[1:] + y, (r(6), r(5)), ((D,), (D,)), (r(9), r(8))),
    "multiple": (lambda x, y: x.reshape(-1) + y, (r(4, 3), r(12)), ((A, None), (A,)), (r(5, 3), r(15))),
    "with a name": (lambda x, y: x + y, (r(4, 5), r(4, 5)), ((named, A), (A, A)), (r(6, 7), r(6, 7))),
    "independent": (lambda x, y: x.sum(0) * y.sum(), (r(4, 4), r(4)), ((A, A), (A,)), (r(2, 3), r(7))),
    "one stays": (lambda x, y: x + y, (r(4, 5), r(5)), ((A, A), (A,)), (r(7, 6), r(6))),
    "cache": (cached, (r(4, 1, 2), kept(4, 6)), ({0: A, 1: A}, [({0: A, 1: A},) * 2] * 6), (r(2, 1, 2), kept(2, 9))),
}


@pytest.mark.parametrize("name", CASES)
def test_other_sizes(name: str) -> None:
    f, args, shapes, others = CASES[name]
    program = export(Program(f), args, dynamic_shapes=(shapes,))
    for given in (args, others):
        found, expected = program.module()(*given), f(*given)
        for a, b in zip(*(map(ts.utils._pytree.tree_leaves, (found, expected))), strict=True):
            assert ts.equal(a, b)


def test_sizes_that_are_tied_are_checked() -> None:
    program = export(Program(lambda x, y: x[1:] + y), (r(6), r(5)), dynamic_shapes=(((A,), (A,)),))
    with pytest.raises(RuntimeError, match="expected one size"):
        program.module()(r(9), r(9))


def test_names_are_not_tied() -> None:
    with pytest.raises(ExportError, match="Constraints violated"):
        export(Program(lambda x, y: x + y), (r(4), r(4)), dynamic_shapes=(((Dim("a"),), (Dim("b"),)),))
