"""Attention within sequences that lie one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest
import tesserack as ts
from tesserack.nn import functional as F
from tesserack.nn.attention.varlen import AuxRequest, varlen_attn, varlen_attn_out

ENDS = [0, 3, 4, 9]


def by_hand(query, key, value, window=(-1, -1)):
    out = []
    for first, last in pairwise(ENDS):
        q, k, v = (x[first:last].transpose(0, 1) for x in (query, key, value))
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        for i in range(last - first):
            for j in range(last - first):
                if (window[0] >= 0 and j < i - window[0]) or (window[1] >= 0 and j > i + window[1]):
                    scores[:, i, j] = float("-inf")
        out.append((scores.softmax(-1) @ v).transpose(0, 1))
    return ts.cat(out)


@pytest.mark.parametrize("window", [(-1, -1), (-1, 0), (1, 0), (0, 1)])
def test_each_sequence_sees_itself(device, window):
    ends = ts.tensor(ENDS, device=device)
    q, k, v = (ts.randn(9, 2, 4, device=device) for _ in range(3))
    q.requires_grad_()
    result, sums = varlen_attn(q, k, v, ends, ends, 5, 5, window_size=window, return_aux=AuxRequest(lse=True))
    ts.testing.assert_close(result, by_hand(q, k, v, window), rtol=1e-4, atol=1e-5)
    assert sums.shape == (2, 9) and ts.isfinite(sums).all()
    result.sum().backward()
    assert q.grad.shape == q.shape
    out = ts.empty_like(v)
    assert varlen_attn_out(out, q.detach(), k, v, ends, ends, 5, 5, window_size=window) is out
    ts.testing.assert_close(out, result.detach())


def test_fewer_heads_of_keys_and_keys_in_pages():
    ends = ts.tensor([0, 1, 2])
    q, pages, values = ts.randn(2, 4, 8), ts.randn(5, 2, 2, 8), ts.randn(5, 2, 2, 8)
    with pytest.raises(ValueError, match="enable_gqa"):
        varlen_attn(q, pages[0], values[0], ends, ends, 1, 1)
    table, used = ts.tensor([[3, 0], [1, 4]]), ts.tensor([3, 2])
    result = varlen_attn(
        q, pages, values, ends, None, 1, 4, enable_gqa=True, seqused_k=used, block_table=table, scale=0.5
    )
    keys = ts.cat([pages[3], pages[0][:1]]).repeat_interleave(2, 1)
    picked = ts.cat([values[3], values[0][:1]]).repeat_interleave(2, 1)
    one = F.scaled_dot_product_attention(q[:1].transpose(0, 1), keys.transpose(0, 1), picked.transpose(0, 1), scale=0.5)
    ts.testing.assert_close(result[:1], one.transpose(0, 1), rtol=1e-4, atol=1e-5)
