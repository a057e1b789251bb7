"""An optimizer's rule, stated once: its fused step is its step by single operators, and texts that are no rules are
refused."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
from tesserack import ops, optim
from tesserack.optim._rules import Rule

RULED: list[tuple[str, dict[str, Any]]] = [
    ("ASGD", {"t0": 2, "lambd": 0.1}),
    ("Adadelta", {"weight_decay": 0.1}),
    ("Adagrad", {"lr_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"amsgrad": True, "weight_decay": 0.1, "maximize": True}),
    ("AdamW", {"betas": (0.5, 0.9)}),
    ("Adamax", {"maximize": True}),
    ("NAdam", {"weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"betas": (0.5, 0.9)}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("RMSprop", {"momentum": 0.5, "weight_decay": 0.1}),
    ("Rprop", {"etas": (0.4, 1.3)}),
    ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
]


@pytest.mark.parametrize(("name", "options"), RULED)
def test_the_fused_step_is_the_step_by_operators(name: str, options: dict[str, Any], device: str) -> None:
    made = []
    for differentiable in (False, True):
        ts.manual_seed(3)
        w = ts.randn(4, 3, dtype=ts.float64).to(device).requires_grad_()
        w = w.clone() if differentiable else w
        opt = getattr(optim, name)([w], **options, differentiable=differentiable)
        for step in range(7):
            w.grad = (w.detach() * (step + 1)).cos()
            opt.step()
        made.append((w.detach(), opt.state[w]))
    (fused, state), (plain, other) = made
    ts.testing.assert_close(fused, plain, rtol=1e-11, atol=1e-12)
    for key, value in state.items():
        if isinstance(value, ts.Tensor):
            ts.testing.assert_close(value, other[key].detach(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["ASGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD"]
)
def test_no_decay_leaves_infinite_parameters(name: str, device: str) -> None:
    """As in PyTorch, which adds nothing where ``weight_decay`` is 0."""
    w = ts.tensor([float("inf"), 1.0], device=device).requires_grad_()
    w.grad = ts.ones(2, device=device)
    opt = getattr(optim, name)([w], weight_decay=0.0)
    opt.step()
    assert w[0].item() == float("inf") and w[1].item() < 1


def test_a_rule_reads_the_newest_values() -> None:
    rule = Rule("m", "rate", "m = m + grad; param = param - rate * m")
    param, grad, m = ts.ones(2), ts.full((2,), 2.0), ts.ones(2)
    rule.step(param, grad, {"m": m}, (0.5,))
    assert param.tolist() == [-0.5, -0.5] and m.tolist() == [3.0, 3.0]
    ops._optimizer_step_(rule.text, [param], [grad], [m], [], [], 0.5)
    assert param.tolist() == [-3.0, -3.0] and m.tolist() == [5.0, 5.0]


@pytest.mark.parametrize(
    "text",
    [
        "rmsprop",
        "param,m,rate:param;m",
        "param grad,m,rate:param_=param - rate * grad;param_",
        "param grad,a b c d,rate:param;a;b;c;d",
        "param grad,m,rate:param - rate * other;m",
        "param grad,m,rate:" + "(" * 5000,
        "",
    ],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    w, m = ts.ones(2), ts.ones(2)
    with pytest.raises(ValueError, match=r"_optimizer_step_|expression"):
        ops._optimizer_step_(text, [w], [w.clone()], [m], [], [])
