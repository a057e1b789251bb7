"""Frequencies of spectra, and their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tesserack as ts
from tesserack.ops.numpy_names import numpy_names
from tesserack.ops.results import refilled, strided_only

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from tesserack import Tensor

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]


def _given(
    values: Tensor, n: int, d: float, out: Tensor | None, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    found = (values / (n * d)).to(dtype or ts.get_default_dtype())
    if device is not None:
        found = found.to(device)
    if out is not None:
        return refilled("fft", found, out)
    return found.requires_grad_(requires_grad)


def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Frequencies of the elements of ``fft`` of ``n`` points that are ``d`` apart: 0, 1, ..., -2, -1 over n * d.

    >>> fftfreq(4).tolist()
    [0.0, 0.25, -0.5, -0.25]
    """
    strided_only("fftfreq", layout)
    values = ts.arange(n, dtype=ts.float64)
    return _given(ts.where(values < (n + 1) // 2, values, values - n), n, d, out, dtype, device, requires_grad)


def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Frequencies of the elements of ``rfft`` of ``n`` points that are ``d`` apart.

    >>> rfftfreq(4).tolist()
    [0.0, 0.25, 0.5]
    """
    strided_only("rfftfreq", layout)
    return _given(ts.arange(n // 2 + 1, dtype=ts.float64), n, d, out, dtype, device, requires_grad)


def _dims(input: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    if dim is None:
        return list(range(input.dim()))
    return [dim] if isinstance(dim, int) else list(dim)


@numpy_names
def fftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the middle of each of the dims (all unless given).

    >>> fftshift(fftfreq(4)).tolist()
    [-0.5, -0.25, 0.0, 0.25]
    """
    dims = _dims(input, dim)
    return input.roll([input.shape[d] // 2 for d in dims], dims) if dims else input.clone()


@numpy_names
def ifftshift(input: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """The inverse of ``fftshift``."""
    dims = _dims(input, dim)
    return input.roll([(input.shape[d] + 1) // 2 for d in dims], dims) if dims else input.clone()
