"""Orthogonal polynomials by their recurrences (DLMF 18.9), of degrees that are numbers or tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack import Tensor
from tesserack.library.whole_operator import whole_operator
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


def _chebyshev_step(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return 2 * x * p - before


# p_1 and p_(k+1) of k, x, p_k and p_(k-1); p_0 is 1.
_RECURRENCES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[int, Tensor, Tensor, Tensor], Tensor]]] = {
    "chebyshev_polynomial_t": (lambda x: x, _chebyshev_step),
    "chebyshev_polynomial_u": (lambda x: 2 * x, _chebyshev_step),
    "chebyshev_polynomial_v": (lambda x: 2 * x - 1, _chebyshev_step),
    "chebyshev_polynomial_w": (lambda x: 2 * x + 1, _chebyshev_step),
    "hermite_polynomial_h": (lambda x: 2 * x, lambda k, x, p, before: 2 * x * p - 2 * k * before),
    "hermite_polynomial_he": (lambda x: x, lambda k, x, p, before: x * p - k * before),
    "laguerre_polynomial_l": (
        lambda x: 1 - x,
        lambda k, x, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1),
    ),
    "legendre_polynomial_p": (
        lambda x: x,
        lambda k, x, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1),
    ),
}


def _operands(name: str, x: Any, n: Any) -> list[Tensor]:
    if not isinstance(x, Tensor) and not isinstance(n, Tensor):
        raise TypeError(f"{name}: expected a tensor among the arguments, got {type(x).__name__} and {type(n).__name__}")
    real_only(name, x, n)
    device = x.device if isinstance(x, Tensor) else n.device
    dtype = ts.result_type(x, n)
    if not dtype.is_floating_point:
        dtype = ts.get_default_dtype()
    return [v.to(dtype) if isinstance(v, Tensor) else ts.tensor(v, dtype=dtype, device=device) for v in (x, n)]


@whole_operator(
    "tesserack_special::polynomial",
    "(Tensor x, Tensor n, str family) -> Tensor",
    lambda x, n, family: x.new_empty(ts.broadcast_shapes(x.shape, n.shape)),
)
def _evaluate(x: Tensor, n: Tensor, family: str) -> Tensor:
    """The polynomials of degrees ``n``, whose fractions are cut off; zero for negative ones."""
    value, degree = ts.broadcast_tensors(x, n)
    if not bool(degree.isfinite().all()):
        raise RuntimeError(f"{family}: expected finite degrees n, got infinity or NaN among them")
    degree = degree.trunc()
    first, step = _RECURRENCES[family]
    previous, current = ts.ones_like(value), first(value)
    result = ts.where(degree == 0, previous, ts.zeros_like(value))
    highest = int(degree.max()) if degree.numel() else 0
    for k in range(1, highest + 1):
        result = ts.where(degree == k, current, result)
        previous, current = current, step(k, value, current, previous)
    return result


def _polynomial(name: str, x: Any, n: Any, out: Tensor | None) -> Tensor:
    value, degree = _operands(name, x, n)
    return deliver(name, _evaluate(value, degree, name), out)


def chebyshev_polynomial_t(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """T_n(x), of the first kind.

    >>> import tesserack as ts
    >>> ts.special.chebyshev_polynomial_t(ts.tensor([0.5]), 3)
    tensor([-1.])
    """
    return _polynomial("chebyshev_polynomial_t", x, n, out)


def chebyshev_polynomial_u(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """U_n(x), of the second kind."""
    return _polynomial("chebyshev_polynomial_u", x, n, out)


def chebyshev_polynomial_v(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """V_n(x), of the third kind."""
    return _polynomial("chebyshev_polynomial_v", x, n, out)


def chebyshev_polynomial_w(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """W_n(x), of the fourth kind."""
    return _polynomial("chebyshev_polynomial_w", x, n, out)


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
    return _polynomial("hermite_polynomial_h", x, n, out)


def hermite_polynomial_he(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """He_n(x), the probabilists' Hermite polynomial."""
    return _polynomial("hermite_polynomial_he", x, n, out)


def laguerre_polynomial_l(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """L_n(x)."""
    return _polynomial("laguerre_polynomial_l", x, n, out)


def legendre_polynomial_p(x: Any, n: Any, *, out: Tensor | None = None) -> Tensor:
    """P_n(x)."""
    return _polynomial("legendre_polynomial_p", x, n, out)
