"""Fourier transforms and windows on both libraries: values, gradients of two orders, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch


def numbers(*shape: int) -> Any:
    return np.random.default_rng(6).standard_normal(shape)


def ones(m: Any) -> Any:
    return m.ones(4, dtype=m.float64)


# Real at both ends: gradients are compared as real numbers.
CALLS: dict[str, Callable[..., Any]] = {
    "rfft": lambda m, a: m.fft.irfft(m.fft.rfft(a, 5), 9),
    "rfft ortho": lambda m, a: m.fft.irfft(m.fft.rfft(a, norm="ortho", dim=0), norm="forward", dim=0),
    "fft": lambda m, a: m.fft.irfft(m.fft.fft(a, 9, norm="forward"), 8),
    "ifft": lambda m, a: m.fft.hfft(m.fft.ifft(a, norm="ortho"), norm="forward"),
    "ihfft": lambda m, a: m.fft.hfft(m.fft.ihfft(a), 6, norm="ortho"),
    "fft2": lambda m, a: m.fft.irfft2(m.fft.fft2(a, (5, 4)), (3, 7)),
    "rfftn": lambda m, a: m.fft.irfftn(m.fft.ifftn(m.fft.rfftn(a, dim=(1, 0)), dim=(0,)), dim=(1, 0)),
    "hfft2": lambda m, a: m.fft.hfft2(m.fft.ihfft2(a, norm="forward"), (4, 6)),
    "hfftn": lambda m, a: m.fft.hfftn(m.fft.ihfftn(a, (4, 3)), (5, 5), (0, 1), "ortho"),
    "shift": lambda m, a: [m.fft.fftshift(a), m.fft.ifftshift(a, 1)],
    "stft": lambda m, a: m.fft.irfft(
        m.stft(a, 4, 2, window=m.hann_window(4, dtype=m.float64), return_complex=True), dim=-2
    ),
    "stft of frames": lambda m, a: m.fft.irfft(
        m.stft(a, 4, 1, 3, m.ones(3, dtype=m.float64), False, normalized=True, return_complex=True), dim=-2
    ),
    "istft": lambda m, a: m.istft(m.stft(a, 4, 1, window=ones(m), return_complex=True), 4, 1, window=ones(m)),
    "istft of a length": lambda m, a: m.istft(
        m.stft(a, 4, 1, window=ones(m), onesided=False, normalized=True, return_complex=True),
        *(4, 1, 4, ones(m), True, True, False, 5),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_same(name: str, compare: Callable[..., None]) -> None:
    compare(CALLS[name], numbers(3, 6))


WINDOWS = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")


def test_windows(compare_program: Callable[..., None]) -> None:
    def windows(m: Any) -> Any:
        older = [getattr(m, n)(k, p, dtype=m.float64) for n in WINDOWS for k in (0, 1, 6, 7) for p in (True, False)]
        names = ("bartlett", "blackman", "cosine", "exponential", "gaussian", "hamming", "hann", "kaiser", "nuttall")
        of_signal = m.signal.windows
        newer = [
            getattr(of_signal, n)(k, sym=s, dtype=m.float64) for n in names for k in (0, 1, 6) for s in (True, False)
        ]
        return (
            older + newer + [of_signal.general_cosine(5, a=[0.3, 0.7]), of_signal.exponential(5, center=1, sym=False)]
        )

    compare_program(windows)


ERRORS: dict[str, Callable[..., Any]] = {
    "no points": lambda m, a: m.fft.fft(a, 0),
    "norm": lambda m, a: m.fft.fft(a, norm="other"),
    "dim": lambda m, a: m.fft.fft(a, dim=4),
    "dims twice": lambda m, a: m.fft.fftn(a, dim=(0, 0)),
    "sizes": lambda m, a: m.fft.fft2(a, (1, 2, 3)),
    "complex": lambda m, a: m.fft.rfft(m.fft.fft(a)),
    "frames": lambda m, a: m.stft(a, 100, return_complex=True),
    "hop": lambda m, a: m.stft(a, 4, -1, return_complex=True),
    "real spectra": lambda m, a: m.istft(a, 4),
    "std": lambda m, a: m.signal.windows.gaussian(4, std=-1),
}


@pytest.mark.parametrize("name", ERRORS)
def test_refused(name: str, compare_errors: Callable[..., None]) -> None:
    compare_errors(ERRORS[name], numbers(3, 6))


VIEWS: dict[str, Callable[[Any], Any]] = {
    "rows expanded": lambda x: x[:1].expand(4, 3, 4),
    "columns expanded": lambda x: x[..., :1].expand(2, 3, 6),
    "one number": lambda x: x[0, 0, 0].expand(3, 4),
    "overlapping": lambda x: x.flatten().unfold(0, 3, 1),
    "every other": lambda x: x[..., ::2],
}


@pytest.mark.parametrize("transform", ["fft", "ifft", "fft2", "rfft", "irfftn", "hfft"])
@pytest.mark.parametrize("view", VIEWS)
def test_views(view: str, transform: str) -> None:
    """Elements that stand for several, or lie anywhere: libraries of transforms do not take all of them."""
    for whole in (False, True):
        found = []
        for m in (ts, torch):
            x = m.arange(24.0).reshape(2, 3, 4) / 7
            x = m.complex(x, x.flip(0)) if whole and transform != "rfft" else x
            found.append(getattr(m.fft, transform)(VIEWS[view](x)).resolve_conj().numpy())
        assert np.allclose(*found, atol=1e-4)


@pytest.mark.parametrize("name", ["hann", "hamming", "blackman", "bartlett", "kaiser"])
def test_windows_where_the_default_device_is_meta(name: str, device: Any) -> None:
    for module, target in ((torch, "cpu"), (ts, device)):
        make = getattr(module, f"{name}_window")
        usual = make(6, device=target)
        with module.device("meta"):
            assert [tuple(make(n).shape) for n in (0, 1, 6)] == [(0,), (1,), (6,)] and make(6).is_meta
            assert make(6, device=usual.device).tolist() == usual.tolist()
