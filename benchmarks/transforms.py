"""Decompositions of matrices and Fourier transforms, where the time is a library's."""

from __future__ import annotations

from typing import Any

from rows import Setup, row


def _matrix(*shape: int, definite: bool = False) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        a = fw.randn(*shape, device=device)
        b = a @ a.transpose(-1, -2) + shape[-1] * fw.eye(shape[-1], device=device) if definite else a
        return {"linalg": fw.linalg, "a": b}

    setup.__module__ = __name__
    return setup


for _shape in ((512, 512), (1000, 8, 8)):
    _name = "x".join(map(str, _shape))
    row(f"solve {_name}", "linalg.solve(a, a)", limit=1.1)(_matrix(*_shape))
    row(f"inv {_name}", "linalg.inv(a)", limit=1.3)(_matrix(*_shape))
    row(f"cholesky {_name}", "linalg.cholesky(a)", limit=1.1)(_matrix(*_shape, definite=True))
    row(f"qr {_name}", "linalg.qr(a)", limit=1.1)(_matrix(*_shape))
    row(f"eigh {_name}", "linalg.eigh(a)", limit=1.1)(_matrix(*_shape, definite=True))
    row(f"svd {_name}", "linalg.svd(a, full_matrices=False)", limit=1.1)(_matrix(*_shape))


def _signal(*shape: int) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        return {"fft": fw.fft, "x": fw.randn(*shape, device=device)}

    setup.__module__ = __name__
    return setup


row("rfft 1048576", "fft.rfft(x)", limit=1.1)(_signal(1 << 20))
row("fft 256x4096", "fft.fft(x)", limit=1.1)(_signal(256, 4096))
row("fft2 16x256x256", "fft.fft2(x)", limit=1.1)(_signal(16, 256, 256))
row("fft 4096x64", "fft.fft(x)", limit=1.1)(_signal(4096, 64))
row("fft 512x1000", "fft.fft(x)", limit=1.1)(_signal(512, 1000))
row("fft 512x1009", "fft.fft(x)", limit=1.1)(_signal(512, 1009))
row("rfft2 16x224x224", "fft.rfft2(x)", limit=1.1)(_signal(16, 224, 224))


@row("stft 4x32000, 400 by 160", "fw.stft(x, 400, 160, window=window, return_complex=True)", limit=1.1)
def stft(fw: Any, device: str) -> dict[str, Any]:
    return {"fw": fw, "x": fw.randn(4, 32000, device=device), "window": fw.hann_window(400, device=device)}
