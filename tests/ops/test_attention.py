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


def reference(arrays: list[np.ndarray], grad: np.ndarray, bias: Any) -> list[np.ndarray]:
    """The result and the gradients by the formulas, in float64."""
    q, k, v = arrays
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * scale + bias
    top = np.maximum(scores.max(-1, keepdims=True), -1e300)
    weights = np.exp(scores - top)
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    d_weights = grad @ v.swapaxes(-1, -2)
    slopes = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True)) * scale
    return [weights @ v, slopes @ k, slopes.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ grad]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 5e-6), ("bfloat16", 3e-2), ("float16", 4e-3)])
@pytest.mark.parametrize(
    ("queries", "keys", "width", "values"), [(1, 600, 8, 8), (200, 530, 20, 33), (530, 200, 64, 16)]
)
@pytest.mark.parametrize("mask", ["none", "causal", "bool", "float"])
def test_by_blocks(
    device: Any, dtype: str, tolerance: float, queries: int, keys: int, width: int, values: int, mask: str
) -> None:
    shapes = [(2, queries, 3, width), (2, keys, 3, width), (2, keys, 3, values)]  # heads beside the last dim
    arrays, grad = [rand(*shape).swapaxes(1, 2) for shape in shapes], rand(2, 3, queries, values)
    options: dict[str, Any] = {}
    bias: Any = 0.0
    if mask == "causal":
        bias, options["is_causal"] = np.where(np.tri(queries, keys, dtype=bool), 0, -np.inf), True
    elif mask == "bool":
        keep = RNG.random((3, queries, keys)) > 0.3
        keep[1, queries // 2] = False
        bias, options["attn_mask"] = np.where(keep, 0, -np.inf), tensor(keep, device)
    elif mask == "float":
        bias = rand(2, 1, 1, keys).astype(np.float32)
        options["attn_mask"] = tensor(bias, device, ts.float32)
    made = [tensor(a.swapaxes(1, 2), device, getattr(ts, dtype), grad=True) for a in arrays]
    inputs = [t.transpose(1, 2) for t in made]
    got = attention(*inputs, **options)
    assert got.dtype == made[0].dtype
    grads = ts.autograd.grad(got, made, tensor(grad, device, got.dtype))
    results = [got.detach(), *(g.transpose(1, 2) for g in grads)]
    for actual, want in zip(results, reference(arrays, grad, bias), strict=True):
        error = np.abs(actual.double().cpu().numpy() - want).max()
        assert error <= tolerance * max(1.0, np.abs(want).max())


def test_second_derivatives_of_blocks(device: Any) -> None:
    arrays = [rand(2, 6, 4) for _ in range(3)]
    probe = rand(2, 6, 4)

    def penalty(dtype: Any) -> list[np.ndarray]:
        inputs = [tensor(a, device, dtype, grad=True) for a in arrays]
        y = attention(*inputs, is_causal=True)
        grads = ts.autograd.grad((y * y).sum(), inputs, create_graph=True)
        total = sum((g * tensor(probe, device, dtype)).sum() for g in grads)
        return [g.double().cpu().numpy() for g in ts.autograd.grad(total, inputs)]

    for got, want in zip(penalty(ts.float32), penalty(ts.float64), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4 * np.abs(want).max())


def test_blocks_without_a_kernel(device: Any) -> None:
    # float64 has none: the hidden operator gives what the kernel would.
    arrays = [rand(2, 5, 4), rand(2, 7, 4), rand(2, 7, 3)]
    keep = RNG.random((5, 7)) > 0.4
    keep[2] = False
    outcomes = []
    for dtype in (ts.float32, ts.float64):
        q, k, v = (tensor(a, device, dtype) for a in arrays)
        mask = tensor(keep, device).expand(2, 5, 7)
        got, sums = ts.ops.attention_blocks(q, k, v, mask, False, 0.5)
        grads = ts.ops.attention_blocks_backward(got, q, k, v, mask, got, sums, False, 0.5)
        outcomes.append([t.double().cpu().numpy() for t in (got, sums, *grads)])
    for single, double in zip(*outcomes, strict=True):
        np.testing.assert_allclose(single, double, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="logsumexp"):
        ts.ops.attention_blocks_backward(got, q, k, v, None, got, sums[:1], False, 0.5)
    with pytest.raises(RuntimeError, match="batch sizes"):
        ts.ops.attention_blocks(q[:1], k, v, None, False, 0.5)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64])
def test_gradients_by_parts_of_the_keys_are_those_by_all(device: Any, dtype: Any) -> None:
    q, k, v, grad = (tensor(rand(2, n, 4), device, dtype) for n in (5, 7, 7, 5))
    result, sums = ts.ops.attention_blocks(q, k, v, None, False, 0.5)
    whole = ts.ops.attention_blocks_backward(grad, q, k, v, None, result, sums, False, 0.5)
    parts = [
        ts.ops.attention_blocks_backward(grad, q, k[:, part], v[:, part], None, result, sums, False, 0.5)
        for part in (slice(0, 3), slice(3, 7))
    ]
    found = parts[0][0] + parts[1][0], *(ts.cat([a, b], 1) for a, b in zip(parts[0][1:], parts[1][1:], strict=True))
    for one, other in zip(found, whole, strict=True):
        assert ts.allclose(one, other, atol=1e-5 if dtype is ts.float32 else 1e-10)


def test_scores_are_not_held(device: Any) -> None:
    length = 1024
    q, k, v = (tensor(rand(1, 2, length, 8), device, ts.float32, grad=True) for _ in range(3))
    before = ts.memory_allocated(device)
    ts.reset_peak_memory_stats(device)
    attention(q, k, v, is_causal=True).sum().backward()
    if str(ts.device(device).type) == "cpu":
        assert ts.max_memory_allocated(device) - before < length * length * 4


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_result_lies_as_the_query_does(device, dtype):
    """As in PyTorch: heads and widths of (N, L, H, E) are viewed as one again."""
    x = ts.rand(2, 6, 3, 4, device=device).to(getattr(ts, dtype))
    rows = ts.rand(2, 6, 3, 3 * 4, device=device).to(getattr(ts, dtype)).split(4, dim=-1)
    for q, k, v in ((x.transpose(1, 2),) * 3, tuple(r.transpose(1, 2) for r in rows)):
        y = ts.nn.functional.scaled_dot_product_attention(q, k, v)
        assert tuple(y.transpose(1, 2).view(2, 6, 12).shape) == (2, 6, 12)
        reference = ts.nn.functional.scaled_dot_product_attention(q.contiguous(), k.contiguous(), v.contiguous())
        assert reference.is_contiguous()
        ts.testing.assert_close(y, reference, check_stride=False)
