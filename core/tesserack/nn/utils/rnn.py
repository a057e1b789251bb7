"""Sequences of different lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from tesserack import Tensor, full

__all__ = ["pad_sequence", "unpad_sequence"]


def pad_sequence(
    sequences: Tensor | Sequence[Tensor],
    batch_first: bool = False,
    padding_value: float = 0.0,
    padding_side: str = "right",
) -> Tensor:
    """Stack tensors (length, *) as (longest, number, *), or (number, longest, *) with ``batch_first``.

    Shorter ones are filled with ``padding_value`` on ``padding_side``, "left" or "right". Gradients reach every
    sequence. ``RuntimeError`` for another side, no sequences, or dims after the first that differ.

    >>> import tesserack as ts
    >>> pad_sequence([ts.tensor([1, 2, 3]), ts.tensor([4])], batch_first=True).tolist()
    [[1, 2, 3], [4, 0, 0]]
    """
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"pad_sequence: expected padding_side to be 'left' or 'right', got {padding_side!r}")
    if not len(sequences):
        raise RuntimeError("pad_sequence: expected at least one sequence")
    first = sequences[0]
    longest = max(len(sequence) for sequence in sequences)
    padded = full((len(sequences), longest, *first.shape[1:]), padding_value, dtype=first.dtype, device=first.device)
    for row, sequence in enumerate(sequences):
        if sequence.shape[1:] != first.shape[1:]:
            raise RuntimeError(f"pad_sequence: expected sequences of shape {first.shape[1:]}, got {sequence.shape[1:]}")
        start = 0 if padding_side == "right" else longest - len(sequence)
        padded[row, start : start + len(sequence)] = sequence
    return padded if batch_first else padded.transpose(0, 1).contiguous()


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences that ``pad_sequence`` filled on the right, as views of the lengths given.

    >>> import tesserack as ts
    >>> [s.tolist() for s in unpad_sequence(ts.tensor([[1, 2], [4, 0]]), ts.tensor([2, 1]), batch_first=True)]
    [[1, 2], [4]]
    """
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]
