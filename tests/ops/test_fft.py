"""Fourier transforms against NumPy, their gradients, short-time transforms and windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal
import tesserack as ts
from tesserack.autograd.gradcheck import gradcheck, gradgradcheck

NORMS = [None, "backward", "ortho", "forward"]


def signal(*shape: int, kind: str = "float64") -> Any:
    random = np.random.default_rng(1)
    values = random.standard_normal(shape)
    return (values + 1j * random.standard_normal(shape) if kind.startswith("c") else values).astype(kind)


def agree(found: ts.Tensor, expected: Any, tolerance: float = 1e-10) -> None:
    array = found.numpy(force=True)
    assert array.shape == expected.shape
    np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("n", [None, 3, 9])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_dim(name: str, n: int | None, norm: str | None, device: ts.device) -> None:
    for kind in ["float64"] if name in ("rfft", "ihfft") else ["float64", "complex128"]:
        for dim in (0, -1):
            x = signal(5, 6, kind=kind)
            found = getattr(ts.fft, name)(ts.tensor(x, device=device), n, dim, norm)
            agree(found, getattr(np.fft, name)(x, n, dim, norm))
            assert found.is_complex() == (name not in ("irfft", "hfft"))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft"])
def test_many_dims(name: str, norm: str | None, device: ts.device) -> None:
    x = signal(3, 4, 6, kind="float64" if name == "rfft" else "complex128")
    for args in [(None, None), ((4, 5), None), ((5, 3), (0, 2)), (None, (2, 0))]:
        if args[0] is not None and args[1] is None:
            expected = getattr(np.fft, f"{name}n")(x, args[0], (1, 2), norm)
        else:
            expected = getattr(np.fft, f"{name}n")(x, *args, norm)
        agree(getattr(ts.fft, f"{name}n")(ts.tensor(x, device=device), *args, norm), expected)
    agree(
        getattr(ts.fft, f"{name}2")(ts.tensor(x, device=device), norm=norm), getattr(np.fft, f"{name}2")(x, norm=norm)
    )


def test_hermitian_in_many_dims_is_undone(device: ts.device) -> None:
    x = ts.tensor(signal(4, 6), device=device)
    for forward, back in ((ts.fft.ihfft2, ts.fft.hfft2), (ts.fft.ihfftn, ts.fft.hfftn)):
        agree(back(forward(x, norm="ortho"), s=(4, 6), norm="ortho"), x.numpy(force=True))


def test_dtypes_layouts_and_empty(device: ts.device) -> None:
    assert ts.fft.fft(ts.arange(4, device=device)).dtype is ts.complex64
    assert ts.fft.rfft(ts.ones(4, dtype=ts.float32, device=device)).dtype is ts.complex64
    assert ts.fft.irfft(ts.ones(4, dtype=ts.complex64, device=device)).dtype is ts.float32
    assert ts.fft.fft(ts.ones(0, 3, device=device)).shape == (0, 3)
    x = signal(4, 6)
    agree(ts.fft.fft(ts.tensor(x, device=device).T[::2]), np.fft.fft(x.T[::2]))
    out = ts.empty(0, dtype=ts.complex128, device=device)
    assert ts.fft.fft(ts.tensor(x, device=device), out=out) is out
    agree(out, np.fft.fft(x))


def test_errors(device: ts.device) -> None:
    x = ts.ones(3, device=device)
    for call in (
        lambda: ts.fft.fft(x, 0),
        lambda: ts.fft.fft(x, norm="sideways"),
        lambda: ts.fft.rfft(ts.ones(3, dtype=ts.complex64, device=device)),
        lambda: ts.fft.fftn(x, dim=(0, 0)),
        lambda: ts.fft.fftn(x, (3, 3)),
        lambda: ts.fft.fft(x.half()),
        lambda: ts.fft.fft(x, out=ts.empty(3, device=device)),
    ):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(IndexError):
        ts.fft.fft(x, dim=2)


def parts(x: ts.Tensor) -> ts.Tensor:
    """What a gradient can be checked through without complex numbers: the other way back, which is linear."""
    return ts.fft.irfft(x, 7)


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("n", [None, 4, 8])
def test_gradients(n: int | None, norm: str | None, device: ts.device) -> None:
    x = ts.tensor(signal(2, 6), device=device, requires_grad=True)
    for name in ("rfft", "ihfft", "fft", "ifft"):
        assert gradcheck(lambda t: parts(getattr(ts.fft, name)(t, n, norm=norm)), (x,))  # noqa: B023
        assert gradgradcheck(lambda t: parts(getattr(ts.fft, name)(t, n, norm=norm)) ** 2, (x,))  # noqa: B023
    assert gradcheck(lambda t: ts.fft.hfft(ts.fft.rfft(t), n, norm=norm), (x,))
    assert gradcheck(lambda t: ts.fft.irfft2(ts.fft.rfft2(t, (3, 5), norm=norm)), (x,))


def test_frequencies(device: ts.device) -> None:
    for n in (4, 5):
        agree(ts.fft.fftfreq(n, 0.5, dtype=ts.float64), np.fft.fftfreq(n, 0.5))
        agree(ts.fft.rfftfreq(n, 0.5, dtype=ts.float64), np.fft.rfftfreq(n, 0.5))
    x = signal(4, 5)
    for dim in (None, 0, (1, 0)):
        agree(ts.fft.fftshift(ts.tensor(x, device=device), dim), np.fft.fftshift(x, dim))
        agree(ts.fft.ifftshift(ts.tensor(x, device=device), dim), np.fft.ifftshift(x, dim))


@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("size", [0, 1, 2, 7, 64])
def test_windows(size: int, sym: bool) -> None:
    windows: dict[str, tuple[Any, ...]] = {
        "hann": (), "hamming": (), "blackman": (), "bartlett": (), "nuttall": (), "cosine": (),
        "kaiser": (9.5,), "gaussian": (1.7,), "general_hamming": (0.6,), "general_cosine": ([0.3, 0.5, 0.2],),
    }  # fmt: skip
    options = {"kaiser": "beta", "gaussian": "std", "general_hamming": "alpha", "general_cosine": "a"}
    for name, args in windows.items():
        given = {options[name]: args[0]} if args else {}
        found = getattr(ts.signal.windows, name)(size, sym=sym, dtype=ts.float64, **given)
        known = scipy.signal.get_window((name, *args) if args else name, size, fftbins=not sym) if size else np.ones(0)
        np.testing.assert_allclose(found.numpy(force=True), known, atol=1e-12, err_msg=name)
    agree(ts.hann_window(8, dtype=ts.float64), scipy.signal.get_window("hann", 8))


@pytest.mark.parametrize("n_fft", [8, 9])
@pytest.mark.parametrize("shape", [(50,), (2, 50)])
def test_short_time_transforms_are_undone(shape: tuple[int, ...], n_fft: int, device: ts.device) -> None:
    x = ts.tensor(signal(*shape), device=device)
    window = ts.hann_window(n_fft, dtype=ts.float64, device=device)
    for onesided in (True, False):
        for normalized in (True, False):
            options: dict[str, Any] = {
                "hop_length": 3,
                "window": window,
                "normalized": normalized,
                "onesided": onesided,
            }
            spectra = ts.stft(x, n_fft, return_complex=True, **options)
            assert spectra.shape[-2] == (n_fft // 2 + 1 if onesided else n_fft)
            agree(ts.istft(spectra, n_fft, length=50, **options), x.numpy(force=True), 1e-9)
    framed = ts.stft(x, n_fft, 2, center=False, return_complex=True)
    agree(framed[..., 0], np.fft.rfft(x.numpy(force=True)[..., :n_fft]))


def test_signals_without_a_window_or_longer_than_their_frames_are_told():
    before = ts.is_warn_always_enabled()
    ts.set_warn_always(True)
    try:
        with pytest.warns(UserWarning, match="window was not provided"):
            spectra = ts.stft(ts.ones(64), 16, return_complex=True)
        with pytest.warns(UserWarning, match="window was not provided"):
            ts.istft(spectra, 16)
        with pytest.warns(UserWarning, match="shorter than the length"):
            assert ts.istft(spectra, 16, window=ts.hann_window(16), length=80)[72:].eq(0).all()
    finally:
        ts.set_warn_always(before)
