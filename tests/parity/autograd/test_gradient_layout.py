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


@pytest.mark.filterwarnings("ignore:Using backward")
def test_a_gradient_with_a_graph_is_its_own_memory() -> None:
    """Optimizers of second order detach it in place: it is no view, nor shared with another leaf's."""

    def told(m: Any) -> list[Any]:
        p, q = m.ones(3, 2, requires_grad=True), m.ones(3, 2, requires_grad=True)
        x = m.arange(6.0).reshape(3, 2)
        (((p.T * x.T).sum(0) ** 2).sum() + (p + q).expand(4, 3, 2).sum()).backward(create_graph=True)
        found = [p.grad._base is None, q.grad._base is None, p.grad.data_ptr() != q.grad.data_ptr(), p.grad.stride()]
        (second,) = m.autograd.grad(p.grad.sum(), p)
        p.grad.detach_()
        p.grad.zero_()
        return [*found, second.tolist(), q.grad.sum().item(), p.grad.requires_grad]

    assert told(ts) == told(torch)
