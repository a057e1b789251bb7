"""Discrete Fourier transforms, with the names of ``torch.fft``.

The transforms themselves are oneMKL's where the package ``mkl`` is installed (``pip install "tesserack-cpu[mkl]"``;
``TESSERACK_FFT=scipy`` turns it off), or else pocketfft's, through SciPy or NumPy, on the host. Cards with the kernel
``fft_rows`` transform what lies there; tensors of others are copied to the host and back, which counts as a fallback.
``norm`` is "backward" (the inverse is scaled by 1/n), "ortho" (both by 1/sqrt(n)) or "forward".

>>> import tesserack as ts
>>> ts.fft.irfft(ts.fft.rfft(ts.tensor([1.0, 2.0, 3.0])), n=3).tolist()
[1.0, 2.0, 3.0]
"""

from __future__ import annotations

from tesserack.ops.fft._frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from tesserack.ops.fft._functions import (
    fft,
    fft2,
    fftn,
    hfft,
    hfft2,
    hfftn,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    ihfft2,
    ihfftn,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2", "ifftn", "ifftshift",
    "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip
