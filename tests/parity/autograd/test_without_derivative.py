"""Operators without a derivative: results remember what they came from, and a backward pass through them raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts


def _points(m: Any) -> Any:
    return m.tensor([0.1, 0.5, 0.9], requires_grad=True)


def _matrix(m: Any) -> Any:
    return (m.eye(3) * 3 + m.arange(9.0).reshape(3, 3) / 9).requires_grad_()


CALLS: dict[str, Callable[[Any], Any]] = {
    "geqrf": lambda m: m.geqrf(_matrix(m)),
    "ldl_factor": lambda m: m.linalg.ldl_factor(_matrix(m)),
    "ldl_factor_ex": lambda m: m.linalg.ldl_factor_ex(_matrix(m)),
    "ldl_solve": lambda m: m.linalg.ldl_solve(
        *m.linalg.ldl_factor(_matrix(m).detach()), m.ones(3, 1, requires_grad=True)
    ),
    "bincount": lambda m: m.bincount(m.tensor([0, 1, 1]), _points(m)),
    "histogram": lambda m: m.histogram(_points(m), 3),
    "histogram, weight": lambda m: m.histogram(_points(m).detach(), 3, weight=_points(m)),
    "histogram, edges": lambda m: m.histogram(
        _points(m).detach(), m.tensor([0.0, 0.5, 1.0], requires_grad=True), density=True
    ),
    "histogramdd": lambda m: m.histogramdd(_matrix(m), [2, 2, 2])[0],
    "histogramdd, weight": lambda m: m.histogramdd(_matrix(m).detach(), [2, 2, 2], weight=_points(m))[0],
    "binomial": lambda m: m.binomial(m.ones(3), _points(m)),
    "igamma": lambda m: m.igamma(_points(m), _points(m)),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_backward_pass_says_so(compare_program: Callable[..., None], call: Callable[[Any], Any]) -> None:
    def program(m: Any) -> Any:
        found = call(m)
        outputs = found if isinstance(found, (tuple, list)) else (found,)
        loss = sum(y.sum() for y in outputs if y.requires_grad)
        with pytest.raises(RuntimeError, match=r"derivative|differentiable|gradient"):
            loss.backward()
        with m.no_grad():
            again = call(m)
        outputs_again = again if isinstance(again, (tuple, list)) else (again,)
        return [y.requires_grad for y in outputs], [y.requires_grad for y in outputs_again]

    compare_program(program)


DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "poisson": lambda m, x: m.poisson(x),
    "normal": lambda m, x: m.normal(x, 1.0),
    "normal, std": lambda m, x: m.normal(0.0, x),
    "normal, both": lambda m, x: m.normal(x, x),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_draws_do_not_change_with_their_parameters(
    compare_program: Callable[..., None], draw: Callable[[Any, Any], Any]
) -> None:
    def program(m: Any) -> Any:
        x = _points(m)
        y = draw(m, x)
        (y * x).sum().backward()
        return [y.requires_grad, m.equal(x.grad, y.detach()), draw(m, x.detach()).requires_grad]

    compare_program(program)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("shape", [(6, 6), (2, 6, 6)])
def test_gradients_of_lobpcg(shape: tuple[int, ...], largest: bool) -> None:
    ts.manual_seed(5)
    a = ts.randn(*shape, dtype=ts.float64)
    a = (a @ a.mT / 10).requires_grad_()
    start = ts.eye(6, 2, dtype=ts.float64).expand(*shape[:-1], 2)

    def pairs(a: ts.Tensor) -> Any:
        e, v = ts.lobpcg((a + a.mT) / 2, 2, X=start, largest=largest)
        return e, v * v.gather(-2, v.abs().argmax(-2, keepdim=True)).sign()

    e, v = ts.lobpcg(a.detach(), 2, X=start, largest=largest)
    e_too, v_too = ts.lobpcg(a, 2, X=start, largest=largest)
    assert ts.allclose(e, e_too, 1e-4) and ts.allclose(v, v_too, 0, 1e-3)
    assert ts.autograd.gradcheck(pairs, (a,), atol=1e-4)
    (found,) = ts.autograd.grad((e_too.sum() + v_too.sum()), a)
    assert ts.allclose(found, found.mT)
