"""What packages written for PyTorch rely on, found by their own suites, as one program for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def sizes_that_are_tensors(m: Any) -> Any:
    one, two, x = m.tensor([2]), m.tensor([[3]]), m.arange(6.0)
    made = [m.zeros(one), m.ones(one, 3), m.ones(m.tensor(2), two, 1), m.full((2, one), 1.0), m.eye(one)]
    made += [x.view(one, 3), x.reshape((3, one)), x.view(2, 3).repeat(one, 1), x.new_zeros(2, one), x.topk(one)[0]]
    made += [
        m.zeros(1, 3).expand(one, two),
        x.view(2, 3).sum((0, m.tensor([1]))),
        x.split(one)[0],
        x[None].sum(one - 1),
    ]
    made += [m.nn.functional.pad(x, (0, one)), m.randint(5, (one, 3)) * 0, m.nn.Linear(one, two).weight * 0]
    return made


def transforms_without_gradients(m: Any) -> Any:
    layer = m.nn.Linear(2, 2)
    point, direction = layer.weight, m.ones(2, 2)
    f = m.tanh

    def pulled() -> Any:
        return m.func.vjp(f, point)[1](direction)[0]

    def derived() -> list[Any]:
        forward = m.func.jvp(f, (point,), (direction,))
        once, both = m.func.grad(lambda w: f(w).sum())(point), m.func.linearize(f, point)[1](direction)
        return [*forward, once, m.func.jacrev(f)(point), m.func.jacfwd(f)(point), pulled(), both]

    with m.no_grad():
        without = [t.requires_grad for t in derived()]
        _, later = m.func.vjp(f, point)
    inner = m.func.grad(lambda w: f(w).sum() + m.no_grad()(m.func.grad(lambda v: (v**3).sum()))(w).sum())
    inner_value = inner(m.ones(2, 2))
    return [without, [t.requires_grad for t in derived()], later(direction)[0].requires_grad, inner_value]


def members_that_getattr_answers(m: Any) -> Any:
    class Halves(m.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = m.nn.Parameter(m.ones(3))
            self.register_buffer("seen", m.full((2,), 4.0))
            self.inner = m.nn.Identity()
            self.plain = 5

        def __getattr__(self, name: str) -> Any:
            value = super().__getattr__(name)
            return value / 2 if m.is_tensor(value) else value

    net = Halves()
    net.seen = m.full((2,), 8.0)
    net.plain = 6
    before = [net.weight, net.seen, net.plain, sorted(net.state_dict()), net.state_dict()["seen"]]
    net.weight = None
    try:
        net.inner = 3
    except TypeError:
        before.append("refused")
    del net.inner
    return [*before, net.weight is None, hasattr(net, "inner"), [k for k, _ in net.named_parameters()]]


def an_optimizer_without_defaults(m: Any) -> Any:
    class Nothing(m.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__([m.zeros(1)], [])

        def add_param_group(self, param_group: Any) -> None:
            self.given = param_group

    made = Nothing()
    return [made.defaults, made.param_groups, len(made.given["params"])]


def draws_into_other_dtypes(m: Any) -> Any:
    outs = [m.empty(3, dtype=dtype) for dtype in (m.bool, m.int64, m.uint8, m.float64)]
    return [m.bernoulli(m.ones(3), out=out) for out in outs] + outs


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        sizes_that_are_tensors,
        transforms_without_gradients,
        members_that_getattr_answers,
        an_optimizer_without_defaults,
        draws_into_other_dtypes,
    ],
)
def test_pieces(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
