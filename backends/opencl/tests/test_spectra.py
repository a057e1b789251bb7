"""Fourier transforms on the device, with their gradients and along any dims; factorisations, which go to the cpu."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts


def both(run: Callable[..., Any], *operands: Any) -> None:
    """The same on the device and on the cpu, without a fallback, and the gradients."""
    results = []
    before = ts.backends.fallbacks()
    for device in ("opencl", "cpu"):
        leaves = [x.to(device).requires_grad_() for x in operands]
        found = run(*leaves)
        real = ts.view_as_real(found) if found.is_complex() else found
        weight = ts.linspace(-1, 1, real.numel(), dtype=real.dtype).reshape(real.shape).to(device)
        results.append([found.detach(), *ts.autograd.grad((real * weight).sum(), leaves)])
        if device == "opencl":
            assert found.is_contiguous()
            assert ts.backends.fallbacks() == before
    for got, expected in zip(*results, strict=True):
        ts.testing.assert_close(got.cpu(), expected, rtol=1e-5, atol=1e-4)


def test_any_dims_and_sizes() -> None:
    ts.manual_seed(3)
    x, z = ts.randn(4, 6, 5), ts.randn(4, 6, 5, dtype=ts.complex64)
    both(lambda z: ts.fft.fft(z, dim=0, norm="ortho"), z)
    both(lambda z: ts.fft.ifft2(z, (3, 8), dim=(1, 0)), z)
    both(lambda x: ts.fft.rfftn(x, norm="forward"), x)
    both(lambda x: ts.fft.fft(x, 8, 1), x)
    both(lambda z: ts.fft.irfftn(z, (6, 8), (1, 2)), z)
    both(lambda z: ts.fft.hfft2(z, dim=(0, 1)), z)
    both(lambda x: ts.fft.ihfft(x.transpose(0, 2), dim=1), x)
    both(lambda z: ts.fft.fft(z.conj().t(), dim=0), z[0])


def test_spectrograms() -> None:
    ts.manual_seed(4)
    window = ts.hann_window(16)

    def run(x: Any) -> Any:
        return ts.stft(x, 16, 4, window=window.to(x.device), return_complex=True).abs().square().mean(-1)

    both(run, ts.randn(2, 100))


@pytest.mark.parametrize("name", ["cholesky", "qr", "eigh", "svd", "inv", "lu_factor"])
def test_factorisations_are_counted_and_announced(name: str) -> None:
    x = ts.eye(3) * 4 + ts.ones(3, 3)
    ts.backends.reset_fallbacks()
    with pytest.warns(UserWarning, match="lapack_.*running it on the cpu, with copies"):
        getattr(ts.linalg, name)(x.to("opencl"))
    counted = ts.backends.fallbacks()
    assert counted
    assert all(name.startswith("lapack_") for name in counted), counted
    first = next(iter(counted))
    with ts.transfer_guard("error", kinds="fallback"), pytest.raises(RuntimeError, match=f"{first}.*opencl"):
        getattr(ts.linalg, name)(x.to("opencl"))
