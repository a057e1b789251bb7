"""Nested tensors beside PyTorch's: values, shapes, which dimension is ragged, gradients, and where both refuse."""

from __future__ import annotations

import copy
import importlib

import pytest
import tesserack as ts
import torch

importlib.import_module("torch.nested")
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),  # PyTorch's own: a prototype
    pytest.mark.skipif(not torch.__version__.startswith("2.13"), reason="nested tensors change with every release"),
]


def some(m, seed, *shape):
    count = 1
    for n in shape:
        count *= n
    return ((m.arange(count).float() * 37 + seed * 11) % 17 / 8 - 1).reshape(shape)


def of_rows(m, *shapes):
    return m.nested.nested_tensor([some(m, k, *shape) for k, shape in enumerate(shapes, 2)], layout=m.jagged)


MADE = {
    "rows": lambda m: of_rows(m, (2, 4), (1, 4), (3, 4)),
    "more dims": lambda m: of_rows(m, (2, 3, 4), (1, 3, 4), (3, 3, 4)),
    "numbers": lambda m: of_rows(m, (2,), (1,), (3,)),
    "ragged last": lambda m: of_rows(m, (4, 2), (4, 1), (4, 3)),
    "an empty row": lambda m: m.nested.nested_tensor_from_jagged(some(m, 1, 5, 4), m.tensor([0, 2, 2, 5])),
    "gaps": lambda m: m.nested.nested_tensor_from_jagged(
        some(m, 1, 6, 4), m.tensor([0, 2, 3, 6]), lengths=m.tensor([1, 1, 2])
    ),
}
CALLS = """
x.dim() | len(x) | x.numel() | x.is_contiguous() | x.is_nested | x.layout is m.jagged | x.size(0) | x.unbind()
x.detach() | x.clone() | x.contiguous() | x.double() | x.to(m.float64) | x.to('cpu') is x | x.bool() | x.type(m.float64)
x + 1 | 1 - x | x * x | x / 2 | x**2 | -x | abs(x) | x > 0 | x == x | m.pow(2, x) | m.atan2(x, x) | m.logical_and(x, x)
m.where(x > 0, x, -x) | m.maximum(x, x) | x.clamp(min=0) | x.masked_fill(x > 0, 0.) | m.lerp(x, x, 0.5) | x.fmod(1)
x + some(m, 1, 4) | x + some(m, 1, 1, 1, 4) | some(m, 1, 4) - x | x + m.tensor(2.) | x % 1 | m.nan_to_num(x)
F.relu(x) | F.gelu(x) | F.silu(x) | F.leaky_relu(x, 0.1) | F.elu(x) | F.softplus(x) | F.hardtanh(x) | F.mish(x)
x.exp() | x.sin() | x.square() | x.sign() | x.round() | m.isnan(x) | x.int() | m.special.expit(x) | m.nn.ReLU()(x)
x.sum(1) | x.sum(-1) | x.sum(2) | x.sum(0) | x.sum(1, keepdim=True) | x.sum((0, 1)) | x.sum((1, 2)) | x.mean(1)
x.mean(-1) | x.mean(1, keepdim=True) | x.max(1) | x.max(-1) | x.min(-1, keepdim=True) | x.amax(1) | x.amin(-1) | x.max()
x.argmax(1) | x.argmin(0) | x.prod(1) | (x > 0).any(1) | (x > 0).all(-1) | x.var() | x.cumsum(1) | x.norm() | x.sort()
x.softmax(-1) | x.softmax(1) | F.softmax(x, 1) | F.log_softmax(x, -1) | F.log_softmax(x, 1) | x.softmax(0)
x.transpose(1, 2) | x.transpose(0, 1) | x.transpose(-1, -2) | x.permute(0, 2, 1) | x.permute(1, 0, 2) | x.permute(0, 1)
x.unsqueeze(0) | x.unsqueeze(1) | x.unsqueeze(-1) | x.mT | x.narrow(1, 0, 9) | x.select(0, 1) | x.select(1, 0)
x[0] | x[-1] | x[..., 0] | x[..., None] | x[None] | x[x > 0] | x.flatten(2, 3) | x.flatten() | x.unflatten(-1, (2, 2))
x.view(3, x.size(1), 2, 2) | x.view(-1, 4) | x.reshape(12) | x.expand(3, 3, 4) | x.size(9) | x.unbind(1)
m.cat([x, x], -1) | m.cat([x, x], 0) | m.cat([x, x]) | m.stack([x, x], -1) | m.stack([x, x])
F.linear(x, W(m)) | x @ W(m).t() | x @ some(m, 1, 3, 4, 2) | x @ x | x.transpose(1, 2) @ x
m.bmm(x, some(m, 1, 3, 4, 2))
F.rms_norm(x, (4,)) | F.rms_norm(x, (3, 4)) | F.dropout(x, 0.5, False) | F.one_hot(x.long().clamp(0, 2))
m.zeros_like(x) | m.full_like(x, 3.) | m.ones_like(x, dtype=m.int64) | x.new_zeros(()) | x.new_zeros(3)
x.clone().add_(1) | x.clone().mul_(x) | x.clone().zero_() | x.clone().fill_(2) | x.clone().copy_(x) | x.topk(1) | x.T
m.nested.to_padded_tensor(x, 0.) | x.to_padded_tensor(-1.) | copy.deepcopy(x) | copy.deepcopy(x).shape == x.shape
m.nested.as_nested_tensor(x, layout=m.jagged) is x | m.nested.as_nested_tensor(x, dtype=m.float64, layout=m.jagged)
"""
EXPRESSIONS = [part.strip() for part in CALLS.replace("\n", " | ").split("|") if part.strip()]


