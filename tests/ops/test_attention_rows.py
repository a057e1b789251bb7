"""Attention with more scores than are held at once, where no kernel takes it: float64, learned masks, dropout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck

attention = ts.scaled_dot_product_attention
HEADS, QUERIES, KEYS, WIDTH = 2, 1700, 1500, 4  # 5.1 million scores, of which 4.2 million may be held

# Operators over millions of elements: the devices that are written in Python are no faster for being right.
pytestmark = pytest.mark.filterwarnings("ignore")


def make(device: Any, dtype: Any = ts.float64) -> list[ts.Tensor]:
    ts.manual_seed(5)
    sizes = ((HEADS, QUERIES, WIDTH), (HEADS, KEYS, WIDTH), (HEADS, KEYS, 3))
    return [ts.randn(*s, dtype=dtype).to(device).requires_grad_() for s in sizes]


def weights_of(q: ts.Tensor, k: ts.Tensor, bias: Any) -> ts.Tensor:
    return ((q @ k.transpose(-1, -2)) * WIDTH**-0.5 + bias).softmax(-1)


def compare(got: Any, want: Any) -> None:
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a.detach().cpu().numpy(), b.detach().cpu().numpy(), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("mask", ["none", "causal", "bool", "by rows", "by keys"])
def test_float64(device: Any, mask: str) -> None:
    inputs = make(device)
    q, k, v = inputs
    given, bias = None, ts.zeros(1, dtype=ts.float64, device=device)
    if mask == "causal":
        allowed = ts.ones(QUERIES, KEYS, dtype=ts.bool, device=device).tril()
        bias = ts.zeros(QUERIES, KEYS, dtype=ts.float64, device=device).masked_fill(~allowed, float("-inf"))
    elif mask == "bool":
        given = ts.randn(QUERIES, KEYS).to(device) > -0.5
        bias = ts.zeros(QUERIES, KEYS, dtype=ts.float64, device=device).masked_fill(~given, float("-inf"))
    elif mask != "none":
        shape = (HEADS, QUERIES, KEYS) if mask == "by rows" else (1, KEYS)
        given = bias = ts.randn(*shape, dtype=ts.float64).to(device).requires_grad_()
        inputs.append(given)
    out = attention(q, k, v, given, is_causal=mask == "causal")
    assert "ScaledDotProductAttention" in type(out.grad_fn).__name__ + str(out.grad_fn)
    want = weights_of(q, k, bias) @ v
    probe = ts.randn(*want.shape, dtype=ts.float64).to(device)
    compare([out], [want])
    compare(ts.autograd.grad(out, inputs, probe), ts.autograd.grad(want, inputs, probe))


def test_dropout(device: Any) -> None:
    """The same seed drops the same; what was dropped is found out from values that stand for the keys."""
    q, k, _ = make(device)
    v = ts.eye(KEYS, dtype=ts.float64, device=device).expand(HEADS, KEYS, KEYS).requires_grad_()
    ts.manual_seed(3)
    out = attention(q, k, v, dropout_p=0.25)
    ts.manual_seed(3)
    assert ts.equal(attention(q, k, v, dropout_p=0.25), out)
    assert not ts.equal(attention(q, k, v, dropout_p=0.25), out)
    weights = weights_of(q, k, 0.0)
    kept = (out != 0).double().detach()
    assert abs(kept.mean().item() - 0.75) < 0.002
    rows = kept.mean(-1)
    assert rows.min().item() > 0.65 and rows.max().item() < 0.85 and rows.std().item() > 0.005
    want = weights * kept / 0.75
    compare([out], [want])
    probe = ts.randn(*out.shape, dtype=ts.float64).to(device)
    inputs = (q, k, v)
    compare(ts.autograd.grad(out, inputs, probe), ts.autograd.grad(want @ v, inputs, probe))


def test_few_rows_at_a_time_are_held(device: Any) -> None:
    if str(ts.device(device).type) != "cpu":
        pytest.skip("one device's allocator is every device's")
    length = 4096
    q, k, v = (ts.randn(1, length, 8, device=device, requires_grad=True) for _ in range(3))
    bias = ts.zeros(1, length, device=device, requires_grad=True)
    for options in ({"dropout_p": 0.1}, {"attn_mask": bias}):
        before = ts.memory_allocated(device)
        ts.reset_peak_memory_stats(device)
        attention(q, k, v, **options).sum().backward()
        # A block's scores, weights, drawn numbers and their gradients; all scores would be four times one of these.
        assert ts.max_memory_allocated(device) - before < 8 * 4 * (1 << 22)


def test_the_hidden_operator_on_few_scores(device: Any) -> None:
    args = tuple(ts.randn(2, 3, 2, dtype=ts.float64).to(device).requires_grad_() for _ in range(3))
    mask = ts.randn(3, 3, dtype=ts.float64).to(device).requires_grad_()
    assert gradcheck(lambda q, k, v, m: ts.ops.attention_rows(q, k, v, m, False, 0.5, 0.0)[0], (*args, mask))
    assert gradcheck(lambda q, k, v: ts.ops.attention_rows(q, k, v, None, True, 0.5, 0.0)[0], args)
