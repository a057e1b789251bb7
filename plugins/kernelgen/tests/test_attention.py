"""Generated attention and its gradients against float64 on the cpu."""

from __future__ import annotations

from typing import Any

import pytest
import tesserack as ts

F = ts.nn.functional
SHAPES = {  # batch, heads, queries, keys, depth, width
    "small": (2, 3, 10, 10, 8, 8),
    "many blocks": (1, 2, 70, 133, 16, 24),
    "odd": (2, 1, 5, 40, 7, 9),
}
MASKS = "none", "causal", "bool", "float"


def run(device: str, dtype: Any, shape: tuple[int, ...], kind: str) -> list[ts.Tensor]:
    """Result and gradients; queries are a view with turned dims."""
    b, h, queries, keys, depth, width = shape
    ts.manual_seed(1)
    drawn = ts.randn(b, queries, h, depth), ts.randn(b, h, keys, depth), ts.randn(b, h, keys, width)
    seed, mask = ts.randn(b, h, queries, width), None
    if kind == "bool":
        mask = (ts.rand(queries, keys) > 0.4).index_fill(0, ts.tensor([0]), False)  # a query that sees nothing
    if kind == "float":
        mask = ts.randn(b, 1, queries, keys).to(dtype)
    wide = ts.float64 if device == "cpu" else dtype
    q, k, v = (x.to(dtype).to(wide).to(device).requires_grad_() for x in drawn)
    if mask is not None:
        mask = (mask if kind == "bool" else mask.to(wide)).to(device)
    y = F.scaled_dot_product_attention(q.transpose(1, 2), k, v, mask, is_causal=kind == "causal")
    y.backward(seed.to(dtype).to(wide).to(device))
    return [x.detach().cpu().double() for x in (y, q.grad, k.grad, v.grad)]


def check(dtype: Any, shape: tuple[int, ...], kind: str, tolerance: float) -> None:
    for got, expected in zip(run("opencl", dtype, shape, kind), run("cpu", dtype, shape, kind), strict=True):
        ts.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "shape, kind",
    [*(("small", kind) for kind in MASKS), ("many blocks", "causal"), ("many blocks", "bool"), ("odd", "none")],
)
def test_values_and_gradients(opencl: Any, shape: str, kind: str) -> None:
    check(ts.float32, SHAPES[shape], kind, 2e-5)


def test_half_precision(opencl: Any) -> None:
    check(ts.float16, SHAPES["small"], "float", 4e-3)


def test_forward_is_one_launch_and_backward_two(opencl: Any) -> None:
    q = ts.randn(1, 2, 40, 8, device="opencl", requires_grad=True)
    before = opencl.statistics.launches
    y = F.scaled_dot_product_attention(q, q.detach(), q.detach())
    assert opencl.statistics.launches == before + 1
    ts.autograd.grad(y, [q], y.detach())
    assert opencl.statistics.launches == before + 3


def test_heads_too_deep_go_by_parts(opencl: Any) -> None:
    check(ts.float32, (1, 1, 4, 6, 300, 8), "none", 2e-5)
