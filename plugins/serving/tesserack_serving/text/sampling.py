"""Choosing the next token of many sequences at once."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import tesserack as ts
from tesserack import Tensor

from tesserack_serving.text.model import Sampling

__all__ = ["choose"]


def choose(scores: Tensor, options: Sequence[Sampling], random: Sequence[Random]) -> list[int]:
    """A token for each row of ``scores`` (sequences, words). Each draws from a generator of its own.

    >>> choose(ts.tensor([[0.0, 2.0], [3.0, 0.0]]), [Sampling(), Sampling()], [Random(0), Random(0)])
    [1, 0]
    """
    drawn = [row for row, option in enumerate(options) if option.temperature > 0]
    chosen: list[int] = scores.argmax(-1).tolist() if len(drawn) < len(options) else [0] * len(options)
    if drawn:
        some = scores if len(drawn) == len(options) else scores[ts.tensor(drawn, device=scores.device)]
        tokens = _draw(some.float(), [options[row] for row in drawn], [random[row].random() for row in drawn])
        for row, token in zip(drawn, tokens, strict=True):
            chosen[row] = token
    return chosen


def _draw(scores: Tensor, options: Sequence[Sampling], numbers: Sequence[float]) -> list[int]:
    def column(values: Sequence[float]) -> Tensor:
        return ts.tensor([*values], dtype=scores.dtype, device=scores.device)[:, None]

    chances = (scores / column([option.temperature for option in options])).softmax(-1)
    chances, words = chances.sort(-1, descending=True)
    before = chances.cumsum(-1) - chances
    rank = ts.arange(chances.shape[-1], dtype=scores.dtype, device=scores.device)
    limit = column([option.top_k or chances.shape[-1] for option in options])
    kept = (rank < limit) & ((before < column([option.top_p for option in options])) | (rank == 0))
    total = (chances * kept).cumsum(-1)
    place = (total <= column(numbers) * total[:, -1:]).sum(-1, keepdim=True)
    place = ts.minimum(place, kept.sum(-1, keepdim=True) - 1)  # a number just below 1 may round up
    found: list[int] = words.gather(1, place)[:, 0].tolist()
    return found
