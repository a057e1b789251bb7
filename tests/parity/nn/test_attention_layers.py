"""Attention and transformer layers beside torch's, over options and masks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tesserack import nn

tnn = torch.nn
pytestmark = pytest.mark.filterwarnings("ignore")  # both warn about masks of two kinds


def draw(*shape: int) -> Any:
    return torch.randn(*shape, dtype=torch.double)


ATTENTION: list[dict[str, Any]] = [
    {},
    {"add_bias_kv": True},
    {"add_zero_attn": True, "batch_first": True},
    {"kdim": 6, "vdim": 7},
    {"bias": False},
    {"bias": False, "kdim": 6, "batch_first": True},
]


@pytest.mark.parametrize("options", ATTENTION, ids=str)
def test_multihead_attention(options: dict[str, Any], beside: Any) -> None:
    torch.manual_seed(1)
    ours, theirs = beside.pair(nn.MultiheadAttention(8, 2, **options), tnn.MultiheadAttention(8, 2, **options))
    length, batch, keys = 4, 3, 5
    first = options.get("batch_first", False)
    sizes = ((length, 8), (keys, options.get("kdim", 8)), (keys, options.get("vdim", 8)))
    q, k, v = [draw(*((batch, n) if first else (n, batch)), size).requires_grad_() for n, size in sizes]
    hidden = torch.rand(batch, keys) > 0.7
    hidden[:, 0] = False
    unseen = torch.rand(length, keys) > 0.8
    unseen[:, 0] = False
    paddings = (None, hidden, draw(batch, keys))
    masks = (None, unseen, draw(length, keys), draw(batch * 2, length, keys))
    for padding, mask, weights, average in itertools.product(paddings, masks, (True, False), (True, False)):
        given = beside.ours([padding, mask])
        mine = beside.ours([q, k, v])
        got = ours(*mine, given[0], weights, given[1], average)
        expected = theirs(q, k, v, padding, weights, mask, average)
        beside.close(got, expected)
    for layer, out in ((ours, got), (theirs, expected)):
        layer.zero_grad()
        out[0].square().sum().backward()
    beside.close([t.grad for t in mine], [t.grad for t in (q, k, v)])
    beside.gradients(ours, theirs)


def test_self_attention_shares_one_product(beside: Any) -> None:
    torch.manual_seed(2)
    for first in (False, True):
        ours, theirs = beside.pair(*(lib.MultiheadAttention(8, 2, batch_first=first) for lib in (nn, tnn)))
        x, y = draw(4, 3, 8), draw(4, 3, 8)
        a, b = beside.ours(x), beside.ours(y)
        beside.close(ours(a, a, a), theirs(x, x, x))
        beside.close(ours(a, b, b), theirs(x, y, y))
        beside.close(ours(a[0], a[0], a[0]), theirs(x[0], x[0], x[0]))


def test_causal_hint(beside: Any) -> None:
    torch.manual_seed(3)
    ours, theirs = beside.pair(*(lib.MultiheadAttention(8, 2) for lib in (nn, tnn)))
    mask = tnn.Transformer.generate_square_subsequent_mask(4, dtype=torch.double)
    x = draw(4, 3, 8)
    a = beside.ours(x)
    for weights in (True, False):
        got = ours(a, a, a, need_weights=weights, attn_mask=beside.ours(mask), is_causal=True)
        beside.close(got, theirs(x, x, x, need_weights=weights, attn_mask=mask, is_causal=True))
    with pytest.raises(RuntimeError, match="attn_mask"):
        ours(a, a, a, is_causal=True)


def test_static_keys_and_values(beside: Any) -> None:
    torch.manual_seed(4)
    theirs = tnn.MultiheadAttention(8, 2).double()
    q, k = draw(4, 3, 8), draw(6, 5, 4)
    shared = (8, 2, theirs.in_proj_weight, theirs.in_proj_bias, None, None, False, 0.0, theirs.out_proj.weight,
              theirs.out_proj.bias)  # fmt: skip
    mine = beside.ours(shared)
    a, s = beside.ours(q), beside.ours(k)
    got = nn.functional.multi_head_attention_forward(a, a, a, *mine, static_k=s, static_v=s)
    expected = tnn.functional.multi_head_attention_forward(q, q, q, *shared, static_k=k, static_v=k)
    beside.close(got, expected)


LAYERS: list[dict[str, Any]] = [
    {},
    {"norm_first": True, "activation": "gelu", "batch_first": True},
    {"bias": False, "layer_norm_eps": 1e-3},
]


@pytest.mark.parametrize("options", LAYERS, ids=str)
def test_transformer(options: dict[str, Any], beside: Any) -> None:
    torch.manual_seed(5)
    ours, theirs = beside.pair(*(lib.Transformer(8, 2, 2, 2, 16, dropout=0.0, **options) for lib in (nn, tnn)))
    source, target = draw(3, 3, 8).requires_grad_(), draw(3, 3, 8).requires_grad_()
    a, b = beside.ours((source, target))
    causal = tnn.Transformer.generate_square_subsequent_mask(3, dtype=torch.double)
    hidden = torch.tensor([[False, False, True]] * 3)
    for mode in (True, False):
        ours.train(mode), theirs.train(mode)
        masks: list[dict[str, Any]] = [
            {},
            {"tgt_mask": causal, "src_key_padding_mask": hidden, "memory_key_padding_mask": hidden},
            {"tgt_mask": causal, "tgt_is_causal": True, "src_mask": causal},
            {"tgt_mask": causal.isinf(), "memory_mask": causal, "tgt_key_padding_mask": hidden},
        ]
        for given in masks:
            mine = beside.ours(given)
            got, expected = ours(a, b, **mine), theirs(source, target, **given)
            beside.close(got, expected, str(given))
            if not mode:
                continue
            ours.zero_grad(), theirs.zero_grad()
            a.grad = b.grad = source.grad = target.grad = None
            got.square().sum().backward()
            expected.square().sum().backward()
            beside.close([a.grad, b.grad], [source.grad, target.grad])
            beside.gradients(ours, theirs)


def test_stacks_without_batch_and_activation_functions(beside: Any) -> None:
    torch.manual_seed(6)
    stacks = []
    for lib, wave in ((nn, nn.functional.silu), (tnn, tnn.functional.silu)):
        layer = lib.TransformerEncoderLayer(8, 4, 12, 0.0, wave)
        stacks.append(lib.TransformerEncoder(layer, 2, lib.LayerNorm(8), enable_nested_tensor=False))
    ours, theirs = beside.pair(*stacks)
    for shape in ((5, 8), (5, 2, 8)):
        x = draw(*shape)
        beside.close(ours(beside.ours(x)), theirs(x))
    causal = tnn.Transformer.generate_square_subsequent_mask(5, dtype=torch.double)
    beside.close(ours(beside.ours(x), beside.ours(causal)), theirs(x, causal))


BAD = [
    lambda m: m.nn.MultiheadAttention(8, 3),
    lambda m: m.nn.MultiheadAttention(0, 1),
    lambda m: m.nn.TransformerEncoderLayer(8, 2, activation="tanh"),
    lambda m: m.nn.MultiheadAttention(8, 2)(m.ones(4, 3, 6), m.ones(4, 3, 6), m.ones(4, 3, 6)),
    lambda m: m.nn.MultiheadAttention(8, 2)(m.ones(4, 3, 8), m.ones(5, 3, 8), m.ones(4, 3, 8)),
    lambda m: m.nn.MultiheadAttention(8, 2)(m.ones(4, 3, 8), m.ones(4, 8), m.ones(4, 8)),
    lambda m: m.nn.MultiheadAttention(8, 2)(*[m.ones(4, 3, 8)] * 3, attn_mask=m.ones(4, 5)),
    lambda m: m.nn.MultiheadAttention(8, 2)(*[m.ones(4, 3, 8)] * 3, key_padding_mask=m.ones(4, 5)),
    lambda m: m.nn.MultiheadAttention(8, 2)(*[m.ones(4, 3, 8)] * 3, attn_mask=m.ones(4, 4, dtype=m.int64)),
    lambda m: m.nn.Transformer(8, 2, 1, 1, 8)(m.ones(4, 3, 8), m.ones(4, 2, 8)),
    lambda m: m.nn.Transformer(8, 2, 1, 1, 8)(m.ones(4, 3, 8), m.ones(4, 3, 6)),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_errors(case: int) -> None:
    import tesserack

    with pytest.raises(Exception) as expected:
        BAD[case](torch)
    with pytest.raises(expected.type):
        BAD[case](tesserack)
