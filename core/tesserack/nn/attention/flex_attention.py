"""Attention whose scores a Python function changes: positions, windows, documents (Dong et al., arXiv:2412.05496)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tesserack as ts
from tesserack import Tensor
from tesserack.nn.attention._block_mask import BLOCK, BlockMask, create_block_mask, create_mask, noop_mask, places

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]

_DEFAULT_SPARSE_BLOCK_SIZE = BLOCK
# Names for annotations: (b, h, q, kv) -> bool, and (score, b, h, q, kv) -> score.
_mask_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
_score_mod_signature = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
# Accepted and without effect: they tune kernels of PyTorch's compiler.
FlexKernelOptions = dict[str, Any]


class AuxRequest(NamedTuple):
    """What :func:`flex_attention` returns beside its result: log-sum-exp and greatest score of every row."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was asked for by :class:`AuxRequest`, (B, Hq, L) each, else None."""

    lse: Tensor | None = None
    max_scores: Tensor | None = None


def and_masks(*mask_mods: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The mask_mod of scores that all the others let count. Raises ``RuntimeError`` for what cannot be called."""
    return _combined("and", mask_mods)


def or_masks(*mask_mods: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The mask_mod of scores that one of the others lets count. Raises ``RuntimeError`` for what cannot be called."""
    return _combined("or", mask_mods)


def _combined(how: str, mask_mods: tuple[Callable[..., Tensor], ...]) -> Callable[..., Tensor]:
    if not all(callable(mod) for mod in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def mask_mod(b: Tensor, h: Tensor, q: Tensor, kv: Tensor) -> Tensor:
        result = b.new_full((), how == "and", dtype=ts.bool)
        for mod in mask_mods:
            result = result & mod(b, h, q, kv) if how == "and" else result | mod(b, h, q, kv)
        return result

    return mask_mod


def _check(query: Tensor, key: Tensor, value: Tensor, block_mask: BlockMask | None, enable_gqa: bool) -> None:
    shapes = f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
    if query.ndim != 4 or key.ndim != 4 or value.ndim != 4:
        raise NotImplementedError(
            f"flex_attention: expected query, key, and value to be 4D tensors, got shapes {shapes}"
        )
    if not query.dtype == key.dtype == value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, "
            f"but got query.dtype: {query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(
            "Expect query and key/value to have the same embedding dimension "
            f"but got E={query.shape[-1]} and E={key.shape[-1]}."
        )
    if query.shape[0] != key.shape[0] and (key.shape[0] != 1 or block_mask is None):
        raise ValueError(
            "Expect query and key/value to have the same batch size, or non-none block_mask, "
            f"but got block_mask={block_mask}, Bq={query.shape[0]}, and Bkv={key.shape[0]}."
        )
    if key.shape[:3] != value.shape[:3]:
        raise RuntimeError(f"flex_attention: expected a value for every key, got shapes {shapes}")
    heads, shared = query.shape[1], key.shape[1]
    if heads % shared or (heads != shared and not enable_gqa):
        raise ValueError(
            f"Expect query and key/value to have the same number of heads but got Hq={heads} and Hkv={shared}. "
            "Try setting enable_gqa=True for GQA, where Hq is a multiple of Hkv."
        )
    if block_mask is not None and block_mask.shape[-2:] != (query.shape[2], key.shape[2]):
        q, kv = query.shape[2], key.shape[2]
        advice = "create a new block mask for these lengths, or adjust it with block_mask._adjust(q_len, kv_len)"
        raise ValueError(
            f"block_mask was created for block_mask.shape={block_mask.shape} but got q_len={q} and kv_len={kv}. "
            f"Try to {advice}"
        )


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Callable[..., Tensor] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: FlexKernelOptions | None = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """softmax(score_mod(query @ key.T * scale)) @ value over the scores that ``block_mask`` lets count.

    ``query`` is (B, Hq, L, E), ``key`` (B, Hkv, S, E), ``value`` (B, Hkv, S, Ev), floating and of one dtype; the result
    is (B, Hq, L, Ev). ``score_mod(score, b, h, q, kv)`` is called once, with all scores (B, Hq, L, S) in float32 or
    wider and int32 places that broadcast to them, and is differentiated as it stands, with the tensors it refers to. A
    row none of whose scores counts is zero. ``scale`` is 1/sqrt(E) by default. ``enable_gqa``: Hq/Hkv neighbouring
    heads of the query share one of the key. ``return_lse`` adds log-sum-exp of the scores (B, Hq, L); ``return_aux``
    what it asks for. The matrix of scores is held; :func:`scaled_dot_product_attention` does not hold it.

    Raises ``ValueError`` for shapes, dtypes and masks that do not fit one another, ``NotImplementedError`` for tensors
    that are not 4-d.

    >>> import tesserack as ts
    >>> q, k, v = ts.ones(1, 1, 2, 4), ts.ones(1, 1, 2, 4), ts.tensor([[[[1.0], [3.0]]]])
    >>> causal = create_block_mask(lambda b, h, q, kv: q >= kv, None, None, 2, 2, device="cpu")
    >>> flex_attention(q, k, v, block_mask=causal).flatten().tolist()
    [1.0, 2.0]
    """
    _check(query, key, value, block_mask, enable_gqa)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1])
    if query.shape[1] != key.shape[1]:
        groups = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    aux = return_aux or AuxRequest(lse=return_lse)
    if score_mod is None and block_mask is None and not any(aux):
        return ts.nn.functional.scaled_dot_product_attention(query, key, value, scale=scale)
    scores = ts.matmul(query, key.transpose(-2, -1)).to(ts.promote_types(query.dtype, ts.float32)) * scale
    scores = _changed(scores, score_mod, block_mask)
    peak = (
        scores.amax(dim=-1, keepdim=True) if scores.shape[-1] else scores.new_full((*scores.shape[:-1], 1), -math.inf)
    )
    empty = peak == -math.inf
    weights = ts.softmax(scores.masked_fill(empty, 0.0), dim=-1).masked_fill(empty, 0.0)
    out = ts.matmul(weights.to(query.dtype), value)
    if not (return_lse or return_aux):
        return out
    lse = ts.logsumexp(scores, dim=-1) if aux.lse else None
    return (out, lse) if return_aux is None else (out, AuxOutput(lse, peak.squeeze(-1) if aux.max_scores else None))


def _changed(scores: Tensor, score_mod: Callable[..., Tensor] | None, block_mask: BlockMask | None) -> Tensor:
    """The scores as ``score_mod`` makes them, minus infinity where the mask says so."""
    at = places(scores.shape, scores.device)
    if score_mod is not None:
        scores = score_mod(scores, *at).to(scores.dtype).expand(scores.shape)
    if block_mask is None:
        return scores
    if block_mask.mask_mod is noop_mask:  # all that it says is in its blocks
        rows, columns = block_mask.BLOCK_SIZE
        blocks = block_mask.to_dense().bool().repeat_interleave(rows, -2).repeat_interleave(columns, -1)
        counted = blocks[..., : scores.shape[-2], : scores.shape[-1]]
    else:
        counted = block_mask.mask_mod(*at)
    return ts.where(counted, scores, -math.inf)
