"""Gradients at ties and NaN, and of writing nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Program = Callable[[Any], Any]
Run = Callable[[Program], None]
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("name", ["fmax", "fmin", "maximum", "minimum"])
def test_gradients_at_ties_and_nan(compare_program: Run, name: str) -> None:
    def program(m: Any) -> Any:
        a = m.tensor([1.0, 2, NAN, NAN, INF, 3], requires_grad=True)
        b = m.tensor([1.0, 3, 1, NAN, INF, NAN], requires_grad=True)
        y = getattr(m, name)(a, b)
        return y, m.autograd.grad(y.sum(), [a, b])

    compare_program(program)


WRITES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "index_put": lambda m, x, v: x.index_put((m.tensor([], dtype=m.int64),), v),
    "index_add": lambda m, x, v: x.index_add(0, m.tensor([], dtype=m.int64), v),
    "index_copy": lambda m, x, v: x.index_copy(0, m.tensor([], dtype=m.int64), v),
    "scatter": lambda m, x, v: x.scatter(0, m.zeros((0, 2), dtype=m.int64), v),
    "masked_scatter": lambda m, x, v: x.masked_scatter(m.zeros(4, 2, dtype=m.bool), v),
}


@pytest.mark.parametrize("name", WRITES)
def test_gradients_of_writing_nothing(compare_program: Run, name: str) -> None:
    def program(m: Any) -> Any:
        x, v = m.ones(4, 2, requires_grad=True), m.ones(0, 2, requires_grad=True)
        return m.autograd.grad(WRITES[name](m, x, v).sum(), [x, v])

    compare_program(program)
