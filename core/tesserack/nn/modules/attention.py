"""Attention with several heads."""

from __future__ import annotations

from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn.modules.linear import NonDynamicallyQuantizableLinear
from tesserack.nn.modules.module import Module
from tesserack.nn.parameter import Parameter

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Several scaled dot product attentions beside each other (Vaswani et al., arXiv:1706.03762).

    ``query`` (L, N, embed_dim), ``key`` (S, N, kdim) and ``value`` (S, N, vdim), with ``batch_first`` (N, L, *),
    without
    a batch (L, *). Returns the output (L, N, embed_dim) and the attention weights, averaged over heads (N, L, S),
    of each head (N, num_heads, L, S) without ``average_attn_weights``, or None without ``need_weights``, which is
    faster. Bool masks hide where True, others are added to the scores; ``is_causal`` says that ``attn_mask`` is the
    causal one. Raises ``AssertionError`` when num_heads does not divide embed_dim, and for shapes that do not fit.

    >>> from tesserack import nn, ones
    >>> attention = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = ones(3, 5, 8)
    >>> output, weights = attention(x, x, x)
    >>> tuple(output.shape), tuple(weights.shape)
    ((3, 5, 8), (3, 5, 5))
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads}"
            )
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def parameter(*shape: int) -> Parameter:
            return Parameter(ts.empty(shape, device=device, dtype=dtype))

        if self._qkv_same_embed_dim:
            self.in_proj_weight = parameter(3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = parameter(embed_dim, embed_dim)
            self.k_proj_weight = parameter(embed_dim, self.kdim)
            self.v_proj_weight = parameter(embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", parameter(3 * embed_dim) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        self.bias_k = self.bias_v = None
        if add_bias_kv:
            self.bias_k, self.bias_v = parameter(1, 1, embed_dim), parameter(1, 1, embed_dim)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for name in ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"):
            weight = getattr(self, name)
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            assert self.out_proj.bias is not None
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def __setstate__(self, state: dict[str, Any]) -> None:
        state.setdefault("_qkv_same_embed_dim", True)  # absent from modules saved by old versions
        super().__setstate__(state)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if query.is_nested:
            from tesserack.nested._attention import attend

            return attend(self, query, key, value, key_padding_mask, need_weights, attn_mask, is_causal)
        turned = self.batch_first and query.ndim == 3
        if turned:
            query, key, value = _turned(query, key, value)
        output, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            self.training,
            key_padding_mask,
            need_weights,
            attn_mask,
            not self._qkv_same_embed_dim,
            self.q_proj_weight,
            self.k_proj_weight,
            self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
        )
        return (output.transpose(1, 0) if turned else output), weights

    def merge_masks(
        self, attn_mask: Tensor | None, key_padding_mask: Tensor | None, query: Tensor
    ) -> tuple[Tensor | None, int | None]:
        """Both masks as one, and its kind: 1, ``key_padding_mask`` (N, S) as it is; 2, of each head (N, heads, L, S).

        ``attn_mask`` is (L, S) or (N * heads, L, S) with L = S, ``query`` (N, L, embed_dim). Without masks None.

        >>> from tesserack import nn, zeros
        >>> attention = nn.MultiheadAttention(4, 2, batch_first=True)
        >>> mask, kind = attention.merge_masks(zeros(3, 3), zeros(5, 3), zeros(5, 3, 4))
        >>> tuple(mask.shape), kind
        ((5, 2, 3, 3), 2)
        """
        if attn_mask is None:
            return key_padding_mask, None if key_padding_mask is None else 1
        if query.ndim != 3 or attn_mask.shape[-2:] != (query.shape[1],) * 2:
            raise ValueError(
                "merge_masks: expected query (N, L, embed_dim) and attn_mask (L, L) or (N * heads, L, L), "
                f"got {tuple(query.shape)} and {tuple(attn_mask.shape)}"
            )
        batch, length, _ = query.shape
        if attn_mask.ndim == 3:
            merged = attn_mask.view(batch, -1, length, length)
        else:
            merged = attn_mask.view(1, 1, length, length).expand(batch, self.num_heads, -1, -1)
        if key_padding_mask is not None:
            merged = merged + key_padding_mask.view(batch, 1, 1, length).expand(-1, self.num_heads, -1, -1)
        return merged, 2


def _turned(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Batch second; equal tensors stay one object, so that one product projects them."""
    q = query.transpose(1, 0)
    k = q if key is query else key.transpose(1, 0)
    v = k if value is key else q if value is query else value.transpose(1, 0)
    return q, k, v
