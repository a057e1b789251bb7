"""Parameters wider than their input, gradients of short vectors and of writes in place, and the text of bags."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch
from outcomes import drawn, numbers, same


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
