"""Attention of queries that see nothing: zeros, and no NaN in any gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
from outcomes import drawn, same

INF = float("inf")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["added", "learned", "bool", "wide"])
def test_queries_that_see_nothing_give_zeros(kind: str, dtype: str) -> None:
    """And no NaN in any gradient."""

    def call(m: Any) -> Any:
        q, k, v = (drawn(m, 1, 2, 3, 4, dtype=dtype, seed=seed) for seed in range(3))
        mask = m.tensor([[0, -INF, 1.0], [-INF] * 3, [0, 0, -INF]], dtype=getattr(m, dtype))
        if kind == "bool":
            mask = mask != -INF
        elif kind == "wide":
            mask = mask[:, :1].expand(2, 3, 3)
        leaves = [q, k, v, *([mask.requires_grad_()] if kind == "learned" else [])]
        out = m.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return [out, *m.autograd.grad((out * out).sum(), leaves)]

    same(call, 2e-5, 2e-6)


@pytest.mark.parametrize("weights", [False, True])
def test_attention_layers_whose_masks_hide_everything(weights: bool) -> None:
    def call(m: Any) -> Any:
        layer = m.nn.MultiheadAttention(4, 2, dtype=m.float64)
        with m.no_grad():
            for k, p in enumerate(layer.parameters()):
                p.copy_(drawn(m, *p.shape, seed=k))
        x = drawn(m, 3, 2, 4)
        out = layer(x, x, x, attn_mask=m.tensor([[True] * 3, [False, True, False], [True] * 3]), need_weights=weights)
        return [out[0], *m.autograd.grad(out[0].sum(), [x, *layer.parameters()])]

    if not weights:
        return same(call)
    # Where weights are asked for torch's rows are NaN; here they are what they are without.
    mine = [t.detach().numpy() for t in call(ts)]
    weights = False
    for found, expected in zip(mine, call(torch), strict=True):
        np.testing.assert_allclose(found, expected.detach().numpy(), 1e-6, 1e-7)
