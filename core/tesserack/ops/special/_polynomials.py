"""Orthogonal polynomials by their recurrences (DLMF 18.9), of degrees that are numbers or tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.results import deliver, real_only

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
]


def _operands(name: str, x: Any, n: Any) -> tuple[Tensor, Tensor]:
    if not isinstance(x, Tensor) and not isinstance(n, Tensor):
        raise TypeError(f"{name}: expected a tensor among the arguments, got {type(x).__name__} and {type(n).__name__}")
    real_only(name, x, n)
    device = x.device if isinstance(x, Tensor) else n.device
    dtype = ts.result_type(x, n)
    if not dtype.is_floating_point:
        dtype = ts.get_default_dtype()
    made = [v.to(dtype) if isinstance(v, Tensor) else ts.tensor(v, dtype=dtype, device=device) for v in (x, n)]
    value, degree = ts.broadcast_tensors(*made)
    if not bool(degree.isfinite().all()):
        raise RuntimeError(f"{name}: expected finite degrees n, got infinity or NaN among them")
    return value, degree.trunc()


def _evaluate(
    name: str,
    x: Any,
    n: Any,
    out: Tensor | None,
    first: Callable[[Tensor], Tensor],
    step: Callable[[int, Tensor, Tensor, Tensor], Tensor],
) -> Tensor:
    """p_0 = 1, p_1 = first(x), p_(k+1) = step(k, x, p_k, p_(k-1)); zero for negative degrees."""
    value, degree = _operands(name, x, n)
    previous, current = ts.ones_like(value), first(value)
    result = ts.where(degree == 0, previous, ts.zeros_like(value))
    highest = int(degree.max()) if degree.numel() else 0
    for k in range(1, highest + 1):
        result = ts.where(degree == k, current, result)
        previous, current = current, step(k, value, current, previous)
    return deliver(name, result, out)


def _chebyshev_step(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return 2 * x * p - before


def chebyshev_polynomial_t(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """T_n(x), of the first kind.

    >>> import tesserack as ts
    >>> ts.special.chebyshev_polynomial_t(ts.tensor([0.5]), 3)
    tensor([-1.])
    """
    return _evaluate("chebyshev_polynomial_t", x, n, out, lambda x: x, _chebyshev_step)


def chebyshev_polynomial_u(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """U_n(x), of the second kind."""
    return _evaluate("chebyshev_polynomial_u", x, n, out, lambda x: 2 * x, _chebyshev_step)


def chebyshev_polynomial_v(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """V_n(x), of the third kind."""
    return _evaluate("chebyshev_polynomial_v", x, n, out, lambda x: 2 * x - 1, _chebyshev_step)


def chebyshev_polynomial_w(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """W_n(x), of the fourth kind."""
    return _evaluate("chebyshev_polynomial_w", x, n, out, lambda x: 2 * x + 1, _chebyshev_step)


def shifted_chebyshev_polynomial_t(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """T_n(2 x - 1)."""
    return chebyshev_polynomial_t(2 * x - 1, n, out=out)


def shifted_chebyshev_polynomial_u(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """U_n(2 x - 1)."""
    return chebyshev_polynomial_u(2 * x - 1, n, out=out)


def shifted_chebyshev_polynomial_v(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """V_n(2 x - 1)."""
    return chebyshev_polynomial_v(2 * x - 1, n, out=out)


def shifted_chebyshev_polynomial_w(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """W_n(2 x - 1)."""
    return chebyshev_polynomial_w(2 * x - 1, n, out=out)


def hermite_polynomial_h(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """H_n(x), the physicists' Hermite polynomial."""
    return _evaluate(
        "hermite_polynomial_h", x, n, out, lambda x: 2 * x, lambda k, x, p, before: 2 * x * p - 2 * k * before
    )


def hermite_polynomial_he(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """He_n(x), the probabilists' Hermite polynomial."""
    return _evaluate("hermite_polynomial_he", x, n, out, lambda x: x, lambda k, x, p, before: x * p - k * before)


def laguerre_polynomial_l(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """L_n(x)."""
    return _evaluate(
        "laguerre_polynomial_l",
        x,
        n,
        out,
        lambda x: 1 - x,
        lambda k, x, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1),
    )


def legendre_polynomial_p(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """P_n(x)."""
    return _evaluate(
        "legendre_polynomial_p",
        x,
        n,
        out,
        lambda x: x,
        lambda k, x, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1),
    )
