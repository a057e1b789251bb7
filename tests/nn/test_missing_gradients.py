"""Arguments that have no gradient say so where one is asked for, instead of leaving it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.autograd import forward_ad
from tesserack.nn import functional as F

CLASSES = [1, 0, 3]
STATISTICS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "batch_norm": lambda x, mean, var: F.batch_norm(x, mean, var),
    "batch_norm in training": lambda x, mean, var: F.batch_norm(x, mean, var, training=True),
    "instance_norm": lambda x, mean, var: F.instance_norm(x, mean, var, use_input_stats=False),
}
WEIGHTED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "nll_loss": lambda x, at, weight: F.nll_loss(x, at, weight),
    "nll_loss of rows": lambda x, at, weight: F.nll_loss(x, at, weight, reduction="none").sum(),
    "cross_entropy": lambda x, at, weight: F.cross_entropy(x, at, weight),
    "cross_entropy, smooth": lambda x, at, weight: F.cross_entropy(x, at, weight, label_smoothing=0.1),
}


def statistics(device: str) -> tuple[ts.Tensor, ts.Tensor, ts.Tensor]:
    x = ts.arange(30.0, device=device).reshape(3, 2, 5).cos()
    return x, ts.zeros(2, device=device), ts.ones(2, device=device)


@pytest.mark.parametrize("place", [0, 1], ids=["mean", "variance"])
@pytest.mark.parametrize("name", STATISTICS)
def test_running_statistics_have_no_gradient(name: str, place: int, device: str) -> None:
    x, *running = statistics(device)
    x.requires_grad_()
    wanted = running[place].requires_grad_()
    running[place] = wanted.clone()  # what is written to is no leaf
    with pytest.raises(RuntimeError, match="is not differentiable with respect to running_"):
        STATISTICS[name](x, *running).sum().backward()
    assert x.grad is None and wanted.grad is None


@pytest.mark.parametrize("name", STATISTICS)
def test_the_input_has_one_beside_statistics_without(name: str, device: str) -> None:
    x, *running = statistics(device)
    y = STATISTICS[name](x.requires_grad_(), *running)
    (gradient,) = ts.autograd.grad((y * y.detach().sin()).sum(), x)
    assert gradient.isfinite().all() and gradient.any()


def test_running_statistics_carry_no_tangent(device: str) -> None:
    x, mean, var = statistics(device)
    with forward_ad.dual_level(), pytest.raises(RuntimeError, match="with respect to running_mean"):
        duals = [forward_ad.make_dual(t, ts.ones_like(t)) for t in (x, mean, var)]
        forward_ad.unpack_dual(F.batch_norm(*duals))


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_of_classes_have_no_gradient(name: str, device: str) -> None:
    x = ts.arange(12.0, device=device).reshape(3, 4).sin().log_softmax(-1).requires_grad_()
    at, weight = ts.tensor(CLASSES, device=device), ts.ones(4, device=device)
    WEIGHTED[name](x, at, weight).backward()
    assert x.grad is not None and x.grad.any()
    with pytest.raises(RuntimeError, match="is not differentiable with respect to weight"):
        WEIGHTED[name](x, at, weight.requires_grad_()).backward()
    with ts.no_grad():
        assert WEIGHTED[name](x, at, weight).isfinite()


def test_what_has_no_derivative_is_not_implemented(device: str) -> None:
    values = ts.unique(ts.tensor([2.0, 1.0, 2.0], device=device, requires_grad=True))
    with pytest.raises(NotImplementedError, match="derivative for _unique2 is not implemented"):
        values.sum().backward()
