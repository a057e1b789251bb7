"""Windows of ``M`` points, with the names of ``torch.signal.windows``.

With ``sym`` the first and last points are alike, for filters; without, a window of ``M + 1`` points lacks its last one,
for spectra.

>>> import tesserack as ts
>>> ts.signal.windows.hann(5).tolist()
[0.0, 0.5, 1.0, 0.5, 0.0]
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack.ops.results import strided_only

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tesserack import Tensor

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip


def _window(
    op: str,
    values: Callable[[Tensor, int], Tensor],
    M: int,
    sym: bool,
    dtype: Any,
    layout: Any,
    device: Any,
    requires_grad: bool,
) -> Tensor:
    """``values(positions, n)`` at the positions 0 to M - 1 of a symmetric window of n points."""
    strided_only(op, layout, ValueError)
    kind = dtype or ts.get_default_dtype()
    if M < 0:
        raise ValueError(f"{op}: requires non-negative window length, got M={M}")
    if kind not in (ts.float32, ts.float64, ts.float16, ts.bfloat16):
        raise ValueError(f"{op}: expects floating point dtypes, got {kind}")
    default = ts.get_default_device()
    target = default if device is None else ts.device(device)
    if M < 2 or target.type == "meta":
        found = ts.ones(M, dtype=kind, device=target)
    else:
        at = target if default.type == "meta" else default
        found = values(ts.arange(M, dtype=ts.float64, device=at), M if sym else M + 1).to(kind).to(target)
    return found.requires_grad_(requires_grad)


def exponential(
    M: int,
    *,
    center: float | None = None,
    tau: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """exp(-|n - center| / tau). ``ValueError`` for a center of a symmetric window, or tau <= 0."""
    if tau <= 0:
        raise ValueError(f"exponential: Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("exponential: Center must be None for symmetric windows")

    def values(k: Tensor, n: int) -> Tensor:
        middle = (n - 1) / 2 if center is None else center
        return ts.exp(-(k - middle).abs() / tau)

    return _window("exponential", values, M, sym, dtype, layout, device, requires_grad)


def cosine(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Half a period of a sine, sampled at the middles of M parts."""

    def values(k: Tensor, n: int) -> Tensor:
        return ts.sin((k + 0.5) * (math.pi / n))

    return _window("cosine", values, M, sym, dtype, layout, device, requires_grad)


def gaussian(
    M: int,
    *,
    std: float = 1.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A Gaussian of standard deviation ``std`` about the middle. ``ValueError`` unless std > 0."""
    if std <= 0:
        raise ValueError(f"gaussian: Standard deviation must be positive, got: {std} instead.")

    def values(k: Tensor, n: int) -> Tensor:
        return ts.exp(-(((k - (n - 1) / 2) / std) ** 2) / 2)

    return _window("gaussian", values, M, sym, dtype, layout, device, requires_grad)


def _bessel(x: Tensor, most: float) -> Tensor:
    """The modified Bessel function I0 over exp(x), x up to ``most``, by trapezoids of its integral."""
    points = 32 + 2 * int(most)
    angles = ts.arange(points, dtype=ts.float64, device=x.device) * (2 * math.pi / points)
    return ts.exp(x.unsqueeze(-1) * (angles.cos() - 1)).mean(-1)


def kaiser(
    M: int,
    *,
    beta: float = 12.0,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """I0(beta * sqrt(1 - x^2)) / I0(beta) of x from -1 to 1. ``ValueError`` unless beta >= 0."""
    if beta < 0:
        raise ValueError(f"kaiser: beta must be non-negative, got: {beta} instead.")

    def values(k: Tensor, n: int) -> Tensor:
        x = 2 * k / (n - 1) - 1
        at = beta * ts.sqrt(ts.clamp(1 - x * x, min=0.0))
        return (
            _bessel(at, beta)
            / _bessel(ts.full((1,), beta, dtype=ts.float64, device=k.device), beta)
            * ts.exp(at - beta)
        )

    return _window("kaiser", values, M, sym, dtype, layout, device, requires_grad)


def general_cosine(
    M: int,
    *,
    a: Iterable[float],
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """a0 - a1 cos(x) + a2 cos(2 x) - ... of x from 0 to 2 pi. ``ValueError`` if ``a`` is empty."""
    weights = list(a) if hasattr(a, "__iter__") else None
    if weights is None:
        raise TypeError(f"general_cosine: Coefficients must be a list/tuple, got {type(a).__name__}")
    if not weights:
        raise ValueError("general_cosine: Coefficients cannot be empty")

    def values(k: Tensor, n: int) -> Tensor:
        angle = k * (2 * math.pi / (n - 1))
        total = ts.zeros_like(angle)
        for i, w in enumerate(weights):
            total = total + (-1) ** i * float(w) * (angle * i).cos()
        return total

    return _window("general_cosine", values, M, sym, dtype, layout, device, requires_grad)


def general_hamming(
    M: int,
    *,
    alpha: float = 0.54,
    sym: bool = True,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - (1 - alpha) cos(x) of x from 0 to 2 pi."""
    return general_cosine(
        M, a=[alpha, 1 - alpha], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def hamming(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """``general_hamming`` of alpha 0.54."""
    return general_hamming(M, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def hann(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """``general_hamming`` of alpha 0.5."""
    return general_hamming(
        M, alpha=0.5, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def blackman(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x)."""
    return general_cosine(
        M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad
    )


def nuttall(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Four cosines with the lowest side lobes (Nuttall, 1981)."""
    weights = [0.3635819, 0.4891775, 0.1365995, 0.0106411]
    return general_cosine(M, a=weights, sym=sym, dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def bartlett(
    M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A triangle from 0 to 1 and back."""

    def values(k: Tensor, n: int) -> Tensor:
        return 1 - (2 * k / (n - 1) - 1).abs()

    return _window("bartlett", values, M, sym, dtype, layout, device, requires_grad)
