"""Transformers: layers, stacks of them, and the whole encoder-decoder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack.nn import functional as F
from tesserack.nn import init
from tesserack.nn.modules.attention import MultiheadAttention
from tesserack.nn.modules.container import ModuleList
from tesserack.nn.modules.dropout import Dropout
from tesserack.nn.modules.linear import Linear
from tesserack.nn.modules.module import Module
from tesserack.nn.modules.normalization import LayerNorm

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]

Activation = str | Callable[[Tensor], Tensor]


def _activation(activation: Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


def _as_mask(mask: Tensor | None, like: Tensor) -> Tensor | None:
    """A bool mask as one that is added."""
    if mask is None or mask.dtype != ts.bool:
        return mask
    return ts.zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill_(mask, -float("inf"))


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    return ts.triu(ts.full((size, size), -float("inf"), dtype=dtype, device=device), diagonal=1)


def _is_causal(mask: Tensor | None, is_causal: bool | None, size: int | None = None) -> bool:
    """The hint given, or whether the mask is the causal one."""
    if is_causal is not None:
        return is_causal
    if mask is None or mask.ndim != 2 or mask.shape[0] != mask.shape[1] or (size is not None and mask.shape[0] != size):
        return False
    expected = _causal_mask(mask.shape[0], mask.device, mask.dtype if mask.is_floating_point() else None)
    return bool((mask == expected).all()) if mask.dtype == expected.dtype else False


def _length(mask: Tensor | None, layers: Any, x: Tensor) -> int | None:
    """How many positions the mask has to have; None where there is none, or the layers are of another kind."""
    attention = getattr(layers[0], "self_attn", None) if len(layers) else None
    if mask is None or x.is_nested or x.dim() not in (2, 3):
        return None
    return x.shape[1 if x.dim() == 3 and getattr(attention, "batch_first", False) else 0]


class _Layer(Module):
    """What encoder and decoder layers share: the feed-forward block, normalisations and dropouts."""

    def _add_feed_forward(
        self, d_model: int, dim_feedforward: int, dropout: float, bias: bool, device: Any, dtype: Any
    ) -> None:
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, device=device, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, device=device, dtype=dtype)

    def _add_norms(
        self, count: int, d_model: int, eps: float, dropout: float, bias: bool, device: Any, dtype: Any
    ) -> None:
        for k in range(1, count + 1):
            setattr(self, f"norm{k}", LayerNorm(d_model, eps=eps, bias=bias, device=device, dtype=dtype))
        for k in range(1, count + 1):
            setattr(self, f"dropout{k}", Dropout(dropout))

    def _ff_block(self, x: Tensor) -> Tensor:
        x = self.linear2(self.dropout(self.activation(self.linear1(x))))
        return getattr(self, "dropout3" if hasattr(self, "dropout3") else "dropout2")(x)  # type: ignore[no-any-return]

    def _with_residual(self, x: Tensor, block: Callable[[Tensor], Tensor], norm: Module) -> Tensor:
        """``x + block(norm(x))``, or ``norm(x + block(x))``."""
        if self.norm_first:
            return x + block(norm(x))
        return norm(x + block(x))  # type: ignore[no-any-return]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("activation", F.relu)


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward block, each with a residual and a normalisation (arXiv:1706.03762).

    ``src`` is (S, N, d_model), with ``batch_first`` (N, S, d_model). ``activation``: "relu", "gelu" or a function;
    ``norm_first`` normalises before each block and not after it. Masks as those of :class:`MultiheadAttention`.

    >>> from tesserack import nn, ones
    >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> tuple(layer(ones(3, 5, 8)).shape)
    (3, 5, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, device=device, dtype=dtype
        )
        self._add_feed_forward(d_model, dim_feedforward, dropout, bias, device, dtype)
        self.norm_first = norm_first
        self._add_norms(2, d_model, layer_norm_eps, dropout, bias, device, dtype)
        self.activation = _activation(activation)

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        src_mask, padding = _as_mask(src_mask, src), _as_mask(src_key_padding_mask, src)
        x = self._with_residual(src, lambda t: self._sa_block(t, src_mask, padding, is_causal), self.norm1)
        return self._with_residual(x, self._ff_block, self.norm2)

    def _sa_block(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool = False) -> Tensor:
        x = self.self_attn(x, x, x, padding, False, mask, is_causal=is_causal)[0]
        return self.dropout1(x)  # type: ignore[no-any-return]


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to ``memory`` and a feed-forward block; options as of the encoder layer.

    >>> from tesserack import nn, ones
    >>> layer = nn.TransformerDecoderLayer(8, 2, 16)
    >>> tuple(layer(ones(5, 3, 8), ones(7, 3, 8)).shape)
    (5, 3, 8)
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        for name in ("self_attn", "multihead_attn"):
            attention = MultiheadAttention(
                d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, device=device, dtype=dtype
            )
            setattr(self, name, attention)
        self._add_feed_forward(d_model, dim_feedforward, dropout, bias, device, dtype)
        self.norm_first = norm_first
        self._add_norms(3, d_model, layer_norm_eps, dropout, bias, device, dtype)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def attend_self(t: Tensor) -> Tensor:
            return self._sa_block(t, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def attend_memory(t: Tensor) -> Tensor:
            return self._mha_block(t, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = self._with_residual(tgt, attend_self, self.norm1)
        x = self._with_residual(x, attend_memory, self.norm2)
        return self._with_residual(x, self._ff_block, self.norm3)

    def _sa_block(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool = False) -> Tensor:
        x = self.self_attn(x, x, x, padding, False, mask, is_causal=is_causal)[0]
        return self.dropout1(x)  # type: ignore[no-any-return]

    def _mha_block(
        self, x: Tensor, memory: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        x = self.multihead_attn(x, memory, memory, padding, False, mask, is_causal=is_causal)[0]
        return self.dropout2(x)  # type: ignore[no-any-return]


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, one after the other, then ``norm``.

    ``is_causal=None`` looks whether ``mask`` is the causal one. ``enable_nested_tensor`` and ``mask_check`` are
    accepted and
    change nothing: padded rows are computed like the others.

    >>> from tesserack import nn, ones
    >>> stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), num_layers=2)
    >>> tuple(stack(ones(5, 3, 8)).shape)
    (5, 3, 8)
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor = enable_nested_tensor
        self.mask_check = mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        mask, padding = _as_mask(mask, src), _as_mask(src_key_padding_mask, src)
        causal = _is_causal(mask, is_causal, _length(mask, self.layers, src))
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=causal, src_key_padding_mask=padding)
        if src_key_padding_mask is not None and self._packs(src, mask, src_key_padding_mask):
            src = src.masked_fill(src_key_padding_mask.unsqueeze(-1), 0.0)
        return src if self.norm is None else self.norm(src)

    def _packs(self, src: Tensor, mask: Tensor | None, padding: Tensor) -> bool:
        """Whether PyTorch would take the rows without their padding, which then comes out as zeros."""
        first: Any = self.layers[0] if len(self.layers) else None
        if not self.enable_nested_tensor or self.training or mask is not None or src.dim() != 3:
            return False
        attention = first.self_attn if isinstance(first, TransformerEncoderLayer) else None
        if attention is None or not attention.batch_first or attention.num_heads % 2 or first.norm_first:
            return False
        if first.activation not in (F.relu, F.gelu) or attention.in_proj_bias is None or padding.dtype is not ts.bool:
            return False
        if first.norm1.eps != first.norm2.eps or ts.is_autocast_enabled(src.device.type):
            return False
        if ts.is_grad_enabled() and (src.requires_grad or any(p.requires_grad for p in first.parameters())):
            return False
        return not self.mask_check or bool((padding[:, 1:] >= padding[:, :-1]).all())


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, one after the other, then ``norm``.

    >>> from tesserack import nn, ones
    >>> stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), num_layers=2)
    >>> tuple(stack(ones(5, 3, 8), ones(7, 3, 8)).shape)
    (5, 3, 8)
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt_mask, self.layers, tgt))
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=causal,
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder (Vaswani et al., arXiv:1706.03762): ``src`` (S, N, E) and ``tgt`` (T, N, E) to (T, N, E).

    With ``batch_first`` (N, S, E) and (N, T, E). ``custom_encoder`` and ``custom_decoder`` take the place of the
    stacks.
    Parameters of more than one dim start by ``xavier_uniform_``. ``RuntimeError`` for batches or features that differ.

    >>> from tesserack import nn, ones
    >>> model = nn.Transformer(8, 2, 1, 1, 16)
    >>> tuple(model(ones(5, 3, 8), ones(4, 3, 8)).shape)
    (4, 3, 8)
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = F.relu,
        custom_encoder: Any | None = None,
        custom_decoder: Any | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        place = {"device": device, "dtype": dtype}

        def norm() -> LayerNorm:
            return LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **place)

        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(*shape, **place), num_encoder_layers, norm())
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(*shape, **place), num_decoder_layers, norm())
        self.encoder = custom_encoder
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self) -> None:
        for parameter in self.parameters():
            if parameter.ndim > 1:
                init.xavier_uniform_(parameter)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz): 0 on and below the diagonal, minus infinity above.

        >>> from tesserack import nn
        >>> nn.Transformer.generate_square_subsequent_mask(2).tolist()
        [[0.0, -inf], [0.0, 0.0]]
        """
        return _causal_mask(sz, device, dtype)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.ndim == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(  # type: ignore[no-any-return]
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
