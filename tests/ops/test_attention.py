"""Scaled dot product attention against its formula in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(9)
attention = ts.scaled_dot_product_attention


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: Any = 0.0, scale: float | None = None) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 5e-2)])
def test_values(device: Any, dtype: str, tolerance: float) -> None:
    arrays = rand(2, 3, 5, 4), rand(2, 3, 6, 4), rand(2, 3, 6, 7)
    q, k, v = (tensor(a, device, getattr(ts, dtype)) for a in arrays)
    bias = rand(5, 6)
    causal = np.where(np.tri(5, 6, dtype=bool), 0, -np.inf)
    keep = RNG.random((3, 5, 6)) > 0.3
    keep[..., 0] = True
    for got, want in (
        (attention(q, k, v), expected(*arrays)),
        (attention(q, k, v, scale=-0.2), expected(*arrays, scale=-0.2)),
        (attention(q, k, v, tensor(bias, device, getattr(ts, dtype))), expected(*arrays, bias=bias)),
        (attention(q, k, v, is_causal=True), expected(*arrays, bias=causal)),
        (attention(q, k, v, tensor(keep, device)), expected(*arrays, bias=np.where(keep, 0, -np.inf))),
    ):
        assert got.dtype == q.dtype
        np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)


def test_nothing_to_see_gives_zeros(device: Any) -> None:
    q, k, v = (tensor(rand(2, 3), device) for _ in range(3))
    mask = tensor([[True, False], [False, False]], device)
    got = attention(q, k, v, mask).cpu().numpy()
    np.testing.assert_allclose(got, [v.cpu().numpy()[0], np.zeros(3)])


def test_gradients(device: Any) -> None:
    args = tuple(tensor(rand(2, 3, 2), device, grad=True) for _ in range(3))
    for options in ({}, {"is_causal": True}, {"scale": 0.3}):
        assert gradcheck(lambda *t, o=options: attention(*t, **o), args)
        assert gradgradcheck(lambda *t, o=options: attention(*t, **o), args)


def test_grouped_heads_and_dropout(device: Any) -> None:
    q, k, v = rand(1, 4, 3, 2), rand(1, 2, 3, 2), rand(1, 2, 3, 2)
    got = attention(tensor(q, device), tensor(k, device), tensor(v, device), enable_gqa=True)
    np.testing.assert_allclose(got.cpu().numpy(), expected(q, k.repeat(2, 1), v.repeat(2, 1)), rtol=1e-12)
    dropped = attention(tensor(q, device), tensor(q, device), tensor(q, device), dropout_p=1.0)
    assert dropped.abs().sum().item() == 0


def test_errors(device: Any) -> None:
    q = tensor(rand(2, 3), device)
    for call, text in (
        (lambda: attention(q[0], q, q), "at least 2"),
        (lambda: attention(q, q.float(), q), "dtype"),
        (lambda: attention(q, q, q, tensor(rand(2, 2), device), is_causal=True), "is_causal"),
        (lambda: attention(q, q, q, ts.zeros(2, 2, dtype=ts.int64, device=device)), "attn_mask"),
        (lambda: attention(q, q, tensor(rand(3, 3), device)), "keys"),
        (lambda: attention(q, q[:, :2], q), "last size"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
