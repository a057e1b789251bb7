"""Calls of the kernel of Fourier transforms: few rows and many, of lengths with small factors and without."""

from __future__ import annotations

import tesserack as ts
from tesserack.testing.conformance.own.given import Given

__all__ = ["transform"]


def transform(g: Given, name: str, rows: int, n: int) -> object:
    """A transform of ``ts.fft`` of rows of ``n`` points, as real numbers."""
    if name in ("rfft", "ihfft"):
        return ts.view_as_real(getattr(ts.fft, name)(g(rows, n).detach()))
    half = name in ("irfft", "hfft")
    shape = rows, n // 2 + 1 if half else n
    found = getattr(ts.fft, name)(ts.complex(g(*shape).detach(), g(*shape).detach()), n)
    return found if half else ts.view_as_real(found)
