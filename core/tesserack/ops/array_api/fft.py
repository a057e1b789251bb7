"""The standard's ``fft`` extension: the functions of ``tesserack.fft``, with ``axis`` and ``axes``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.ops.fft import fftfreq as _fftfreq
from tesserack.ops.fft import rfftfreq as _rfftfreq

__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft", "irfftn", "rfft",
    "rfftfreq", "rfftn",
]  # fmt: skip


def _single(name: str) -> Callable[..., Tensor]:
    def call(x: Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Tensor:
        return getattr(ts.fft, name)(x, n, axis, norm)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``tesserack.fft.{name}`` along an axis."
    return call


def _several(name: str) -> Callable[..., Tensor]:
    def call(
        x: Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> Tensor:
        return getattr(ts.fft, name)(x, s, axes, norm)  # type: ignore[no-any-return]

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"``tesserack.fft.{name}`` along axes, or along all."
    return call


fft, ifft, rfft, irfft, hfft, ihfft = (_single(n) for n in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"))
fftn, ifftn, rfftn, irfftn = (_several(n) for n in ("fftn", "ifftn", "rfftn", "irfftn"))


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of a spectrum of ``n`` points that lie ``d`` apart."""
    return _fftfreq(n, d, dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Tensor:
    """The frequencies of the first half of a spectrum."""
    return _rfftfreq(n, d, dtype=dtype, device=device)


def fftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The zero frequency moved to the middle."""
    return ts.fft.fftshift(x, axes)


def ifftshift(x: Tensor, /, *, axes: int | Sequence[int] | None = None) -> Tensor:
    """The middle moved back to the start."""
    return ts.fft.ifftshift(x, axes)
