"""Optimizers written as packages for PyTorch write theirs, with either library: the parameters after every step."""

from __future__ import annotations

import math
from typing import Any

import pytest
import tesserack
import torch


def written(lib: Any) -> dict[str, Any]:
    """``.data``, lists at once, closures run twice, bases that are wrapped, matrices made orthogonal, curvature."""
    optimizer = lib.optim.Optimizer

    class Old(optimizer):  # through .data, with the state made at the first step
        def __init__(self, params: Any, lr: float = 0.02) -> None:
            super().__init__(params, {"lr": lr, "betas": (0.9, 0.99)})

        def step(self, closure: Any = None) -> Any:
            loss = closure() if closure is not None else None
            for group in self.param_groups:
                b1, b2 = group["betas"]
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state.update(step=0, m=lib.zeros_like(p.data), v=lib.zeros_like(p.data))
                    state["step"] += 1
                    grad = p.grad.data
                    state["m"].mul_(b1).add_(grad, alpha=1 - b1)
                    state["v"].mul_(b2).addcmul_(grad, grad, value=1 - b2)
                    rate = group["lr"] * math.sqrt(1 - b2 ** state["step"]) / (1 - b1 ** state["step"])
                    p.data.addcdiv_(state["m"], state["v"].sqrt().add_(1e-8), value=-rate)
            return loss

    class Lists(optimizer):
        def __init__(self, params: Any, lr: float = 0.02) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:
            with lib.no_grad():
                for group in self.param_groups:
                    params = [p for p in group["params"] if p.grad is not None]
                    grads = [p.grad for p in params]
                    m = [self.state[p].setdefault("m", lib.zeros_like(p)) for p in params]
                    lib._foreach_lerp_(m, grads, weight=0.1)
                    signs = lib._foreach_sign(m)
                    norms = lib._foreach_norm(grads)
                    lib._foreach_mul_(signs, [n.clamp(max=1) for n in norms])
                    lib._foreach_mul_(params, 1 - group["lr"] * 0.1)
                    lib._foreach_add_(params, signs, alpha=-group["lr"])

    class Sharp(optimizer):  # climbs, asks the closure once more, and steps from where it was
        def __init__(self, params: Any, base: Any = lib.optim.SGD) -> None:
            super().__init__(params, {"rho": 0.05})
            self.base = base(self.param_groups, lr=0.05, momentum=0.9)
            self.param_groups = self.base.param_groups

        def step(self, closure: Any) -> None:
            params = [p for group in self.param_groups for p in group["params"]]
            with lib.no_grad():
                norm = lib.norm(lib.stack([p.grad.norm(2) for p in params]), 2)
                for p in params:
                    self.state[p]["old"] = p.data.clone()
                    p.add_(p.grad * (0.05 / (norm + 1e-12)))
            with lib.enable_grad():
                closure()
            for p in params:
                p.data = self.state[p]["old"]
            self.base.step()

    class Orthogonal(optimizer):  # momentum made orthogonal by a polynomial
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.02})

        @lib.no_grad()
        def step(self, closure: Any = None) -> None:
            for p in self.param_groups[0]["params"]:
                m = self.state[p].setdefault("m", lib.zeros_like(p)).lerp_(p.grad, 0.1)
                x = m.reshape(len(m), -1) / (m.norm() + 1e-7)
                for _ in range(5):
                    a = x @ x.mT
                    x = 3.4445 * x + lib.addmm(a, a, a, beta=-4.775, alpha=2.0315) @ x
                p.add_(x.view_as(p), alpha=-0.02)

    class Curved(optimizer):  # the Hessian's diagonal by a product with signs that are given
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": 0.05})

        def step(self, closure: Any = None) -> None:
            params = self.param_groups[0]["params"]
            signs = [lib.ones_like(p).reshape(-1).cumsum(0).remainder(2).mul(2).sub(1).view_as(p) for p in params]
            found = lib.autograd.grad([p.grad for p in params], params, grad_outputs=signs, retain_graph=False)
            for p, sign, product in zip(params, signs, found, strict=True):
                h = self.state[p].setdefault("h", lib.zeros_like(p.data))
                h.mul_(0.9).addcmul_(product * sign, product * sign, value=0.1)
                p.data.addcdiv_(p.grad.detach(), h.sqrt() + 1, value=-0.05)

    return {c.__name__: c for c in (Old, Lists, Sharp, Orthogonal, Curved)}


def trajectory(lib: Any, name: str, problem: str, steps: int = 30) -> list[list[float]]:
    double = lib.float64
    if problem == "valley":
        x = lib.nn.Parameter(lib.tensor([-1.2, 1.0, 0.5, 1.5], dtype=double))
        params = [x]

        def loss() -> Any:
            return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum() * 0.01

    else:
        model = lib.nn.Sequential(lib.nn.Linear(6, 8), lib.nn.Tanh(), lib.nn.Linear(8, 3)).to(double)
        params = list(model.parameters())
        with lib.no_grad():
            for p in params:
                p.copy_(lib.linspace(0, 5 * p.numel(), p.numel(), dtype=double).sin().mul(0.4).view_as(p))
        data = lib.linspace(0, 90, 16 * 6, dtype=double).cos().view(16, 6)
        target = lib.arange(16) % 3

        def loss() -> Any:
            return lib.nn.functional.cross_entropy(model(data), target)

    chosen = written(lib)[name](params)

    def closure() -> Any:
        chosen.zero_grad()
        value = loss()
        value.backward(create_graph=name == "Curved")
        return value

    seen = []
    for step in range(steps):
        closure()
        chosen.step(closure) if name == "Sharp" else chosen.step()
        if step == 10:
            chosen.load_state_dict(chosen.state_dict())
        seen.append([v for p in params for v in p.detach().reshape(-1).tolist()])
    return seen


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("problem", ["valley", "classes"])
@pytest.mark.parametrize("name", ["Old", "Lists", "Sharp", "Orthogonal", "Curved"])
def test_trajectories(name: str, problem: str) -> None:
    ours, theirs = trajectory(tesserack, name, problem), trajectory(torch, name, problem)
    for step, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-10), f"step {step}"
