"""Short-time Fourier transforms, and windows by their older names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tesserack as ts
from tesserack._tensor.subclass import has_no_memory
from tesserack.ops.results import strided_only
from tesserack.ops.signal import windows
from tesserack.utils.warnings import warn_once

if TYPE_CHECKING:
    from tesserack import Tensor

__all__ = [
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "istft", "kaiser_window", "stft",
]  # fmt: skip


def _checked(op: str, window_length: int, dtype: Any, layout: Any) -> None:
    strided_only(op, layout, RuntimeError)
    if window_length < 0:
        raise RuntimeError(f"{op}: requires non-negative window_length, got window_length={window_length}")
    if dtype is not None and not dtype.is_floating_point:
        raise RuntimeError(f"{op}: expects floating point dtypes, got {dtype}")


def hann_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.5 - 0.5 cos(x): ``signal.windows.hann``, not symmetric unless told so."""
    _checked("hann_window", window_length, dtype, layout)
    return windows.hann(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta cos(x)."""
    _checked("hamming_window", window_length, dtype, layout)
    return windows.general_cosine(
        window_length, a=[alpha, beta], sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad
    )


def bartlett_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """A triangle: ``signal.windows.bartlett``, not symmetric unless told so."""
    _checked("bartlett_window", window_length, dtype, layout)
    return windows.bartlett(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def blackman_window(
    window_length: int,
    periodic: bool = True,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """0.42 - 0.5 cos(x) + 0.08 cos(2 x)."""
    _checked("blackman_window", window_length, dtype, layout)
    return windows.blackman(window_length, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:
    """``signal.windows.kaiser``, not symmetric unless told so."""
    _checked("kaiser_window", window_length, dtype, layout)
    return windows.kaiser(
        window_length, beta=beta, sym=not periodic, dtype=dtype, device=device, requires_grad=requires_grad
    )


def _window_of(window: Tensor | None, win_length: int, n_fft: int, like: Tensor, op: str) -> Tensor:
    """The window in the middle of n_fft points."""
    dtype = like.dtype.to_real() if like.is_complex() else like.dtype
    if window is None:
        window = ts.ones(win_length, dtype=dtype, device=like.device)
    elif window.dim() != 1 or window.shape[0] != win_length:
        raise RuntimeError(f"{op}: expected a 1D window tensor of size equal to win_length={win_length}, got window of "
                           f"size {list(window.shape)}")  # fmt: skip
    left = (n_fft - win_length) // 2
    return ts.nn.functional.pad(window, (left, n_fft - win_length - left)) if win_length < n_fft else window


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Spectra of overlapping frames of a signal (T) or (B, T): (..., frequencies, frames), complex.

    Frames of ``n_fft`` points are ``hop_length`` apart (n_fft // 4) and multiplied by ``window``; with ``center`` frame
    t is about point t * hop_length of the padded signal. Without ``return_complex`` the last dim holds both parts.
    """
    hop, win = n_fft // 4 if hop_length is None else hop_length, win_length or n_fft
    if return_complex is None and not (input.is_complex() or (window is not None and window.is_complex())):
        raise RuntimeError("stft: requires the return_complex parameter be given for real inputs, and will further "
                           "require that return_complex=True in a future PyTorch release.")  # fmt: skip
    if return_complex is False:
        warn_once("stft with return_complex=False is deprecated. In a future pytorch release, stft will return complex "
                  "tensors for all inputs, and return_complex=False will raise an error.")  # fmt: skip
    if window is None:
        warn_once("A window was not provided. A rectangular window will be applied, which is known to cause spectral "
                  "leakage. Other windows such as torch.hann_window are recommended to reduce it.")  # fmt: skip
    if input.dim() not in (1, 2) or not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(
            f"stft: expected a 1D or 2D tensor of floating types, got {list(input.shape)} of {input.dtype}"
        )
    if align_to_window is not None and center:
        raise RuntimeError("stft: align_to_window should only be set when center = false.")
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        pad = n_fft // 2
        x = ts.nn.functional.pad(x.unsqueeze(1), (pad, pad), mode=pad_mode).squeeze(1)
    elif align_to_window:
        left = (n_fft - win) // 2
        x = ts.nn.functional.pad(x, (left, n_fft - win - left))
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {x.shape[-1]}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < win <= n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={win}")
    frames = x.unfold(-1, n_fft, hop)
    if window is not None or win < n_fft:
        frames = frames * _window_of(window, win, n_fft, x, "stft")
    half = not frames.is_complex() if onesided is None else onesided
    if half and frames.is_complex():
        raise RuntimeError("stft: Cannot have onesided output if window or input is complex")
    transform = ts.fft.rfft if half else ts.fft.fft
    found = transform(frames, norm="ortho" if normalized else None).transpose(-1, -2)
    if input.dim() == 1:
        found = found.squeeze(0)
    return ts.view_as_real(found) if return_complex is False else found


def _overlap_add(frames: Tensor, hop: int) -> Tensor:
    """Frames (B, frames, n) summed where they lie, ``hop`` apart."""
    count, n = frames.shape[-2:]
    columns = frames.transpose(-1, -2)
    size = (1, n + hop * (count - 1))
    summed: Tensor = ts.nn.functional.fold(columns, size, (1, n), stride=(1, hop))
    return summed.reshape(frames.shape[0], size[1])


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose ``stft`` with the same arguments is nearest to ``input`` (Griffin and Lim, 1984).

    Raises ``RuntimeError`` where the squares of the overlapping windows nearly vanish.
    """
    hop, win = n_fft // 4 if hop_length is None else hop_length, win_length or n_fft
    if not input.is_complex() or input.dim() not in (2, 3) or 0 in input.shape:
        raise RuntimeError(f"istft: requires a complex-valued input tensor with 2 or 3 dimensions and elements, got "
                           f"{list(input.shape)} of {input.dtype}")  # fmt: skip
    half = input.shape[-2] != n_fft if onesided is None else onesided
    expected = n_fft // 2 + 1 if half else n_fft
    if input.shape[-2] != expected:
        raise RuntimeError(f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match "
                           f"n_fft / 2 + 1 when onesided=True, or n_fft, but got {input.shape[-2]}")  # fmt: skip
    if not 0 < hop <= win <= n_fft:
        raise RuntimeError(f"istft: expected 0 < hop_length <= win_length <= n_fft, but got {hop}, {win} and {n_fft}")
    if return_complex and half:
        raise RuntimeError("istft: expected onesided=False for a complex signal, but got onesided=True")
    if window is None:
        warn_once("A window was not provided. A rectangular window will be applied. Please provide the same window "
                  "used by stft to make the inversion lossless.")  # fmt: skip
    spectra = (input if input.dim() == 3 else input.unsqueeze(0)).transpose(-1, -2)
    norm = "ortho" if normalized else None
    if return_complex:
        frames = ts.fft.ifft(spectra, norm=norm)
    else:  # of a whole spectrum the half that tells a real signal
        frames = ts.fft.irfft(spectra[..., : n_fft // 2 + 1], n_fft, norm=norm)
    weights = _window_of(window, win, n_fft, input, "istft").to(frames.device)
    signal = _overlap_add(frames * weights, hop)
    envelope = _overlap_add((weights * weights).expand(1, frames.shape[-2], n_fft), hop)
    start = n_fft // 2 if center else 0
    whole = signal.shape[-1]
    end = start + length if length is not None else whole - n_fft // 2 if center else whole
    signal, envelope = signal[:, start : min(end, whole)], envelope[:, start : min(end, whole)]
    if not envelope.is_meta and not has_no_memory(envelope) and float(envelope.abs().min()) <= 1e-11:
        raise RuntimeError("istft: window overlap add min: 1; expected no point where the windows vanish")
    found = signal / envelope
    if end > whole:
        warn_once("The length of signal is shorter than the length parameter. Result is being padded with zeros in the "
                  "tail. Please check your center and hop_length settings.")  # fmt: skip
        found = ts.nn.functional.pad(found, (0, end - whole))
    return found if input.dim() == 3 else found.squeeze(0)
