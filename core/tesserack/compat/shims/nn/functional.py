"""``torch.nn.functional``: parts of attention that layers written after PyTorch's own take from it."""

from __future__ import annotations

import warnings
from typing import Any

import tesserack as ts
from tesserack import Tensor
from tesserack._tensor.overrides import (
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)
from tesserack.nn._attention import _check_ranks, _projected

__all__ = ["handle_torch_function", "has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"]


def _none_or_dtype(input: Tensor | None) -> Any:
    """The dtype of a tensor that may be None."""
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Tensor | None,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Tensor | None:
    """A mask as one that is added: minus infinity where a bool one is True."""
    if mask is None:
        return None
    if mask.dtype != ts.bool and not mask.is_floating_point():
        raise RuntimeError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=2,
        )
    if mask.dtype != ts.bool:
        return mask
    return ts.zeros_like(mask, dtype=target_type).masked_fill_(mask, float("-inf"))


def _mha_shape_check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
) -> bool:
    """Whether there is a batch dim; ``AssertionError`` for ranks that do not go together."""
    return _check_ranks(query, key, value, key_padding_mask, attn_mask, num_heads)


def _in_projection_packed(q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None) -> list[Tensor]:
    """Queries, keys and values by one weight of (3 * E, E)."""
    return _projected(q, k, v, w, b)


def _in_projection(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    w_q: Tensor,
    w_k: Tensor,
    w_v: Tensor,
    b_q: Tensor | None = None,
    b_k: Tensor | None = None,
    b_v: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values by a weight each."""
    return ts.linear(q, w_q, b_q), ts.linear(k, w_k, b_k), ts.linear(v, w_v, b_v)


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    """The dim that softmax takes where none is given."""
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1
