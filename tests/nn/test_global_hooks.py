"""Hooks of all modules' registrations and of all optimizers' steps; gradients of convolutions as functions."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
from tesserack import nn, optim
from tesserack.nn.modules import module as registration
from tesserack.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def test_registrations_are_seen_and_replaced() -> None:
    seen: list[Any] = []
    handles = [
        registration.register_module_parameter_registration_hook(lambda m, name, p: seen.append(("p", name))),
        registration.register_module_buffer_registration_hook(lambda m, name, b: seen.append(("b", name))),
        registration.register_module_module_registration_hook(
            lambda m, name, child: nn.Identity() if isinstance(child, nn.ReLU) else None
        ),
    ]
    try:
        net = nn.Sequential(nn.BatchNorm1d(2), nn.ReLU())
        net.extra = nn.ReLU()
    finally:
        for handle in handles:
            handle.remove()
    assert [type(m).__name__ for m in net] == ["BatchNorm1d", "Identity", "Identity"]
    assert ("p", "weight") in seen and ("b", "running_mean") in seen
    assert isinstance(nn.Sequential(nn.ReLU())[0], nn.ReLU)


def test_forward_hooks_of_all_modules_may_see_keywords() -> None:
    class Scale(nn.Module):
        def forward(self, x: Any, by: float = 1.0) -> Any:
            return x * by

    seen: list[Any] = []
    handle = registration.register_module_forward_hook(
        lambda module, args, kwargs, output: seen.append(kwargs), with_kwargs=True
    )
    try:
        Scale()(ts.ones(1), by=3.0)
    finally:
        handle.remove()
    assert seen == [{"by": 3.0}]


@pytest.mark.parametrize("name", ["forward_pre", "forward", "backward_pre", "backward"])
def test_tables_of_all_modules_are_emptied_by_assignment(name: str) -> None:
    seen: list[Any] = []
    kind = name if "forward" in name else f"full_{name}"
    getattr(registration, f"register_module_{kind}_hook")(lambda *args: seen.append(args))
    try:
        assert len(getattr(registration, f"_global_{name}_hooks")) == 1
        nn.Identity()(ts.ones(1, requires_grad=True)).sum().backward()
        assert len(seen) == 1
    finally:
        setattr(registration, f"_global_{name}_hooks", {})
    nn.Identity()(ts.ones(1, requires_grad=True)).sum().backward()
    assert len(seen) == 1 and not getattr(registration, f"_global_{name}_hooks")


def test_steps_of_every_optimizer() -> None:
    order: list[str] = []
    w = nn.Parameter(ts.ones(1))
    w.grad = ts.ones(1)
    handles = [
        register_optimizer_step_pre_hook(lambda opt, args, kwargs: order.append("before")),
        register_optimizer_step_post_hook(lambda opt, args, kwargs: order.append("after")),
    ]
    try:
        for make in (optim.SGD, optim.Rprop):
            opt: Any = make([w], lr=0.1)
            opt.register_step_pre_hook(lambda opt, args, kwargs: order.append("own"))
            opt.step()
    finally:
        for handle in handles:
            handle.remove()
    assert order == ["before", "own", "after"] * 2


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_gradients_of_convolutions(dims: int, device: Any) -> None:
    x = ts.randn(2, 4, *[6] * dims, device=device, dtype=ts.float64).requires_grad_()
    w = ts.randn(6, 2, *[3] * dims, device=device, dtype=ts.float64).requires_grad_()
    options = {"stride": 2, "padding": 1, "groups": 2}
    y = getattr(nn.functional, f"conv{dims}d")(x, w, **options)
    g = ts.randn_like(y)
    dx, dw = ts.autograd.grad(y, (x, w), g)
    assert ts.allclose(getattr(nn.grad, f"conv{dims}d_input")(x.shape, w.detach(), g, **options), dx)
    assert ts.allclose(getattr(nn.grad, f"conv{dims}d_weight")(x.detach(), w.shape, g, **options), dw)
