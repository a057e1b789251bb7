"""Attention with several heads, as one function of all its parameters."""

from __future__ import annotations

import warnings
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn._shown import shown
from tesserack.ops.registry import operators

__all__ = ["multi_head_attention_forward"]

_NAME = "multi_head_attention_forward"


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Any:
    return shown("linear")(x, weight, bias)


def _softmax(scores: Tensor) -> Tensor:
    result: Tensor = shown("softmax")(scores, dim=-1)
    return result


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Multi-head attention (Vaswani et al., arXiv:1706.03762) with all its parameters given.

    ``query`` is (L, N, E) or (L, E), ``key`` and ``value`` (S, N, *) or (S, *). The input projections are one
    ``in_proj_weight`` (3 E, E), or three with ``use_separate_proj_weight``; ``static_k`` and ``static_v``
    (N * heads, S, E / heads) replace projected keys and values. ``bias_k`` and ``bias_v`` add one key and value,
    ``add_zero_attn`` one of zeros. Masks: ``attn_mask`` (L, S) or (N * heads, L, S), ``key_padding_mask`` (N, S) or
    (S);
    bool ones hide where True, others are added. ``is_causal`` is a hint that ``attn_mask`` is the causal one, which
    must
    be given with it. Returns the output (L, N, E) and the attention weights (N, L, S), of each head
    (N, heads, L, S) if not ``average_attn_weights``, None if not ``need_weights``.
    """
    batched = _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, batch, embed = query.shape
    _check_sizes(query, key, value, embed_dim_to_check, num_heads, use_separate_proj_weight)
    key_padding_mask = _as_added(key_padding_mask, query.dtype, attn_mask)
    if is_causal and attn_mask is None:
        raise RuntimeError(f"{_NAME}: Need attn_mask if specifying the is_causal hint.")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # the kernel masks by itself
    else:
        attn_mask = _as_added(attn_mask, query.dtype, key_padding_mask)
        is_causal = False
    attn_mask = _checked_mask(attn_mask, length, key.shape[0], batch * num_heads)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else in_proj_weight
    q, k, v = _projected(query, key, value, weights, in_proj_bias)
    if (bias_k is None) != (bias_v is None):
        raise RuntimeError(f"{_NAME}: expected both bias_k and bias_v, or none")
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise RuntimeError(f"{_NAME}: bias cannot be added to static key or value.")
        k, v = ts.cat([k, bias_k.repeat(1, batch, 1)]), ts.cat([v, bias_v.repeat(1, batch, 1)])
        attn_mask, key_padding_mask = _longer(attn_mask), _longer(key_padding_mask)
    q = _heads(q, num_heads)
    k = _heads(k, num_heads) if static_k is None else _static(static_k, "static_k", q)
    v = _heads(v, num_heads) if static_v is None else _static(static_v, "static_v", q)
    if add_zero_attn:
        zeros = ts.zeros((batch * num_heads, 1, embed // num_heads), dtype=k.dtype, device=k.device)
        k, v = ts.cat([k, zeros], dim=1), ts.cat([v, zeros], dim=1)
        attn_mask, key_padding_mask = _longer(attn_mask), _longer(key_padding_mask)
    mask = _merged(attn_mask, key_padding_mask, batch, num_heads, k.shape[1])
    dropout_p = dropout_p if training else 0.0
    if need_weights:
        chances = _chances(_scores(q, k, mask), mask is not None)
        chances = shown("dropout")(chances, p=dropout_p) if dropout_p > 0 else chances
        mixed = ts.bmm(chances, v)
    else:
        if mask is not None:
            mask = mask.unsqueeze(0) if mask.shape[0] == 1 else mask.reshape(batch, num_heads, *mask.shape[1:])
        apart = [t.reshape(batch, num_heads, *t.shape[1:]) for t in (q, k, v)]
        mixed = shown("scaled_dot_product_attention")(apart[0], apart[1], apart[2], mask, dropout_p, is_causal)
        mixed = mixed.reshape(batch * num_heads, length, embed // num_heads)
    output = mixed.transpose(0, 1).reshape(length * batch, embed)
    output = _linear(output, out_proj_weight, out_proj_bias).reshape(length, batch, out_proj_weight.shape[0])
    if not need_weights:
        return (output if batched else output.squeeze(1)), None
    seen = chances.reshape(batch, num_heads, length, k.shape[1])
    seen = seen.mean(dim=1) if average_attn_weights else seen
    return (output, seen) if batched else (output.squeeze(1), seen.squeeze(0))


def _chances(scores: Tensor, masked: bool) -> Tensor:
    """The softmax of each row; zeros, and no NaN in gradients, where all of a row is masked, as without weights."""
    if not masked:
        return _softmax(scores)
    dead = (scores.detach() == float("-inf")).all(-1, keepdim=True)
    return _softmax(scores.masked_fill(dead, 0.0)).masked_fill(dead, 0.0)


def _check_ranks(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    """Whether there is a batch dim."""
    if query.ndim not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.ndim}-D query tensor"
        )
    if key.ndim != query.ndim or value.ndim != query.ndim:
        raise AssertionError(
            f"For {query.ndim}-D `query`, expected `key` and `value` to be {query.ndim}-D but found {key.ndim}-D and "
            f"{value.ndim}-D tensors respectively"
        )
    if padding is not None and padding.ndim != query.ndim - 1:
        raise AssertionError(
            f"For {query.ndim}-D `query`, expected `key_padding_mask` to be `None` or {query.ndim - 1}-D but found "
            f"{padding.ndim}-D tensor instead"
        )
    if mask is not None and mask.ndim not in (2, 3):
        raise AssertionError(f"expected `attn_mask` to be `None`, 2-D or 3-D but found {mask.ndim}-D tensor instead")
    if mask is not None and query.ndim == 2 and mask.ndim == 3 and mask.shape[0] != heads:
        raise AssertionError(f"Expected `attn_mask` shape to start with {heads}, got {tuple(mask.shape)}")
    return query.ndim == 3


def _check_sizes(query: Tensor, key: Tensor, value: Tensor, embed: int, heads: int, separate: bool) -> None:
    if query.shape[2] != embed:
        raise AssertionError(f"was expecting embedding dimension of {embed}, but got {query.shape[2]}")
    if embed % heads:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {heads}")
    if separate and key.shape[:2] != value.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's {tuple(value.shape[:2])}"
        )
    if not separate and key.shape != value.shape:
        raise AssertionError(f"key shape {tuple(key.shape)} does not match value shape {tuple(value.shape)}")


def _as_added(mask: Tensor | None, dtype: Any, other: Tensor | None) -> Tensor | None:
    """A mask to be added to scores: minus infinity where a bool one is True."""
    if mask is None:
        return None
    if mask.dtype != ts.bool and not mask.is_floating_point():
        raise AssertionError(f"{_NAME}: only bool and floating types of masks are supported, got {mask.dtype}")
    if (
        other is not None
        and mask.dtype != other.dtype
        and ts.bool in (mask.dtype, other.dtype)
        and other.dtype != dtype
    ):
        warnings.warn(
            "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.dtype != ts.bool:
        return mask
    return ts.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(mask, -float("inf"))


def _checked_mask(mask: Tensor | None, length: int, keys: int, slices: int) -> Tensor | None:
    if mask is None:
        return None
    expected = (length, keys) if mask.ndim == 2 else (slices, length, keys)
    if tuple(mask.shape) != expected:
        raise RuntimeError(f"The shape of the {mask.ndim}D attn_mask is {tuple(mask.shape)}, but should be {expected}.")
    return mask.unsqueeze(0) if mask.ndim == 2 else mask


def _projected(query: Tensor, key: Tensor, value: Tensor, weights: Any, bias: Tensor | None) -> list[Tensor]:
    embed = query.shape[-1]
    biases: Any = (None, None, None) if bias is None else bias.chunk(3)
    if isinstance(weights, tuple):
        if any(weight is None for weight in weights):
            raise AssertionError("use_separate_proj_weight is True but a projection weight is None")
        return [_linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)]
    if weights is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    if key is value and query is key:
        return list(_linear(query, weights, bias).split(embed, dim=-1))
    if key is value:  # one product for keys and values
        w_q, w_kv = weights.split([embed, 2 * embed])
        b_q, b_kv = (None, None) if bias is None else bias.split([embed, 2 * embed])
        return [_linear(query, w_q, b_q), *_linear(key, w_kv, b_kv).split(embed, dim=-1)]
    return [_linear(x, w, b) for x, w, b in zip((query, key, value), weights.chunk(3), biases, strict=True)]


def _heads(t: Tensor, heads: int) -> Tensor:
    """(S, N, E) as (N * heads, S, E / heads)."""
    length, batch, embed = t.shape
    return t.reshape(length, batch * heads, embed // heads).transpose(0, 1)


def _static(given: Tensor, name: str, q: Tensor) -> Tensor:
    if given.shape[0] != q.shape[0] or given.shape[2] != q.shape[2]:
        raise AssertionError(f"expecting {name} of sizes ({q.shape[0]}, *, {q.shape[2]}), but got {tuple(given.shape)}")
    return given


def _longer(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else operators()["pad"](mask, (0, 1))


def _merged(mask: Tensor | None, padding: Tensor | None, batch: int, heads: int, keys: int) -> Tensor | None:
    """Both masks as one (1 or N * heads, L or 1, S)."""
    if padding is None:
        return mask
    if tuple(padding.shape) != (batch, keys):
        raise AssertionError(f"expecting key_padding_mask shape of {(batch, keys)}, but got {tuple(padding.shape)}")
    padding = padding.reshape(batch, 1, 1, keys).expand(batch, heads, 1, keys).reshape(batch * heads, 1, keys)
    return padding if mask is None else mask + padding


def _scores(q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
    q = q * (1.0 / q.shape[-1]) ** 0.5
    scores = ts.bmm(q, k.transpose(-2, -1))
    return scores if mask is None else scores + mask
