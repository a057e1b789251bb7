"""Strides of .grad against torch's: those of the variable where it is dense, so that programs may view it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch

LOSSES: dict[str, Callable[[Any, Any], Any]] = {
    "by a transposed weight": lambda m, w: (m.ones(3, 5) @ w.t()).sum(),
    "transposed": lambda m, w: (w.t() @ m.ones(4, 3)).sum(),
    "expanded": lambda m, w: w.sum(),
    "einsum": lambda m, w: m.einsum("oi,bi->bo", w, m.ones(3, 5)).sum(),
    "permuted": lambda m, w: (w.permute(1, 0).contiguous() ** 2).sum(),
}


@pytest.mark.parametrize("variable", ["contiguous", "transposed"])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_gradient_has_its_variables_strides(loss: str, variable: str) -> None:
    def grad(m: Any) -> Any:
        w = (m.ones(5, 4).t() if variable == "transposed" else m.ones(4, 5)).detach().requires_grad_()
        for _ in range(2):
            LOSSES[loss](m, w).backward()
        return w.grad

    ours, theirs = grad(ts), grad(torch)
    assert ours.stride() == theirs.stride()
    assert ours.tolist() == theirs.tolist()
