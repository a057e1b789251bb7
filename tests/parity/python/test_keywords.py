"""What arguments are called.

Each is one program for both libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def keywords(m: Any) -> Any:
    x = m.arange(6.0).reshape(2, 3)
    parts = [*m.split(tensor=x, split_size_or_sections=2, dim=1), *m.split(x, split_size_or_sections=[1, 2], dim=1)]
    return [*parts, m.swapaxes(x, axis0=0, axis1=1)]


def functions_called_by_keyword(m: Any) -> Any:
    class Scaled(m.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, by: float = 2.0) -> Any:
            ctx.by = by
            return x * by

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.by, None

    x = m.ones(2, requires_grad=True)
    Scaled.apply(x=x, by=3.0).sum().backward()
    return [x.grad, Scaled.apply(x)]


PROGRAMS = [keywords, functions_called_by_keyword]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
