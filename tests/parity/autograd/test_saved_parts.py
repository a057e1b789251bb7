"""What the nodes of the graph kept of their calls, under PyTorch's names: ``grad_fn._saved_self`` and its like."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch


def names(m: Any) -> dict[str, Any]:
    x, y, w = (m.arange(n, dtype=m.float32) / d + 0.1 for n, d in ((12, 7), (12, 5), (20, 9)))
    parts = {"x": x.reshape(3, 4), "y": y.reshape(3, 4), "w": w.reshape(5, 4)}
    return {"m": m, "F": m.nn.functional, **{key: part.requires_grad_() for key, part in parts.items()}}


# Expression: the attributes that are compared.
PARTS = {
    "x * y": "self other", "x / y": "self other", "x + y": "alpha", "x.exp()": "result", "x.log()": "self",
    "x.tanh()": "result", "x.sigmoid()": "result", "x.relu()": "result", "x.pow(2)": "self", "x ** y": "self exponent",
    "x.sum(1)": "dim keepdim self_sym_sizes", "x.softmax(1)": "dim result", "x.log_softmax(1)": "dim result",
    "x.view(4, 3)": "self_sym_sizes", "x.select(0, 1)": "dim index self_sym_sizes", "m.cat([x, y])": "dim",
    "x.max(1)[0]": "dim indices keepdim self_sym_sizes", "x.var(1)": "correction dim keepdim self",
    "x.expand(2, 3, 4)": "self_sym_sizes", "x.clamp(0, 1)": "self min max", "x.sqrt()": "result", "x.cumsum(1)": "dim",
    "x.gather(1, m.zeros(3, 1, dtype=m.int64))": "dim index sparse_grad", "x.transpose(0, 1)": "dim0 dim1",
    "x.permute(1, 0)": "dims", "x.unsqueeze(0)": "dim", "F.layer_norm(x, (4,))": "input normalized_shape weight",
    "m.where(x > 0, x, y)": "condition", "x.sort(1)[0]": "dim indices", "x.masked_fill(x > 0, 0)": "mask",
    "m.addmm(m.zeros(3, 5), x, w.t())": "mat1 mat2 alpha beta mat1_sym_sizes mat2_sym_sizes", "x.mul(x)": "self other",
    "x.index_select(0, m.tensor([0]))": "dim index", "m.bmm(x[None], w.t()[None])": "self mat2", "x.flip(0)": "dims",
    "m.logsumexp(x, 1)": "dim keepdim self result", "F.leaky_relu(x)": "negative_slope self", "x.triu()": "diagonal",
    "x.atan2(y)": "self other", "x.diagonal()": "dim1 dim2 offset", "x.amax(1)": "dim keepdim self result",
    "x[:, 1:3]": "dim start end step", "x[0]": "dim index", "x[1, ::2]": "dim start step", "x[None]": "dim",
    "x.split((1, 2), 0)[0]": "dim split_sizes", "x.split(2)[0]": "dim split_size",
    "F.conv1d(x[None], w[:2, :3, None].expand(2, 3, 2))": "input weight stride padding dilation groups",
}  # fmt: skip


def plain(value: Any) -> Any:
    if hasattr(value, "detach"):
        return list(value.shape), pytest.approx(value.detach().flatten().tolist(), rel=1e-5, abs=1e-6)
    return value


def exact(value: Any) -> Any:
    return (list(value.shape), value.detach().flatten().tolist()) if hasattr(value, "detach") else value


@pytest.mark.parametrize("text", PARTS)
def test_parts(text: str) -> None:
    mine, theirs = (eval(text, names(m)).grad_fn for m in (ts, torch))
    for name in PARTS[text].split():
        assert f"_saved_{name}" in dir(mine)
        assert exact(getattr(mine, f"_saved_{name}")) == plain(getattr(theirs, f"_saved_{name}")), name


def test_saved_tensors_keep_their_history_and_their_rules() -> None:
    for m in (ts, torch):
        x = m.ones(3, requires_grad=True)
        y = x.exp()
        z = y * y
        assert z.grad_fn._saved_self.grad_fn is y.grad_fn and y.grad_fn._saved_result.grad_fn is y.grad_fn
        assert (x * 2).grad_fn._saved_self is None
        with pytest.raises(AttributeError):
            z.grad_fn._saved_nothing
        z.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            z.grad_fn._saved_self
        seen = []
        with m.autograd.graph.saved_tensors_hooks(lambda t: t * 2, lambda t, s=seen: s.append(1) or t):
            w = x * x
        assert w.grad_fn._saved_self.tolist() == [2.0] * 3 and seen == [1]
        v = x.clone()
        u = v * v
        v.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            u.grad_fn._saved_other


def test_lists_of_tensors() -> None:
    for m in (ts, torch):
        x = m.arange(6.0).reshape(3, 2).requires_grad_()
        (index,) = x[m.tensor([2, 0])].grad_fn._saved_indices
        assert index.tolist() == [2, 0]


@pytest.mark.filterwarnings("ignore:Sparse invariant")
def test_sparse_products_keep_their_factors() -> None:
    for m in (ts, torch):
        x = m.sparse_coo_tensor(m.tensor([[1, 1]]), m.tensor([1.0, 2.0]), requires_grad=True)
        with m.autograd.graph.save_on_cpu():
            y = x * x
        assert y.grad_fn._saved_self.is_sparse and y.grad_fn._saved_other.to_dense().tolist() == [0.0, 3.0]
        y.to_dense().sum().backward()
        assert x.grad.to_dense().tolist() == [0.0, 6.0]


@pytest.mark.parametrize(
    "text",
    [
        "F.max_pool2d(x[None, None], 2)", "F.avg_pool2d(x[None, None], 2)",
        "F.nll_loss(x.log_softmax(1), m.tensor([0, 1, 2]))", "F.cross_entropy(x, m.tensor([0, 1, 2]))", "F.relu6(x)",
        "x.split((1, 2), 0)[0]", "x[0]", "x[:, 1:]", "F.layer_norm(x, (4,))", "F.gelu(x)", "x.max(1)[0]", "x.std()",
        "F.selu(x)", "F.group_norm(x[None], 3)", "F.conv_transpose1d(x[None], m.ones(3, 1, 2))", "x[0].diag()",
        "F.binary_cross_entropy_with_logits(x, m.ones(3, 4), reduction='none')",
    ],
)  # fmt: skip
def test_names_of_nodes(text: str) -> None:
    """By which packages find layers in a graph."""
    mine, theirs = (eval(text, names(m)).grad_fn.name() for m in (ts, torch))
    assert mine == theirs
