"""Attention of rows of different lengths: padded, with a mask, and cut again."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nested._handlers import handles
from tesserack.nested._padding import from_padded, row_mask
from tesserack.nested._pointwise import pads
from tesserack.nested._strided import StridedNestedTensor, from_rows, pad
from tesserack.nested._tensor import NestedTensor

_OP = "scaled_dot_product_attention"


def _check(query: Any, key: Any, value: Any, attn_mask: Any) -> None:
    three = (query, key, value)
    nested = [isinstance(t, NestedTensor) for t in three]
    if not all(nested):
        raise ValueError(f"{_OP}: Expected query, key, and value to be nested tensors, got is_nested {nested}; try "
                         "as_nested_tensor(dense, layout=tesserack.jagged)")  # fmt: skip
    if len({t.dtype for t in three}) > 1:
        raise ValueError(f"{_OP}: Expected query, key, and value to have the same dtype, got "
                         f"{[t.dtype for t in three]}")  # fmt: skip
    if len({str(t.device) for t in three}) > 1:
        raise ValueError(f"{_OP}: Expected query, key, and value to have the same device type, got "
                         f"{[str(t.device) for t in three]}; try .to()")  # fmt: skip
    if any(t.dim() != 4 for t in three):
        raise ValueError(f"{_OP}: Expected query, key, and value of 4 dims (B, heads, j, D), got "
                         f"{[t._size for t in three]}")  # fmt: skip
    if any(t._ragged_idx != 2 for t in three):
        raise ValueError(f"{_OP}: Expected query, key, and value to be ragged on dim 2, got ragged dims "
                         f"{[t._ragged_idx for t in three]}; try transpose(1, 2)")  # fmt: skip
    if attn_mask is not None:
        raise ValueError(f"{_OP}: Masks are not yet supported for nested tensors; try to_padded_tensor()")
    if query.shape[0] != key.shape[0] or key._size[2] != value._size[2]:
        raise RuntimeError(f"{_OP}: expected one batch size, and key and value that share their offsets, got "
                           f"{query._size}, {key._size} and {value._size}")  # fmt: skip


def _seen(query: NestedTensor, key: NestedTensor, wide: int, is_causal: bool) -> Tensor:
    """(B, 1, 1 or Lq, Lk) bools: which keys each query looks at."""
    kept = row_mask(key, wide)[:, None, None, :]
    if not is_causal:
        return kept
    tall = query._longest()
    return kept & ts.ones((tall, wide), dtype=ts.bool, device=query.device).tril()


@handles(_OP)
def _attention(
    func: Any,
    query: NestedTensor,
    key: NestedTensor,
    value: NestedTensor,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> NestedTensor:
    _check(query, key, value, attn_mask)
    q, k, v = pads(query, 0), pads(key, 0), pads(value, 0)
    seen = _seen(query, key, k.shape[2], is_causal)
    made = func(q, k, v, attn_mask=seen, dropout_p=dropout_p, scale=scale, enable_gqa=enable_gqa)
    return from_padded(made, query)


def _lengths(nt: Any) -> list[int]:
    if isinstance(nt, StridedNestedTensor):
        return [place.size[0] for place in nt._places]
    return [int(n) for n in nt._row_lengths().tolist()]


def attend(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    key_padding_mask: Any,
    need_weights: bool,
    attn_mask: Any,
    causal: bool,
) -> tuple[Any, Tensor | None]:
    """``MultiheadAttention`` of nested tensors (B, L*, E): padded, with a mask, and cut again."""
    name = "MultiheadAttention"
    if not (module.batch_first and all(t.is_nested and t.dim() == 3 for t in (query, key, value))):
        raise AssertionError(f"{name}: expected query, key and value nested, (B, L, E), and batch_first=True")
    if key_padding_mask is not None or (attn_mask is not None and not causal):
        raise AssertionError(f"{name}: expected no masks with nested tensors, whose rows have their own lengths")
    counts = _lengths(key)
    if len(counts) != len(query) or _lengths(value) != counts:
        raise AssertionError(f"{name}: expected key and value with rows of the same lengths, and one batch size, got "
                             f"{counts}, {_lengths(value)} and {len(query)} queries")  # fmt: skip
    dense: dict[int, Tensor] = {}
    for nt in (query, key, value):
        if id(nt) not in dense:
            dense[id(nt)] = pad(nt, 0.0) if isinstance(nt, StridedNestedTensor) else pads(nt, 0)
    q, k, v = (dense[id(nt)] for nt in (query, key, value))
    places = ts.arange(k.shape[1], device=k.device)
    hidden = places >= ts.tensor(counts, device=k.device).unsqueeze(1)
    mask = None if not causal else ts.ones(q.shape[1], k.shape[1], dtype=ts.bool, device=k.device).tril().logical_not()
    made, weights = module(q, k, v, key_padding_mask=hidden, need_weights=need_weights, attn_mask=mask)
    if isinstance(query, StridedNestedTensor):
        return from_rows([row[:n] for row, n in zip(made, _lengths(query), strict=True)]), weights
    return from_padded(made, query), weights
