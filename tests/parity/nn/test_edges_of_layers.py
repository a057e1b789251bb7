"""Edges that random modules beside torch's showed: rows that see nothing, infinite powers, sizes that stay, parameters
wider than their input, writes in place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

INF = float("inf")


def numbers(tensors: Any) -> list[Any]:
    return [np.asarray(t.detach().to(dtype=t.new_zeros(0).double().dtype).numpy()) for t in tensors]


def same(call: Any, rtol: float = 1e-6, atol: float = 1e-7) -> None:
    """What ``call`` returns with either library: tensors of one shape, dtype and value."""
    ours, theirs = call(ts), call(torch)
    assert [str(t.dtype).rpartition(".")[2] for t in ours] == [str(t.dtype).rpartition(".")[2] for t in theirs]
    for k, (a, b) in enumerate(zip(numbers(ours), numbers(theirs), strict=True)):
        np.testing.assert_allclose(a, b, rtol, atol, err_msg=f"result {k}")


def drawn(m: Any, *shape: int, dtype: str = "float64", seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return m.tensor(values).to(getattr(m, dtype)).requires_grad_()


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
        return [out[0], *([] if weights else m.autograd.grad(out[0].sum(), [x, *layer.parameters()]))]

    same(call)


@pytest.mark.parametrize("norm", [INF, -INF, 1.5])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pooling_by_any_power(dims: int, norm: float) -> None:
    def call(m: Any) -> Any:
        x = drawn(m, 2, 3, *[5] * dims)
        found = []
        for options in ({}, {"stride": 1}, {"ceil_mode": True}):
            out = getattr(m.nn, f"LPPool{dims}d")(norm, 2, **options)(x.abs() if norm == 1.5 else x)
            found += [out, *m.autograd.grad(out.sin().sum(), x)]
        return found

    same(call)


@pytest.mark.parametrize(
    ("mode", "dims", "consistent"),
    # PyTorch's gradients of "nearest" along one and three dims are those of other positions than it read.
    [("nearest", 1, False), ("nearest", 2, True), ("nearest", 3, False), ("nearest-exact", 2, True),
     ("linear", 1, True), ("bilinear", 2, True), ("bicubic", 2, True), ("trilinear", 3, True)],
)  # fmt: skip
def test_scales_that_keep_or_double_a_size(mode: str, dims: int, consistent: bool) -> None:
    def call(m: Any) -> Any:
        found = []
        for size, scale in itertools.product((1, 2, 3, 5), (1.1, 1.3, 2.1, 2.3, 0.9)):
            if int(size * scale) == 0:
                continue
            x = drawn(m, 1, 2, size, *[3] * (dims - 1))
            out = m.nn.functional.interpolate(x, scale_factor=(scale, *[2.0] * (dims - 1)), mode=mode)
            found += [out, *(m.autograd.grad(out.sin().sum(), x) if consistent else [])]
        return found

    same(call)


@pytest.mark.parametrize("half", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    "make",
    [
        lambda nn: nn.BatchNorm2d(6),
        lambda nn: nn.LayerNorm(5),
        lambda nn: nn.GroupNorm(2, 6),
        lambda nn: nn.InstanceNorm2d(6, affine=True),
    ],
)
def test_wide_parameters_beside_a_half_input_are_not_rounded(make: Any, half: str) -> None:
    """Neither in the result, nor are their gradients."""

    def call(m: Any, dtype: str = half) -> Any:
        layer = make(m.nn).to(m.float64 if dtype == "float64" else m.float32)
        with m.no_grad():
            layer.weight.copy_(drawn(m, *layer.weight.shape, seed=1) * 1e-3 + 1)
            layer.bias.fill_(1 / 3)
        x = drawn(m, 4, 6, 5, 5).to(getattr(m, half)).to(getattr(m, dtype))
        out = layer(x)
        return [out, *m.autograd.grad((out.double() * m.arange(5).double()).sum(), [layer.weight, layer.bias])]

    (out, weight, bias), exact = call(ts), call(torch, "float64")
    assert out.dtype is getattr(ts, half) and weight.dtype is bias.dtype is ts.float32
    eps = float(ts.finfo(out.dtype).eps)
    for got, wanted, room in zip(numbers([out, weight, bias]), numbers(exact), (eps, eps / 8, eps / 8), strict=True):
        np.testing.assert_allclose(got, wanted, 0, room * np.abs(wanted).max())


def test_the_gradient_of_a_cosine_whose_vectors_are_short() -> None:
    def call(m: Any) -> Any:
        a, b = drawn(m, 3, 4), drawn(m, 3, 4, seed=1)
        out = m.nn.functional.cosine_similarity(a, b, eps=2.0)
        return [out, *m.autograd.grad(out.sum(), [a, b])]

    same(call)


@pytest.mark.parametrize("training", [True, False])
def test_rrelu_in_place_has_a_gradient(training: bool) -> None:
    layer = ts.nn.RReLU(0.25, 0.25, inplace=True).train(training)
    x = ts.tensor([-2.0, 4.0, 0.0], requires_grad=True)
    y = x * 1
    assert layer(y) is y
    assert ts.autograd.grad(y.sum(), x)[0].tolist() == [0.25, 1.0, 0.25] and y.tolist() == [-0.5, 4.0, 0.0]


@pytest.mark.parametrize("options", [{}, {"max_norm": 2.0, "norm_type": 1.0, "mode": "sum"}, {"padding_idx": 1}])
def test_the_text_of_bags(options: dict[str, Any]) -> None:
    assert repr(ts.nn.EmbeddingBag(4, 2, **options)) == repr(torch.nn.EmbeddingBag(4, 2, **options))
    assert repr(ts.nn.EmbeddingBag(4, 2, scale_grad_by_freq=True)) == repr(
        torch.nn.EmbeddingBag(4, 2, scale_grad_by_freq=True)
    )
