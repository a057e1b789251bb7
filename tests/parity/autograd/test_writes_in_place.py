"""Corners of in-place autograd that random programs found, on both libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
import torch


def leaf(module: Any) -> Any:
    return module.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=module.float64, requires_grad=True)


def write_through_detached(module: Any) -> Any:
    """A detached alias takes the gradient of what is written to it, even if that is the same memory."""
    x = leaf(module) * 1
    alias = x.detach()
    alias[0] = x[0]
    return [alias.requires_grad, alias.is_leaf]


def view_of_detached_base(module: Any) -> Any:
    """A view of a base that was written to and then detached in place has no way back to the leaf."""
    x = leaf(module)
    base = x * 2
    view = base[0]
    base.mul_(x.detach())
    base.detach_()
    view.sum().backward()
    return None if x.grad is None else x.grad.tolist()


def clamp_twice(module: Any) -> Any:
    """Writes in place by operators made of others."""
    x = leaf(module)
    y = x * 1
    y.clamp_(1.5, 3.5).pow_(2)
    y[0].clamp_(max=3)
    y.sum().backward()
    return x.grad.tolist()


def view_of_view(module: Any) -> Any:
    """Writes to a view of a view reach the base and the other views."""
    x = leaf(module)
    y = x * 1
    row, column = y[0], y[:, 1]
    row[1:].mul_(column[1])
    column.sin_()
    (y * 3 + row).sum().backward()
    return x.grad.tolist()


def no_grad_view(module: Any) -> Any:
    """Writes under no_grad bump versions but record nothing."""
    x = leaf(module)
    y = x * 1
    with module.no_grad():
        y[0].mul_(5)
    (y * y.detach()).sum().backward()
    return x.grad.tolist()


def double_backward_through_write(module: Any) -> Any:
    """A second derivative through an in-place product."""
    x = leaf(module)
    y = x * 1
    y[0].mul_(x[1])
    (grad,) = module.autograd.grad(y.pow(2).sum(), x, create_graph=True)
    (second,) = module.autograd.grad(grad.sum(), x)
    return second.tolist()


def base_requires_grad_later(module: Any) -> Any:
    """A view made before its base required gradients has a way to it once a write renews its history."""
    base = module.ones(2, 2, dtype=module.float64)
    view = base[0]
    base.requires_grad_()
    base.detach().mul_(2)
    (view * 3).sum().backward()
    return [view.requires_grad, view.is_leaf, None if base.grad is None else base.grad.tolist()]


def strided_beyond_its_view(module: Any) -> Any:
    """as_strided of a view reaches what the view does not show, and so does a write through it."""
    x = leaf(module)
    y = x * 1
    y[0].as_strided((3,), (1,)).mul_(2)
    (y * x.detach()).sum().backward()
    return x.grad.tolist()


def composite_beyond_its_view(module: Any) -> Any:
    """The same for a write whose operator is made of others, through a view that skips elements."""
    x = leaf(module)
    y = x * 1
    y.diagonal().as_strided((2,), (1,)).cumsum_(0)
    (y * x.detach()).sum().backward()
    return x.grad.tolist()


def detached_copies(module: Any) -> Any:
    """What had to be copied is no view: it may be detached in place."""
    x = leaf(module)
    flat = x.t().reshape(-1).repeat(2).roll(1)
    flat.detach_()
    return [flat.requires_grad, flat._is_view(), x.t().reshape(-1)._is_view(), x.reshape(-1)._is_view()]


def detached_after_saving(module: Any) -> Any:
    """What a product saved has lost the history that its second derivative needs."""
    x = leaf(module)
    y = x * 1
    z = y * y
    y.detach_()
    z.sum().backward()
    return x.grad.tolist()


def view_of_nothing(module: Any) -> Any:
    """A view without elements may begin past its base, which has none either."""
    x = module.zeros(0, 4, dtype=module.float64, requires_grad=True)
    y = x * 1
    view = y[..., 1:]
    y.sign_()
    view.sum().backward()
    return [list(view.shape), list(x.grad.shape)]


def layouts_of_gradients(module: Any) -> Any:
    """A leaf that is dense has a gradient of its strides, whatever arrives first; else it is contiguous."""
    x = leaf(module)
    (x.t() * module.ones(2, 2)).sum().backward()
    turned = module.ones(3, 2).t().requires_grad_()
    (turned * 2).sum().backward()
    expanded = module.ones(1).expand(3).requires_grad_()
    (expanded * 2).sum().backward()
    thin = module.ones(4, 1).t().requires_grad_()
    (thin * 2).sum().backward()
    return [list(t.grad.stride()) for t in (x, turned, expanded)], thin.grad.view(-1).tolist(), x.grad.view(-1).tolist()


def parts_not_needed(module: Any) -> Any:
    """A node names what its formula reads, and has None where nobody asks for that gradient."""
    x, w = leaf(module), leaf(module).detach()
    node = (x * w).grad_fn
    return node._saved_self is None, node._saved_other.tolist(), (x / w).grad_fn._saved_other.tolist()


CASES: list[Callable[[Any], Any]] = [
    layouts_of_gradients, parts_not_needed,
    write_through_detached, view_of_detached_base, clamp_twice, view_of_view, no_grad_view,
    double_backward_through_write, base_requires_grad_later, strided_beyond_its_view,
    detached_after_saving, composite_beyond_its_view, detached_copies,
    view_of_nothing,
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_edge(case: Callable[[Any], Any]) -> None:
    """Both libraries say the same, errors included."""

    def outcome(module: Any) -> Any:
        try:
            return case(module)
        except RuntimeError:
            return "refused"

    assert outcome(ts) == outcome(torch)
