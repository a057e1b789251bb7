"""The names of grad_fn, which users read and programs that draw graphs match on, are PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts
import torch

# x and y are vectors of three, w a matrix.
EXPRESSIONS = (
    "x + y", "x + 1", "x - y", "x * 2", "x / y", "-x", "abs(x)", "x ** 2", "x ** 3", "x ** y", "x.square()", "x.exp()",
    "x.log()", "x.sqrt()", "x.relu()", "x.sigmoid()", "x.tanh()", "x.softmax(0)", "x.log_softmax(0)", "m.atan2(x, y)",
    "x[0]", "x[0:2]", "x[0:2:2]", "w[:, 0]", "w[0, 1:]", "w[1:, 0]", "x[None]", "x[None, 0:2]", "x[...]", "x[:]",
    "x[[0, 1]]", "x[x > 0]",
    "x @ y", "w @ x", "w @ w", "m.mm(w, w)", "m.bmm(w[None], w[None])", "m.addmm(x, w, w)",
    "m.baddbmm(w, w[None], w[None])",
    "x.sum()", "x.sum(0)", "w.sum((0, 1))", "w.sum(1, keepdim=True)", "x.mean()", "x.mean(0)", "x.prod()", "x.prod(0)",
    "x.max()", "x.max(0)[0]", "x.min()", "x.min(0)[0]", "x.amax()", "x.cumsum(0)", "x.cumprod(0)", "x.logsumexp(0)",
    "x.var()",
    "w.t()", "w.T", "w.t().reshape(9)", "w.transpose(0, 1)", "w.permute(1, 0)", "x.view(3, 1)", "x.reshape(3, 1)",
    "x.unsqueeze(0)",
    "x.expand(2, 3)", "x.squeeze()", "x.squeeze(0)", "w.diagonal()", "w.flatten()", "x.narrow(0, 0, 1)",
    "x.as_strided((2,), (1,))", "x.unfold(0, 2, 1)",
    "x.clone()", "x.float()", "m.cat([x, y])", "m.stack([x, y])", "m.where(x > 0, x, y)", "x.masked_fill(x > 0, 1.0)",
    "x.clamp(0, 1)", "x.gather(0, m.tensor([0]))", "x.index_select(0, m.tensor([0]))",
    "x.sort()[0]", "x.topk(1)[0]", "x.flip(0)", "w.tril()", "x.split(2)[0]",
    "x.unbind()[0]", "x.floor()", "x.digamma()", "m.special.polygamma(1, x)", "m.maximum(x, y)", "x.lerp(y, 0.5)",
    "m.nn.functional.gelu(x)", "m.nn.functional.silu(x)", "m.nn.functional.leaky_relu(x)",
    "m.nn.functional.unfold(w[None], 2)",
    "(x * 1).mul_(2)", "(x * 1).add_(y)",
)  # fmt: skip


def name(module: Any, expression: str) -> str:
    values = {"dtype": module.float64, "requires_grad": True}
    x, y = (module.tensor(v, **values) for v in ([0.5, 1.5, 0.3], [0.7, 0.2, 2.3]))
    w = module.tensor([[0.5, 0.1, 0.2], [0.3, 0.9, 0.4], [0.8, 0.6, 0.7]], **values)
    return type(eval(expression, {"m": module, "x": x, "y": y, "w": w, "abs": abs}).grad_fn).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_name(expression: str) -> None:
    """type(t.grad_fn).__name__"""
    assert name(ts, expression) == name(torch, expression)
