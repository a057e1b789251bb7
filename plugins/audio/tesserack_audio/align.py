"""The most likely path of labels through the outputs of a CTC model: Graves et al., "Connectionist Temporal
Classification", 2006, with Viterbi's maximum in place of the sum."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor

__all__ = ["OPERATORS", "forced_align"]


def forced_align(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int
) -> tuple[Tensor, Tensor]:
    """(1, T, C) log probabilities and (1, L) labels: (1, T) of the label at each step, and ``log_probs`` again.

    Raises ``RuntimeError`` for more than one sequence, and where T is shorter than the labels and their repeats.
    """
    for name, value, ndim, shape in (("log_probs", log_probs, 3, "(1, T, C)"), ("targets", targets, 2, "(1, L)")):
        if value.ndim != ndim or value.shape[0] != 1:
            several = "The batch dimension for {0} must be 1 at the current version" if value.ndim == ndim else "{0}"
            text = several.format(name)
            raise RuntimeError(f"forced_align: {text}: expected shape {shape}, got {tuple(value.shape)}")
    for name, lengths in (("input_lengths", input_lengths), ("target_lengths", target_lengths)):
        if lengths.ndim != 1 or not lengths.numel():
            raise RuntimeError(f"forced_align: {name} must be 1-D, of one length, got {tuple(lengths.shape)}")
    if targets.dtype not in (ts.int32, ts.int64):
        raise RuntimeError(f"forced_align: targets must be int32 or int64 type, got {targets.dtype}")
    if not log_probs.is_floating_point():
        raise RuntimeError(
            f"forced_align: log_probs must be float64, float32 or float16 (half) type, got {log_probs.dtype}"
        )
    if not 0 <= blank < log_probs.shape[2]:
        raise RuntimeError(f"forced_align: blank must be within [0, {log_probs.shape[2]}), got {blank}")
    steps, labels = int(input_lengths[0].item()), int(target_lengths[0].item())
    if steps != log_probs.shape[1] or labels != targets.shape[1]:
        raise RuntimeError(
            f"forced_align: input length mismatch or target length mismatch: expected {log_probs.shape[1]} and "
            f"{targets.shape[1]}, got {steps} and {labels}"
        )
    row = targets[0].to(ts.int64)
    repeats = int((row[1:] == row[:-1]).sum().item())
    if steps < labels + repeats:
        raise RuntimeError(
            f"forced_align: targets length is too long for CTC. Found log_probs length: {steps}, targets length: "
            f"{labels}, and number of repeats: {repeats}"
        )
    states = ts.full((2 * labels + 1,), blank, dtype=ts.int64, device=log_probs.device)
    states[1::2] = row
    skips = ts.zeros_like(states, dtype=ts.bool)  # a label may follow another without a blank between
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    path = _best(log_probs[0, :, states].cpu(), skips.cpu())
    return states[path.to(states.device)][None].to(targets.dtype), log_probs.clone()


def _best(scores: Tensor, skips: Tensor) -> Tensor:
    """The state at each step of (T, S) scores: a path stays in a state, goes on by one, or by two where it may."""
    steps, count = scores.shape
    never = scores.new_full((count,), -float("inf"))
    alpha = never.clone()
    alpha[: min(2, count)] = scores[0, : min(2, count)]
    choices = []
    for step in range(1, steps):
        one, two = never.clone(), never.clone()
        one[1:] = alpha[:-1]
        two[2:] = alpha[:-2]
        alpha, came = ts.stack([alpha, one, two.where(skips, never)]).max(0)
        alpha = alpha + scores[step]
        choices.append(came.tolist())
    state = count - 1 if count == 1 or alpha[-1].item() > alpha[-2].item() else count - 2
    path = [state]
    for came in reversed(choices):
        state -= came[state]
        path.append(state)
    return ts.tensor(path[::-1])


OPERATORS: dict[str, Any] = {
    "forced_align(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank) "
    "-> (Tensor, Tensor)": forced_align,
}
