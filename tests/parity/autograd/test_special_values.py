"""Gradients at NaN, infinities, signed zeros and the edges of branches, beside torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

VALUES = [float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0]
VALUES += [20.0, -20.0, 2.0, 1e-300, 100.0, -100.0]
PLAIN = """abs acos asin asinh atan atanh ceil cos cosh erf erfc erfinv exp exp2 expm1 floor frac log log10 log1p log2
logit neg reciprocal relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc nan_to_num"""
LAYERS = """relu relu6 elu selu celu gelu silu mish softplus tanhshrink hardtanh hardswish leaky_relu logsigmoid
softshrink hardshrink"""
PAIRS = "maximum minimum fmax fmin fmod remainder mul div pow hypot copysign atan2"
LOSSES = ["smooth_l1_loss", "huber_loss", "l1_loss", "mse_loss", "binary_cross_entropy_with_logits"]
Function = Callable[[Any, Any], Any]


def cases() -> dict[str, Function]:
    found: dict[str, Function] = {name: lambda lib, x, name=name: getattr(lib, name)(x) for name in PLAIN.split()}
    for name in LAYERS.split():
        found[f"functional.{name}"] = lambda lib, x, name=name: getattr(lib.nn.functional, name)(x)
    for name in PAIRS.split():
        found[f"{name} of two"] = lambda lib, x, name=name: getattr(lib, name)(x, x.detach().flip(0))
    for name in LOSSES:
        found[name] = lambda lib, x, name=name: getattr(lib.nn.functional, name)(
            x, x.detach().flip(0), reduction="none"
        )
    found["clamp"] = lambda lib, x: x.clamp(-1, 1)
    found["threshold"] = lambda lib, x: lib.nn.functional.threshold(x, 0.5, 2.0)
    found["logit with eps"] = lambda lib, x: lib.logit(x, 1e-3)
    return found


def run(lib: Any, function: Function) -> list[Any]:
    x = lib.tensor(VALUES, dtype=lib.float64, requires_grad=True)
    y = function(lib, x)
    y.sum().backward()
    return [np.asarray(found.detach().numpy()) for found in (y, x.grad)]


# Branches that a NaN takes no side of: torch gives it the gradient 0 in vectors and lets it pass in scalars. No mask
# hides a NaN here (docs/guide/pytorch.md).
LET_PASS = {"abs", "l1_loss", "clamp", "logit with eps"}
LET_PASS |= {f"functional.{name}" for name in ("relu6", "hardtanh", "softshrink", "hardshrink")}


@pytest.mark.parametrize("name", cases())
def test_first_gradients(name: str) -> None:
    (y, grad), (their_y, their_grad) = run(ts, cases()[name]), run(torch, cases()[name])
    np.testing.assert_allclose(y, their_y, 1e-9, 1e-12)
    if name in LET_PASS:
        hidden = np.isnan(y)
        assert hidden.any() and (grad[hidden] != 0).all()
        grad, their_grad = grad[~hidden], their_grad[~hidden]
    np.testing.assert_allclose(grad, their_grad, 1e-9, 1e-12)


def test_second_gradient_of_log_ndtr() -> None:
    found = []
    for lib in (ts, torch):
        x = lib.tensor([0.0, -0.0, 0.5, -0.5, -0.999, 3.0, -3.0, 40.0], dtype=lib.float64, requires_grad=True)
        (first,) = lib.autograd.grad(lib.special.log_ndtr(x).sum(), x, create_graph=True)
        found.append(lib.autograd.grad(first.sum(), x)[0].numpy())
    np.testing.assert_allclose(*found, 1e-9, 1e-12)