def W(m):
    return some(m, 5, 3, 4)


def plain(m, value):
    if isinstance(value, (list, tuple)):
        return [plain(m, v) for v in value]
    if not isinstance(value, m.Tensor):
        return value
    if value.is_nested:
        return [value._ragged_idx, [plain(m, row) for row in value.unbind()]]
    numbers = value.detach().double().flatten().tolist()
    wanted = pytest.approx(numbers, rel=1e-5, abs=1e-6, nan_ok=True) if m is torch else numbers
    return [tuple(value.shape), str(value.dtype).rsplit(".", 1)[-1], wanted]


def outcome(m, text, kind):
    names = {"m": m, "F": m.nn.functional, "x": MADE[kind](m), "some": some, "W": W, "copy": copy}
    try:
        return plain(m, eval(text, names))
    except Exception as error:
        return error


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_outcome(kind, text):
    theirs, ours = outcome(torch, text, kind), outcome(ts, text, kind)
    if isinstance(theirs, Exception):
        assert isinstance(ours, (RuntimeError, ValueError, TypeError, IndexError)) or lenient(kind, theirs)
    else:
        assert ours == theirs


def lenient(kind, error):
    """PyTorch asks of many views that the ragged dimension be the first, without gaps; ours need not."""
    return kind in ("gaps", "ragged last") and isinstance(error, (ValueError, RuntimeError))


def gradients(m, call):
    x, w = (v.detach().clone().requires_grad_() for v in (MADE["rows"](m), W(m)))
    made = call(m, x, w)
    made = made.values() if made.is_nested else made
    (made * some(m, 9, *made.shape)).sum().backward()
    assert x.grad.is_nested
    return plain(m, [x.grad, w.grad if w.grad is not None else 0])


@pytest.mark.parametrize("call", [
    lambda m, x, w: x + w[0], lambda m, x, w: m.nn.functional.linear(x, w), lambda m, x, w: x @ w.t(),
    lambda m, x, w: m.nn.functional.layer_norm(x, (4,), w[0]), lambda m, x, w: x.to_padded_tensor(0.0) * w[0],
    lambda m, x, w: x.transpose(1, 2), lambda m, x, w: x[2] * w[0], lambda m, x, w: x.amax(1) * w[0],
    lambda m, x, w: m.cat([x, x * w[0]], -1), lambda m, x, w: x + w.unsqueeze(1), lambda m, x, w: x.softmax(-1),
])  # fmt: skip
def test_gradients(call):
    assert gradients(ts, call) == gradients(torch, call)


def attention(m):
    offsets = m.tensor([0, 2, 3, 6])
    q, k, v = (
        m.nested.nested_tensor_from_jagged(some(m, s, 6, 8), offsets).unflatten(-1, (2, 4)).transpose(1, 2)
        for s in (1, 2, 3)
    )
    return m.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


def test_attention():
    assert plain(ts, attention(ts)) == plain(torch, attention(torch))


@pytest.mark.parametrize("make", [
    lambda m: m.nested.nested_tensor([[1, 2], [3]], layout=m.jagged),
    lambda m: m.nested.as_nested_tensor(some(m, 1, 2, 3, 2), layout=m.jagged),
    lambda m: m.nested.as_nested_tensor((m.ones(2), m.ones(1)), layout=m.jagged),
    lambda m: m.nested.nested_tensor_from_jagged(some(m, 1, 5), lengths=m.tensor([2, 3])),
    lambda m: m.nested.nested_tensor_from_jagged(some(m, 1, 4, 5), m.tensor([0, 2, 5]), jagged_dim=2),
    lambda m: m.nested.nested_tensor_from_jagged(some(m, 1, 5), m.tensor([0, 2, 5]), None, 1, 2, 3).to_padded_tensor(0),
    lambda m: m.nested.narrow(some(m, 1, 3, 5, 2), 1, m.tensor([0, 1, 2]), m.tensor([2, 3, 1]), layout=m.jagged),
    lambda m: m.nested.narrow(some(m, 1, 3, 5), 1, m.tensor([3, 0, 0]), m.tensor([2, 5, 2]), layout=m.jagged),
    lambda m: m.nested.masked_select(some(m, 1, 3, 4), some(m, 1, 3, 4) > 0),
    lambda m: m.nested.masked_select(some(m, 1, 3, 4), m.tensor([True, False, True, False])),
    lambda m: m.nn.functional.embedding(m.nested.nested_tensor([[1, 2], [0]], layout=m.jagged), W(m)),
])  # fmt: skip
def test_made(make):
    assert plain(ts, make(ts)) == plain(torch, make(torch))


def test_names_and_arguments():
    import inspect

    for name in torch.nested.__all__:
        ours = list(inspect.signature(getattr(ts.nested, name)).parameters)
        if name != "to_padded_tensor":  # a built-in of PyTorch's, without a signature
            assert ours == list(inspect.signature(getattr(torch.nested, name)).parameters), name
    assert sorted(ts.nested.__all__) == sorted(torch.nested.__all__)
