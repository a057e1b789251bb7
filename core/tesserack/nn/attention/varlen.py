"""Attention within sequences of different lengths that lie one after the other, without padding."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F

__all__ = ["AuxRequest", "varlen_attn", "varlen_attn_out"]


class AuxRequest(NamedTuple):
    """What else :func:`varlen_attn` returns: with ``lse`` the logarithm of the sum of exponentials of the scores."""

    lse: bool = False


def varlen_attn(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Scaled dot-product attention of sequence by sequence.

    Args:
        query: (tokens, heads, width); ``key`` and ``value`` likewise, or (pages, page, heads, width) with a table.
        cu_seq_q: where sequences begin and, at last, end: (sequences + 1,) integers; ``cu_seq_k`` for keys, None where
            they are as long as ``seqused_k`` says.
        max_q, max_k: kept for programs that give them.
        return_aux: with ``lse`` also returns that, of shape (heads, tokens) in float32.
        window_size: how many keys to the left and right of its own place a query sees; -1 is all of them, (-1, 0) the
            past. Queries and keys end together.
        enable_gqa: each head of keys serves as many heads of queries as there are more of those.
        seqused_k: how many keys of each sequence count.
        block_table: (sequences, blocks): in which pages the keys of each sequence lie.

    Raises ``ValueError`` for numbers of heads that do not fit.

    >>> x, ends = ts.ones(5, 2, 4), ts.tensor([0, 2, 5])
    >>> varlen_attn(x, x, x, ends, ends, 3, 3).shape
    tesserack.Size([5, 2, 4])
    """
    heads, kv_heads = query.shape[1], key.shape[-2]
    if heads != kv_heads and not (enable_gqa and heads % kv_heads == 0):
        raise ValueError(
            f"varlen_attn: expected as many heads of keys as of queries, or with enable_gqa=True a divisor of them, "
            f"got {heads} of queries and {kv_heads} of keys"
        )
    ends = [int(end) for end in cu_seq_q.tolist()]
    spans = _spans(len(ends) - 1, cu_seq_k, seqused_k)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    outputs, sums = [], []
    for k, (first, last) in enumerate(pairwise(ends)):
        keys, values = (_part(x, spans[k], None if block_table is None else block_table[k]) for x in (key, value))
        one = (query[first:last].transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1))
        seen = _window(last - first, len(keys), window_size, query.device)
        result = F.scaled_dot_product_attention(*one, attn_mask=seen, scale=factor, enable_gqa=enable_gqa)
        outputs.append(result.transpose(0, 1))
        if return_aux is not None and return_aux.lse:
            sums.append(_log_sums(one[0], one[1], seen, factor))
    out = ts.cat(outputs) if outputs else ts.zeros_like(query)
    return (out, ts.cat(sums, 1)) if sums else out


def varlen_attn_out(
    out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    *,
    return_aux: AuxRequest | None = None,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """:func:`varlen_attn` into ``out``, of the shape of the queries."""
    result = varlen_attn(
        *(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k),
        return_aux=return_aux,
        scale=scale,
        window_size=window_size,
        enable_gqa=enable_gqa,
        seqused_k=seqused_k,
        block_table=block_table,
    )
    if isinstance(result, tuple):
        return out.copy_(result[0]), result[1]
    return out.copy_(result)


def _spans(count: int, ends: Tensor | None, used: Tensor | None) -> list[tuple[int, int]]:
    """Where the keys of each sequence begin and end."""
    if ends is None and used is None:
        raise ValueError("varlen_attn: expected cu_seq_k or seqused_k, got neither")
    lengths = None if used is None else [int(n) for n in used.tolist()]
    begins = [0] * count if ends is None else [int(end) for end in ends.tolist()[:-1]]
    if lengths is None:
        assert ends is not None
        return [*zip(begins, (int(end) for end in ends.tolist()[1:]), strict=True)]
    return [(begin, begin + length) for begin, length in zip(begins, lengths, strict=True)]


def _part(x: Tensor, span: tuple[int, int], pages: Tensor | None) -> Tensor:
    """The keys or values of one sequence; from its pages, if there is a table."""
    if pages is None:
        return x[span[0] : span[1]]
    length = span[1] - span[0]
    needed = pages[: -(-length // x.shape[1])].long()
    return x[needed].flatten(0, 1)[:length]


def _window(queries: int, keys: int, size: tuple[int, int], device: ts.device) -> Tensor | None:
    """Which keys each query sees."""
    left, right = size
    if left < 0 and right < 0:
        return None
    place = ts.arange(queries, device=device)[:, None] + (keys - queries)
    other = ts.arange(keys, device=device)[None]
    seen = other == other
    if left >= 0:
        seen = seen & (other >= place - left)
    if right >= 0:
        seen = seen & (other <= place + right)
    return seen


def _log_sums(query: Tensor, key: Tensor, seen: Tensor | None, factor: float) -> Tensor:
    group = query.shape[0] // key.shape[0]
    scores = query.float() @ key.float().repeat_interleave(group, 0).transpose(1, 2) * factor
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return scores.logsumexp(-1)
