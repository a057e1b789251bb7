"""The regularised incomplete gamma functions."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.autograd import Function
from tesserack.library.whole_operator import is_looked_on, whole_operator
from tesserack.ops.results import deliver

__all__ = ["gammainc", "gammaincc", "igamma", "igammac"]

_NOT_BY_FIRST = "gammainc: the gradient by the first argument is not implemented; detach it"
_EPS = 1e-16
_MANY = 200_000  # steps; about as many as the root of the parameter are needed


def _series(a: Tensor, x: Tensor) -> Tensor:
    """sum x^n / ((a + 1) ... (a + n)), for x < a + 1 (DLMF 8.11.4)."""
    term = total = ts.ones_like(a)
    for n in range(1, _MANY):
        term = term * x / (a + n)
        total = total + term
        if n % 16 == 0 and bool((term <= _EPS * total).all()):
            break
    return total


def _fraction(a: Tensor, x: Tensor) -> Tensor:
    """The continued fraction of Gamma(a, x) e^x x^-a, for x >= a + 1 (DLMF 8.9.2), by Lentz's method."""
    tiny = 1e-300
    b = x + 1 - a
    c = ts.full_like(x, 1 / tiny)
    d = 1 / b
    h = d
    settled = ts.zeros_like(x, dtype=ts.bool)  # what has settled stays: its steps are rounding, a few ulps beside 1
    for n in range(1, _MANY):
        factor = -n * (n - a)
        b = b + 2
        d = factor * d + b
        d = 1 / ts.where(d.abs() < tiny, tiny, d)
        c = b + factor / c
        c = ts.where(c.abs() < tiny, tiny, c)
        step = c * d
        h = ts.where(settled, h, h * step)
        if n % 16 == 0:
            settled = settled | ((step - 1).abs() <= _EPS * 10)
            if bool(settled.all()):
                break
    return h


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.upper = inputs[2]


def _backward(ctx: Any, grad: Tensor) -> Any:
    if ctx.needs_input_grad[0]:
        raise NotImplementedError(_NOT_BY_FIRST)
    a, x = ctx.saved_tensors
    return None, grad * _density(a, x, ctx.upper), None


@whole_operator(
    "tesserack_special::incomplete_gamma",
    "(Tensor a, Tensor x, bool upper) -> Tensor",
    lambda a, x, upper: a.new_empty(ts.broadcast_shapes(a.shape, x.shape)),
    (_backward, _setup),
)
def _evaluate(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """P(a, x), or Q(a, x) for ``upper``, of float64 tensors of one shape."""
    a, x = ts.broadcast_tensors(a, x)
    undefined = (a < 0) | (x < 0) | a.isnan() | x.isnan() | ((a == 0) & (x == 0)) | (a.isinf() & x.isinf())
    easy = undefined | (x == 0) | (a == 0) | x.isinf() | a.isinf()
    low = x < a + 1
    one = ts.ones_like(a)
    sa, sx = ts.where(easy | ~low, one, a), ts.where(easy | ~low, one, x)
    fa, fx = ts.where(easy | low, one, a), ts.where(easy | low, one * 3, x)
    lower_part = ts.exp(sa * sx.log() - sx - ts.lgamma(sa + 1)) * _series(sa, sx)
    upper_part = ts.exp(fa * fx.log() - fx - ts.lgamma(fa)) * _fraction(fa, fx)
    value = ts.where(low, 1 - lower_part, upper_part) if upper else ts.where(low, lower_part, 1 - upper_part)
    # All mass is at zero for a = 0, at infinity for a = inf.
    below_all = (a == 0) | x.isinf()
    settled = ts.where(below_all, 0.0 if upper else 1.0, 1.0 if upper else 0.0).to(value.dtype)
    value = ts.where(easy, settled, value)
    return ts.where(undefined, float("nan"), value)


class _IncompleteGamma(Function):
    """Differentiable by x alone, as PyTorch's."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, x: Tensor, upper: bool) -> Tensor:
        ctx.save_for_backward(a, x)
        ctx.save_for_forward(a, x)
        ctx.set_materialize_grads(False)
        ctx.upper = upper
        dtype = ts.result_type(a, x)
        found: Tensor = _evaluate(a.detach().double(), x.detach().double(), upper).to(dtype)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None) -> Any:
        a, x = ctx.saved_tensors
        if grad is None:
            return None, None, None
        if ctx.needs_input_grad[0]:
            raise NotImplementedError(_NOT_BY_FIRST)
        return None, grad * _density(a, x, ctx.upper), None

    @staticmethod
    def jvp(ctx: Any, a_tangent: Tensor | None, x_tangent: Any, upper: Any) -> Any:
        if a_tangent is not None:
            raise NotImplementedError("gammainc: Trying to use forward AD by the first argument, that does not support "
                                      "it; detach it")  # fmt: skip
        a, x = ctx.saved_tensors
        return x_tangent * _density(a, x, ctx.upper)


def _density(a: Tensor, x: Tensor, upper: bool) -> Tensor:
    """The derivative by ``x``."""
    density = ts.exp(ts.xlogy(a - 1, x) - x - ts.lgamma(a))
    return -density if upper else density


def _apply(name: str, input: Tensor, other: Tensor, upper: bool, out: Tensor | None) -> Tensor:
    for value in (input, other):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}: expected tensors, got {type(value).__name__}")
        if value.is_complex():
            raise NotImplementedError(f"{name}: expected real tensors, got {value.dtype}")
    if input.device != other.device:
        raise RuntimeError(f"{name}: expected tensors on one device, got {input.device} and {other.device}")
    if not ts.result_type(input, other).is_floating_point:
        input = input.to(ts.get_default_dtype())
    if is_looked_on(input, other):  # the operator has its gradient, also in programs that were saved
        result = _evaluate(input.double(), other.double(), upper).to(ts.result_type(input, other))
    else:
        result = _IncompleteGamma.apply(input, other, upper)
    return deliver(name, result, out)


def gammainc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """P(a, x), the lower incomplete gamma function over Gamma(a), of ``input`` a >= 0 and ``other`` x >= 0.

    By its power series, or by one minus the continued fraction of Q; NaN for negative arguments. Differentiable by
    ``other``. Waits for the device as it iterates.

    >>> import tesserack as ts
    >>> ts.special.gammainc(ts.tensor([1.0]), ts.tensor([0.6931]))
    tensor([0.5000])
    """
    return _apply("gammainc", input, other, False, out)


def gammaincc(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Q(a, x) = 1 - P(a, x), the upper incomplete gamma function over Gamma(a), accurate where it is small."""
    return _apply("gammaincc", input, other, True, out)


igamma = gammainc
igammac = gammaincc
