"""Transforms of functions within compiled ones, as parts of one graph, and `.data` of tensors there."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack import nn
from tesserack.autograd import functional
from tesserack.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap

NET = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
W = ts.randn(4)
CALLS = 3


def wave(x: ts.Tensor) -> ts.Tensor:
    return (x * W).sin().sum()


def descent(x: ts.Tensor) -> dict[str, ts.Tensor]:
    params = dict(NET.named_parameters())
    found = grad(lambda p, x: functional_call(NET, p, (x,)).square().mean())(params, x)
    return {name: param - 0.1 * found[name] for name, param in params.items()}


def both(x: ts.Tensor) -> ts.Tensor:
    gradient, value = grad_and_value(lambda y: (y * y).sum())(x)
    return gradient + value


def pulled(x: ts.Tensor) -> ts.Tensor:
    value, pull = vjp(lambda y: (y * W).sin(), x)
    return value * pull(value)[0] + pull(ts.ones_like(value))[0]


def leaf_of_its_own(x: ts.Tensor) -> ts.Tensor:
    y = x.detach().clone().requires_grad_()
    z = x.detach() * 2
    z.requires_grad = True
    return ts.autograd.grad((y**3 * z.sin()).sum(), y)[0] * 2


PROGRAMS: dict[str, Callable[[ts.Tensor], Any]] = {
    "grad": lambda x: grad(wave)(x) * 2,
    "grad of grad": lambda x: grad(grad(lambda t: t**3))(x.sum()),
    "grad by parameters": descent,
    "grad_and_value": both,
    "jacrev": lambda x: jacrev(lambda y: NET(y))(x).sum(-1) + 1,
    "jacfwd": lambda x: jacfwd(wave)(x) + x,
    "hessian": lambda x: hessian(lambda y: NET(y).square().sum())(x),
    "jvp": lambda x: jvp(NET, (x,), (ts.ones_like(x),))[1] * 2,
    "vjp": pulled,
    "a leaf of its own": leaf_of_its_own,
    "jvp of an operator": lambda x: jvp(ts.sin, (x,), (ts.ones_like(x),))[1] * 2,
    "cond": lambda x: ts.cond(x.sum() > 0, lambda y: y.sin() * x, lambda y: y.cos() * W, (x * 2,)) + 1,
    "while_loop": lambda x: ts.while_loop(lambda y: y.abs().sum() < 50, lambda y: (y * 2,), (x,))[0] + 1,
    "vmap of grad": lambda x: vmap(grad(wave))(ts.stack([x, x * 2])),
    "functional.jacobian": lambda x: functional.jacobian(NET, x, create_graph=True) + 1,
    "functional.hvp": lambda x: functional.hvp(wave, x, W, create_graph=True)[1] + 1,
}


def run(program: Callable[[ts.Tensor], Any], x: ts.Tensor) -> Any:
    """Results, which of them are recorded, and their gradients."""
    results = ts.utils._pytree.tree_leaves(program(x))
    recorded = [t for t in results if t.requires_grad]
    by = [*NET.parameters(), x]
    grads: Any = ()
    if recorded:
        total = sum(t.square().sum() for t in recorded)
        grads = ts.autograd.grad(total, [t for t in by if t.requires_grad], allow_unused=True)
    return (
        [t.tolist() for t in results],
        [t.requires_grad for t in results],
        [g if g is None else g.tolist() for g in grads],
    )


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms_are_part_of_a_graph(name: str, requires_grad: bool) -> None:
    compiled = ts.compile(PROGRAMS[name], fullgraph=True)
    for _ in range(CALLS):
        x = ts.randn(4, requires_grad=requires_grad)
        assert run(compiled, x) == run(PROGRAMS[name], x)


def test_what_a_transformed_function_closes_over_has_to_be_an_argument() -> None:
    def program(x: ts.Tensor) -> ts.Tensor:
        scale = x.sum()
        return grad(lambda y: (y * scale).sum())(x)

    compiled = ts.compile(program)
    for x in (ts.ones(3), ts.full((3,), 2.0), ts.full((3,), 5.0)):
        for _ in range(CALLS):
            assert compiled(x).equal(program(x))


def test_averages_by_data_are_part_of_a_step() -> None:
    """Writes to `.data` are no new version: what was saved before stays good, in the graph as in Python."""
    x, target = ts.randn(16, 4), ts.randn(16, 3)

    def losses(compile: bool) -> tuple[list[float], list[Any]]:
        net, average = copy.deepcopy(NET), copy.deepcopy(NET)
        optimizer = ts.optim.SGD(net.parameters(), lr=0.1)

        def step() -> float:
            optimizer.zero_grad()
            loss = (net(x) - target).square().mean()
            for mean, param in zip(average.parameters(), net.parameters(), strict=True):
                mean.data.mul_(0.9).add_(param.data, alpha=0.1)
                param.data.mul_(0.99)
            loss.backward()
            optimizer.step()
            return loss.item()

        call = ts.compile(step, fullgraph=True) if compile else step
        return [call() for _ in range(5)], [p.tolist() for p in [*net.parameters(), *average.parameters()]]

    assert losses(True) == losses(False)


def test_data_of_what_the_run_made() -> None:
    def program(x: ts.Tensor) -> ts.Tensor:
        y = x.clone()
        y.data.mul_(2)
        return y * x.data

    compiled = ts.compile(program, fullgraph=True)
    for _ in range(CALLS):
        x = ts.randn(4, requires_grad=True)
        assert compiled(x).equal(program(x))
        assert ts.autograd.grad(compiled(x).sum(), x)[0].equal(ts.autograd.grad(program(x).sum(), x)[0])


@pytest.mark.parametrize("call", ["ts.vmap(ts.sin)(x)", "ts.cond(x.sum() > 0, ts.sin, ts.cos, (x,))"])
def test_what_is_imported_on_first_need_is_no_part_of_the_program(call: str) -> None:
    """In a fresh process, where modules of the package are loaded while the first run is watched."""
    program = f"import tesserack as ts\nprint(ts.compile(lambda x: {call}, fullgraph=True)(ts.zeros(2)).tolist())"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() in (["[0.0,", "0.0]"], ["[1.0,", "1.0]"])


@pytest.mark.parametrize("transform", [grad, lambda f: jvp_of(f), lambda f: vmap(lambda row: row + f(row))])
def test_tensors_that_the_transformed_function_closes_over(transform: Any) -> None:
    weight, factor = ts.randn(3, 3), 2.0

    def score(x: ts.Tensor) -> ts.Tensor:
        return ((x.sin() * weight * factor).cos() + x).sum()

    def program(x: ts.Tensor) -> ts.Tensor:
        for _ in range(3):
            x = transform(score)(x) * 0.5 + x
        return x

    compiled, x = ts.compile(program, fullgraph=True), ts.randn(3, 3)
    for turn in range(10):
        if turn == 4:
            weight = ts.randn(3, 3)
        elif turn == 6:
            factor = 3.0
        elif turn == 8:
            weight.mul_(2)
        assert ts.equal(compiled(x), program(x)), turn


def jvp_of(function: Any) -> Any:
    return lambda x: ts.func.jvp(function, (x,), (ts.ones_like(x),))[1]
