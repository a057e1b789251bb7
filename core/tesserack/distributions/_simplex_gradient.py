"""Implicit gradients of beta and Dirichlet variates, by the series of the incomplete beta function."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.library.whole_operator import whole_operator

__all__ = ["LARGEST_TOTAL", "Shares"]

LARGEST_TOTAL = 500.0  # of concentrations: beyond it the series takes thousands of terms
_TERMS = 4096
_EPS = 1e-17


@whole_operator(
    "tesserack_random::beta_slope", "(Tensor x, Tensor a, Tensor b) -> Tensor", lambda x, *_: ts.empty_like(x)
)
def _slope(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """(dx / da) / (1 - x) of beta variates x at a fixed probability, in float64.

    I_x(a, b) = x^a (1 - x)^b / (a B(a, b)) * sum of (a + b)_n / (a + 1)_n x^n, all of whose terms are positive, and
    1 - I_(1-x)(b, a) where that converges sooner (NIST Digital Library of Mathematical Functions, 8.17). The derivative
    by a over the density is minus dx / da (Figurnov, Mohamed and Mnih 2018).
    """
    x = x.clamp(min=ts.finfo(ts.float64).tiny)
    y, total = 1 - x, a + b
    # Near an end the sum from there is short, and there is little to cancel yet.
    near = (20 / total).clamp(max=0.1)
    turned = (x >= near) & ((y < near) | (x * total > a))
    z, c = ts.where(turned, y, x), ts.where(turned, b, a)
    term, log_slope = ts.ones_like(x), ts.zeros_like(x)
    value, slope = term, log_slope
    for n in range(_TERMS):
        term = term * z * (total + n) / (c + 1 + n)
        log_slope = log_slope + 1 / (total + n) - ts.where(turned, 0.0, 1 / (a + 1 + n))
        value = value + term
        slope = slope + term * log_slope
        if n % 16 == 15 and bool((term * (1 + log_slope.abs()) <= _EPS * value).all()):
            break
    factor = x.log() + ts.digamma(total) - ts.digamma(ts.where(turned, a, a + 1))
    found = x / c * (factor * value + slope)
    return ts.where(turned, found, -found)


class Shares(Function):
    """Dirichlet variates, whose gradient by their concentrations is that along a fixed probability of each share."""

    @staticmethod
    def forward(ctx: Any, concentration: Tensor, shares: Tensor) -> Tensor:
        ctx.save_for_backward(concentration, shares)
        return shares.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        concentration, shares = ctx.saved_tensors
        with ts.no_grad():
            a, x = concentration.detach().double(), shares.detach().double()
            slope = _slope(x, a, a.sum(-1, keepdim=True) - a).to(grad.dtype)
        return slope * (grad - (shares.detach() * grad).sum(-1, keepdim=True)), None
