"""Control flow beside PyTorch's: values and gradients; torch compiles each of them first, so there are few."""

from __future__ import annotations

import operator

import numpy as np
import pytest
import tesserack as ts
import tesserack._higher_order_ops as ours
import torch
import torch._higher_order_ops as theirs

pytestmark = pytest.mark.filterwarnings("ignore")
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((4, 3)), RNG.standard_normal((4, 3))

CASES = {
    "cond": lambda h, m, a, b: h.cond(
        a.sum() > b.sum(), lambda a, b: (a * b, a.sin()), lambda a, b: (a - b, b.cos()), (a, b)
    ),
    "unread operand": lambda h, m, a, b: h.cond(a.sum() < 1e9, lambda a, b: a * 2, lambda a, b: b * 3, (a, b)),
    "while_loop": lambda h, m, a, b: h.while_loop(
        lambda n, x: n < 3, lambda n, x: (n + 1, x * 2), (m.tensor(0), a)
    )[1] + b,
    "scan": lambda h, m, a, b: h.scan(lambda c, x: (c + x[0], c * x[1]), b[0].clone(), (a, b)),
    "scan turned": lambda h, m, a, b: h.scan(lambda c, x: (c + x, c * x), b[:, 0].clone(), a, dim=1, reverse=True),
    "map": lambda h, m, a, b: h.map(lambda x, y: (x * y).sum(0), a, b),
    "products": lambda h, m, a, b: h.associative_scan(
        lambda x, y: x @ y, a[:, :, None] * b[:, None, :], 0, combine_mode="generic"
    ),
    "sums": lambda h, m, a, b: h.associative_scan(operator.add, a * b, 1, reverse=True, combine_mode="generic"),
}  # fmt: skip


def leaves(found):
    return [x for part in found for x in leaves(part)] if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name):
    results = []
    for h, m in ((ours, ts), (theirs, torch)):
        given = [m.tensor(x, requires_grad=True) for x in (A, B)]
        found = leaves(CASES[name](h, m, *given))
        grads = m.autograd.grad(sum((x * x).sum() for x in found), given, allow_unused=True)
        results.append([None if x is None else x.detach().numpy() for x in (*found, *grads)])
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_names_under_the_hook():
    with ts.compat.enable(scope=__name__):
        import torch as shown
        from torch._higher_order_ops.cond import cond_op
        from torch._higher_order_ops.map import map as mapped
        from torch._ops import HigherOrderOperator

        assert shown.ops.higher_order.cond is cond_op and isinstance(cond_op, HigherOrderOperator)
        found = mapped(lambda x: x + 1, shown.ones(2))
        assert isinstance(found, ts.Tensor) and shown._higher_order_ops.scan.__doc__ == ours.scan.__doc__
        assert shown.cond.__doc__ == ts.cond.__doc__ and shown.while_loop.__doc__ == ts.while_loop.__doc__
    mine = {name: str(getattr(ts.ops.higher_order, name)) for name in ("cond", "scan", "map_impl", "while_loop")}
    assert mine == {name: str(getattr(torch.ops.higher_order, name)) for name in mine}
