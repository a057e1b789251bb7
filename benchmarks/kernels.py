"""Large operations, where the time is the kernel's."""

from __future__ import annotations

from typing import Any

from rows import Cost, Setup, row

FOUR_MILLION = 1 << 22
MAP = Cost(read=4 * FOUR_MILLION, written=4 * FOUR_MILLION)


def _gemm(size: int, dtype: str) -> Setup:
    def setup(fw: Any, device: str) -> dict[str, Any]:
        a, b = (fw.randn(size, size, device=device).to(getattr(fw, dtype)) for _ in range(2))
        return {"a": a, "b": b}

    setup.__module__ = __name__
    return setup


for _size in (256, 512, 1024, 2048):
    row(f"sgemm {_size}", "a @ b", limit=0.8, cost=Cost(flops=2 * _size**3))(_gemm(_size, "float32"))
row("bf16 matmul 1024", "a @ b", limit=0.8, cost=Cost(flops=2 * 1024**3, dtype="bfloat16"))(_gemm(1024, "bfloat16"))


def _conv(fw: Any, device: str) -> dict[str, Any]:
    x = fw.randn(8, 64, 56, 56, device=device)
    w = fw.randn(64, 64, 3, 3, device=device)
    return {"conv2d": fw.nn.functional.conv2d, "x": x, "w": w}


@row("conv2d 3x3 8x64x56x56, NCHW", "conv2d(x, w, padding=1)", limit=1.05)
def conv_nchw(fw: Any, device: str) -> dict[str, Any]:
    return _conv(fw, device)


@row("conv2d 3x3 8x64x56x56, channels-last", "conv2d(x, w, padding=1)", limit=1.0)
def conv_channels_last(fw: Any, device: str) -> dict[str, Any]:
    names = _conv(fw, device)
    for tensor in ("x", "w"):
        names[tensor] = names[tensor].contiguous(memory_format=fw.channels_last)
    return names


def _vectors(fw: Any, device: str) -> dict[str, Any]:
    return {"a": fw.randn(FOUR_MILLION, device=device), "b": fw.randn(FOUR_MILLION, device=device)}


for _statement, _cost in (
    ("a.exp()", MAP),
    ("a.tanh()", MAP),
    ("a.sigmoid()", MAP),
    ("a + b", Cost(read=8 * FOUR_MILLION, written=4 * FOUR_MILLION)),
    ("a.sum()", Cost(read=4 * FOUR_MILLION)),
):
    row(f"{_statement}, 4M", _statement, limit=0.8, cost=_cost)(_vectors)


@row("softmax 4096x1024", "a.softmax(-1)", limit=0.8, cost=MAP)
def softmax(fw: Any, device: str) -> dict[str, Any]:
    return {"a": fw.randn(4096, 1024, device=device)}


_LAYERS = Cost(read=4 * 4096 * 768, written=4 * 4096 * 768)


@row("layer_norm 4096x768", "layer_norm(a, (768,), w, b)", limit=0.8, cost=_LAYERS)
def layer_norm(fw: Any, device: str) -> dict[str, Any]:
    a = fw.randn(4096, 768, device=device)
    w, b = fw.ones(768, device=device), fw.zeros(768, device=device)
    return {"layer_norm": fw.nn.functional.layer_norm, "a": a, "w": w, "b": b}
