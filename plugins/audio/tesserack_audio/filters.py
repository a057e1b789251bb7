"""Recursive filters: each sample depends on those before it.

Within a block of samples the recursion is a product with its answer to an impulse, found once for all blocks; only what
the samples before the block add is carried on.
"""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["OPERATORS", "lfilter_core_loop", "overdrive_core_loop"]

BLOCK = 256


def _recursion(samples: Tensor, coefficients: Tensor, before: Tensor) -> Tensor:
    """``y[t] = x[t] - sum_k a[k] y[t - k]`` for ``k`` from 1 on.

    ``samples`` is (N, C, T), ``coefficients`` (C, K) are a[1], a[2], ..., ``before`` (N, C, K) the last results before
    the first sample, the latest last. Computed in float64, as errors are fed back.
    """
    x, a = samples.double(), coefficients.double()
    channels, order = a.shape
    block = min(BLOCK, x.shape[2])
    steps = ts.arange(block, device=x.device)
    lag = steps[:, None] - steps[None]
    answer = ts.cat([_answer(a, block), a.new_zeros((channels, 1))], 1)
    inverse = answer[:, lag.where(lag >= 0, block)]
    # Of what came before, row t takes a[t + order - s] at column s.
    padded = ts.cat([a.new_ones((channels, 1)), a, a.new_zeros((channels, 1))], 1)
    earlier = steps[:, None] + order - ts.arange(order, device=x.device)[None]
    carried = padded[:, earlier.clamp(max=order + 1)]
    past, made = before.double(), []
    for first in range(0, x.shape[2], block):
        part = x[:, :, first : first + block]
        n = part.shape[2]
        known = part - ts.einsum("cts,bcs->bct", carried[:, :n], past)
        result = ts.einsum("cts,bcs->bct", inverse[:, :n, :n], known)
        made.append(result)
        past = ts.cat([past, result], 2)[:, :, -order:] if order else past
    return ts.cat(made, 2).to(samples.dtype)


def _answer(a: Tensor, length: int) -> Tensor:
    """The first results for 1, 0, 0, ... of filters (C, K), step by step.

    To solve a system for all at once loses as many digits as the answer of a filter of high order grows by.
    """
    latest = ts.zeros_like(a)  # the last one first
    made = [a.new_ones((a.shape[0], 1))]
    for _ in range(length - 1):
        latest = ts.cat([made[-1], latest], 1)[:, : a.shape[1]]
        made.append(-(a * latest).sum(1, keepdim=True))
    return ts.cat(made, 1)


def lfilter_core_loop(input_signal_windows: Tensor, a_coeffs_flipped: Tensor, padded_output_waveform: Tensor) -> None:
    """(N, C, T) through the recursion of (C, K) coefficients, a[0] last and taken for 1, into (N, C, K - 1 + T)."""
    if input_signal_windows.ndim != 3 or a_coeffs_flipped.ndim != 2:
        raise RuntimeError(
            "_lfilter_core_loop: expected samples of 3 dims and coefficients of 2, got "
            f"{tuple(input_signal_windows.shape)} and {tuple(a_coeffs_flipped.shape)}"
        )
    n, channels, length = input_signal_windows.shape
    order = a_coeffs_flipped.shape[1]
    if a_coeffs_flipped.shape[0] != channels or tuple(padded_output_waveform.shape) != (
        n,
        channels,
        length + order - 1,
    ):
        raise RuntimeError(
            f"_lfilter_core_loop: expected coefficients of {channels} channels and a result of "
            f"{(n, channels, length + order - 1)}, got {tuple(a_coeffs_flipped.shape)} and "
            f"{tuple(padded_output_waveform.shape)}"
        )
    if not length:
        return
    before = padded_output_waveform[:, :, : order - 1]
    made = _recursion(input_signal_windows, a_coeffs_flipped.flip(1)[:, 1:], before)
    padded_output_waveform[:, :, order - 1 :] = made


def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output_waveform: Tensor
) -> None:
    """The effect of SoX: a filter against a constant, y[t] = x[t] - x[t - 1] + 0.995 y[t - 1], mixed with (C, T)."""
    if waveform.ndim != 2 or temp.shape != waveform.shape or output_waveform.shape != waveform.shape:
        raise RuntimeError(
            "_overdrive_core_loop: expected three tensors of one shape (C, T), got "
            f"{tuple(waveform.shape)}, {tuple(temp.shape)} and {tuple(output_waveform.shape)}"
        )
    if not waveform.shape[1]:
        return
    steps = temp - ts.cat([last_in[:, None], temp[:, :-1]], 1)
    feedback = temp.new_full((temp.shape[0], 1), -0.995)
    filtered = _recursion(steps[None], feedback, last_out[None, :, None])[0]
    output_waveform.copy_(waveform * 0.5 + filtered * 0.75)
    last_in.copy_(temp[:, -1])
    last_out.copy_(filtered[:, -1])


OPERATORS: dict[str, Any] = {
    "_lfilter_core_loop(Tensor input_signal_windows, Tensor a_coeffs_flipped, Tensor(a!) padded_output_waveform) "
    "-> ()": lfilter_core_loop,
    "_overdrive_core_loop(Tensor waveform, Tensor temp, Tensor(a!) last_in, Tensor(b!) last_out, "
    "Tensor(c!) output_waveform) -> ()": overdrive_core_loop,
}
