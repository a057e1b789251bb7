"""Gradients of each sample apart, beside those of PyTorch's expanded weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
import tesserack.nn.utils._per_sample_grad as ours
import torch
import torch.nn.utils._per_sample_grad as theirs

CASES = {
    "linear": ("m.nn.Linear(4, 3)", (5, 4), "float32"),
    "linear of sequences": ("m.nn.Linear(4, 3, bias=False)", (5, 2, 4), "float32"),
    "convolution": ("m.nn.Conv2d(2, 4, 3, padding=1, groups=2)", (3, 2, 5, 4), "float32"),
    "embedding": ("m.nn.Embedding(6, 3)", (4, 2), "int64"),
    "norm": ("m.nn.GroupNorm(2, 4)", (3, 4, 5), "float32"),
    "layers": ("m.nn.Sequential(m.nn.Linear(4, 6), m.nn.LayerNorm(6), m.nn.Linear(6, 1))", (5, 4), "float32"),
}  # fmt: skip


def left(m: Any, call: Any, make: str, sizes: tuple[int, ...], dtype: str, **options: Any) -> list[Any]:
    module = eval(make, {"m": m})
    for k, weight in enumerate(module.parameters()):
        values = np.cos(np.arange(weight.numel()) + k).reshape(tuple(weight.shape))
        weight.data.copy_(m.tensor(values, dtype=m.float32))
    x = m.tensor(np.arange(np.prod(sizes)).reshape(sizes) % 6, dtype=getattr(m, dtype))
    out = call(module, **options)(x)
    (out * out).sum().backward()
    assert all(weight.grad is None for weight in module.parameters())
    return [out.detach().numpy(), *(weight.grad_sample.numpy() for weight in module.parameters())]


@pytest.mark.parametrize("options", [{}, {"loss_reduction": "mean"}], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_torch(case: str, options: dict[str, Any]) -> None:
    got = left(ts, ours.call_for_per_sample_grads, *CASES[case], **options)
    want = left(torch, theirs.call_for_per_sample_grads, *CASES[case], **options)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)


def test_samples_along_dim_one() -> None:
    layer, x = ts.nn.Linear(4, 3), ts.arange(40.0).reshape(2, 5, 4)
    out = ours.call_for_per_sample_grads(layer, batch_first=False)(x)
    out.square().sum().backward()
    for k in range(5):
        (want,) = ts.autograd.grad(layer(x[:, k]).square().sum(), layer.weight)
        ts.testing.assert_close(layer.weight.grad_sample[k], want)
    ts.testing.assert_close(out, layer(x))


def test_parameters_that_are_not_trained_have_none() -> None:
    layer = ts.nn.Linear(2, 2)
    layer.weight.requires_grad_(False)
    ours.call_for_per_sample_grads(layer)(ts.ones(3, 2)).sum().backward()
    assert layer.bias.grad_sample.shape == (3, 2) and not hasattr(layer.weight, "grad_sample")


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda f, layer: f(layer, loss_reduction="max"), "'sum' or 'mean', got max"),
        (lambda f, layer: f(layer.weight), "an nn.Module, got Parameter"),
        (lambda f, layer: f(layer, batch_size=0), "positive int as batch_size, got 0"),
        (lambda f, layer: f(ts.nn.Bilinear(2, 2, 1))(ts.ones(3, 2), ts.ones(4, 2)), "one batch size, got .3, 4."),
    ],
)
def test_errors(call: Any, what: str) -> None:
    with pytest.raises(RuntimeError, match=what):
        call(ours.call_for_per_sample_grads, ts.nn.Linear(2, 2))


def test_a_gradient_left_before_is_an_error() -> None:
    layer = ts.nn.Linear(2, 2)
    ours.call_for_per_sample_grads(layer)(ts.ones(3, 2)).sum().backward()
    with pytest.raises(RuntimeError, match="weight has a grad_sample already"):
        ours.call_for_per_sample_grads(layer)
