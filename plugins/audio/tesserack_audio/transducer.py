"""The loss of transducers: Graves, "Sequence Transduction with Recurrent Neural Networks", 2012."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["OPERATORS", "rnnt_loss_forward"]


def _check(logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int) -> None:
    if logits.ndim != 4 or targets.ndim != 2:
        raise RuntimeError(
            "rnnt_loss: logits must be 4-D (batch, time, target + 1, class) and targets 2-D, got "
            f"{tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    if not logits.is_floating_point():
        raise RuntimeError(f"rnnt_loss: logits must be float32 or float16 (half) type, got {logits.dtype}")
    for name, given in (("targets", targets), ("logit_lengths", logit_lengths), ("target_lengths", target_lengths)):
        if given.dtype is not ts.int32:
            raise RuntimeError(f"rnnt_loss: {name} must be int32 type, got {given.dtype}; try .to(int32)")
    n, t, u, c = logits.shape
    if targets.shape[0] != n or logit_lengths.numel() != n or target_lengths.numel() != n:
        raise RuntimeError(
            f"rnnt_loss: batch dimension mismatch between logits, targets and lengths: expected {n}, got "
            f"{targets.shape[0]}, {logit_lengths.numel()} and {target_lengths.numel()}"
        )
    if not 0 <= blank < c:
        raise RuntimeError(f"rnnt_loss: blank must be within [0, {c}), got {blank}")
    if n and int(logit_lengths.max().item()) != t:
        raise RuntimeError(f"rnnt_loss: input length mismatch: expected {t}, got {logit_lengths.tolist()}")
    if n and int(target_lengths.max().item()) + 1 != u:
        raise RuntimeError(f"rnnt_loss: output length mismatch: expected {u - 1}, got {target_lengths.tolist()}")
    if targets.shape[1] != u - 1:
        raise RuntimeError(f"rnnt_loss: target length mismatch: expected {u - 1} columns, got {targets.shape[1]}")


def _costs(log_probs: Tensor, targets: Tensor, times: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """Minus the logarithm of the sum over all paths, one time step after the other.

    Along the labels of one step ``alpha[u] = logaddexp(start[u], alpha[u - 1] + emit[u - 1])`` is a cumulative sum in
    logarithms once what was emitted so far is taken off.
    """
    silent = log_probs[..., blank]  # (N, T, U)
    index = targets.to(ts.int64)[:, None, :, None].expand(-1, log_probs.shape[1], -1, 1)
    emitted = log_probs[:, :, :-1].gather(3, index).squeeze(3)  # (N, T, U - 1)
    so_far = ts.cat([emitted.new_zeros((*emitted.shape[:2], 1)), emitted.cumsum(2)], 2)
    alpha, rows = so_far[:, 0], []
    for step in range(log_probs.shape[1]):
        if step:
            start = alpha + silent[:, step - 1]
            alpha = (start - so_far[:, step]).logcumsumexp(1) + so_far[:, step]
        rows.append(alpha + silent[:, step])
    ends = ts.stack(rows, 1)
    batch = ts.arange(len(targets), device=log_probs.device)
    return -ends[batch, times.to(ts.int64) - 1, lengths.to(ts.int64)]


def rnnt_loss_forward(
    logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor, blank: int, clamp: float,
    fused_log_softmax: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """(N,) of losses of (N, T, U + 1, C) logits for (N, U) labels, and their gradients with respect to the logits.

    Gradients are kept within ``clamp`` where that is positive. Without ``fused_log_softmax`` logits are log
    probabilities already.
    """
    _check(logits, targets, logit_lengths, target_lengths, blank)
    with ts.enable_grad():
        wide = logits.detach().float() if logits.dtype is not ts.float64 else logits.detach()
        wide.requires_grad_()
        costs = _costs(
            wide.log_softmax(-1) if fused_log_softmax else wide, targets, logit_lengths, target_lengths, blank
        )
        (grad,) = ts.autograd.grad(costs.sum(), wide)
    if clamp > 0:
        grad = grad.clamp(-clamp, clamp)
    return costs.detach().to(logits.dtype), grad.to(logits.dtype)


OPERATORS: dict[str, Any] = {
    "rnnt_loss_forward(Tensor logits, Tensor targets, Tensor logit_lengths, Tensor target_lengths, int blank, "
    "float clamp, bool fused_log_softmax=True) -> (Tensor, Tensor)": rnnt_loss_forward,
}
