"""Small operations, where the time is what the framework adds around the arithmetic."""

from __future__ import annotations

from typing import Any

from rows import row


def _pair(fw: Any, device: str, requires_grad: bool = False) -> dict[str, Any]:
    a = fw.tensor([float(i) for i in range(8)], device=device, requires_grad=requires_grad)
    b = fw.tensor([float(i) for i in range(8)], device=device)
    return {"a": a, "b": b}


def _matrix(fw: Any, device: str) -> dict[str, Any]:
    return {"a": fw.arange(200.0, device=device).reshape(10, 20)}


@row("a + b", "a + b", limit=0.13)
def add(fw: Any, device: str) -> dict[str, Any]:
    return _pair(fw, device)


@row("a + b, recording", "a + b", limit=0.13)
def add_recording(fw: Any, device: str) -> dict[str, Any]:
    return _pair(fw, device, requires_grad=True)


@row("sum(dim=1, keepdim=True)", "x.sum(dim=1, keepdim=True)", limit=0.13)
def sum_keepdim(fw: Any, device: str) -> dict[str, Any]:
    return {"x": fw.ones(2, 4, device=device)}


@row("a[3]", "a[3]", limit=0.2)
def index_int(fw: Any, device: str) -> dict[str, Any]:
    return _matrix(fw, device)


@row("a[:, 5]", "a[:, 5]", limit=0.2)
def index_column(fw: Any, device: str) -> dict[str, Any]:
    return _matrix(fw, device)


@row("a[2:9, None, ::2]", "a[2:9, None, ::2]", limit=0.2)
def index_mixed(fw: Any, device: str) -> dict[str, Any]:
    return _matrix(fw, device)


@row("matmul, relu, sum, backward", "(x @ w).relu().sum().backward()", limit=0.10)
def small_step(fw: Any, device: str) -> dict[str, Any]:
    x = fw.rand(4, 64, device=device)
    w = fw.rand(64, 64, device=device, requires_grad=True)
    return {"x": x, "w": w}


@row("a * 2.0", "a * 2.0")
def mul_scalar(fw: Any, device: str) -> dict[str, Any]:
    return _pair(fw, device)


@row("a.add(b, alpha=2)", "a.add(b, alpha=2)")
def add_alpha(fw: Any, device: str) -> dict[str, Any]:
    return _pair(fw, device)


@row("x.shape", "a.shape")
def shape(fw: Any, device: str) -> dict[str, Any]:
    return _matrix(fw, device)
