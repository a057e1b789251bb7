"""Tangents go on under no_grad, gradients do not: programs for both libraries."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

importlib.import_module("torch.autograd.forward_ad")
pytestmark = pytest.mark.filterwarnings("ignore:.*jit.script:DeprecationWarning")  # PyTorch's own, of its forward mode


def held(m: Any) -> Callable[[Any], Any]:
    def function(x: Any) -> Any:
        with m.no_grad():
            y = x * 2
            y = m.no_grad()(m.sin)(y)
        return x * y

    return function


def products(m: Any) -> Any:
    x, v = m.tensor([1.0, 2.0]), m.tensor([1.0, 3.0])
    found = [m.func.jvp(held(m), (x,), (v,)), m.func.jacfwd(held(m))(x)]
    with m.no_grad():
        found.append(m.func.jvp(held(m), (x,), (v,)))
    return [*found, m.func.grad(lambda x: held(m)(x).sum())(x), m.func.jacrev(held(m))(x)]


def switched_off(m: Any) -> Any:
    x, v = m.tensor([1.0, 2.0]), m.tensor([1.0, 3.0])

    def function(x: Any) -> Any:
        before = m.is_grad_enabled()
        m.set_grad_enabled(False)
        y, inside = x.exp(), m.is_grad_enabled()
        m.set_grad_enabled(before)
        assert (before, inside) == (True, False)
        return x * y

    return [m.func.jvp(function, (x,), (v,)), m.is_grad_enabled()]


def duals(m: Any) -> Any:
    ad, x, v = m.autograd.forward_ad, m.tensor([1.0, 2.0]), m.tensor([1.0, 3.0])
    with m.no_grad(), ad.dual_level():
        outer = [ad.unpack_dual(held(m)(ad.make_dual(x, v))).tangent, m.is_grad_enabled()]
    with ad.dual_level():
        dual = ad.make_dual(x, v)
        with m.no_grad():
            y, inside = dual.sin(), m.is_grad_enabled()
        inner = [ad.unpack_dual(y).tangent, inside, m.is_grad_enabled()]
    with m.no_grad():
        after = (m.ones(2, requires_grad=True) * 2).requires_grad
    return outer, inner, after, (m.ones(2, requires_grad=True) * 2).requires_grad


def custom_functions(m: Any) -> Any:
    class Tripled(m.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * x

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            return tangent * 3

    ad = m.autograd.forward_ad
    with m.no_grad(), ad.dual_level():
        return ad.unpack_dual(Tripled.apply(ad.make_dual(m.ones(2), m.ones(2)))).tangent


def steps_of_optimizers(m: Any) -> Any:
    w = m.nn.Parameter(m.ones(4))
    w.grad = m.ones(4)
    steps = [m.optim.SGD([w], 0.1, momentum=0.9), m.optim.Adam([w], 0.1), m.optim.SGD([w], 0.1, foreach=True)]
    ad = m.autograd.forward_ad
    with ad.dual_level():
        dual = ad.make_dual(m.ones(4), m.ones(4))
        for optimizer in steps:
            optimizer.step()
        with m.no_grad():
            w.add_(1)
            w[0] = 3
            w[1:].mul_(2)
            w.clamp_(max=5).lerp_(m.zeros(4), 0.25)
            w[m.tensor([2])] += 1
            m.nn.init.ones_(w[3:])
        tangent = ad.unpack_dual(dual * w).tangent
        with m.inference_mode():
            made = (w * 2).requires_grad
    return [w.detach(), w.requires_grad, w.is_leaf, tangent.detach(), made]


def gradients_of_tangents(m: Any) -> Any:
    """What no_grad keeps out of a recorded computation stays out of it."""
    ad, x = m.autograd.forward_ad, m.tensor([1.0, 2.0], requires_grad=True)
    with ad.dual_level():
        primal = ad.unpack_dual(held(m)(ad.make_dual(x, m.ones(2)))).primal
        return m.autograd.grad(primal.sum(), x)


def recorded(m: Any) -> Any:
    """Tangents go through it all the same, as constants for the gradients."""
    ad = m.autograd.forward_ad
    x, v, w = (m.tensor([a, 2.0 * a], requires_grad=True) for a in (1.0, 3.0, 0.5))
    with ad.dual_level():
        dual = ad.make_dual(x, v)
        with m.no_grad():
            y = dual.sin() * w
            written = (dual * 2).mul_(3)
            part = y[1:] + written.view(2, 1)[1]
        found = [ad.unpack_dual(t) for t in (y, written, part)]
        seen = [t.requires_grad for pair in found for t in pair]
        values, tangents = ad.unpack_dual(y * dual + w)
        gradients = m.autograd.grad(values.sum(), (x, w), retain_graph=True)
        seconds = m.autograd.grad((tangents * tangents).sum(), (x, v, w), allow_unused=True)
    return [*(t.detach() for pair in found for t in pair), seen, values.detach(), tangents.detach(), gradients, seconds]


def recorded_in_place(m: Any) -> Any:
    """What is written under it to something recorded leaves the gradients as they are."""
    ad, x = m.autograd.forward_ad, m.tensor([1.0, 2.0], requires_grad=True)
    with ad.dual_level():
        y = ad.make_dual(x, m.ones(2)) * 3
        with m.no_grad():
            room = m.zeros(2)
            room.add_(y)
            room[1:] = y[:1] * 5
        tangent = ad.unpack_dual(room).tangent.detach()
        return tangent, *m.autograd.grad(y.sum(), x)


def within_each_other(m: Any) -> Any:
    """Tangents of gradients and gradients of tangents, taken under it too."""
    jvp, grad = m.func.jvp, m.func.grad
    x, v, u = m.tensor([1.0, 2.0]), m.tensor([1.0, 3.0]), m.tensor([0.5, 1.0])

    def total(x: Any) -> Any:
        return held(m)(x * x).sum()

    def pushed(x: Any) -> Any:
        with m.no_grad():
            return jvp(held(m), (x * x,), (v,))[1]

    def pulled(x: Any) -> Any:
        with m.no_grad():
            return grad(total)(x) * x

    def level(x: Any) -> Any:
        ad = m.autograd.forward_ad
        with ad.dual_level():
            return ad.unpack_dual(held(m)(ad.make_dual(x * x, v))).tangent

    found = [jvp(grad(total), (x,), (v,)), grad(lambda x: jvp(held(m), (x * x,), (v,))[1].sum())(x)]
    for function in (pushed, pulled):
        found += [jvp(function, (x,), (u,)), function(x), grad(lambda x, f=function: (f(x) * x).sum())(x)]
    return [*found, level(x), grad(lambda x: level(x).sum())(x), m.func.jacfwd(m.func.jacrev(total))(x)]


PROGRAMS = [
    products, switched_off, duals, custom_functions, steps_of_optimizers, gradients_of_tangents, recorded,
    recorded_in_place, within_each_other,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_tangents_under_no_grad(compare_program: Callable[..., None], program: Callable[[Any], Any]) -> None:
    compare_program(program)
