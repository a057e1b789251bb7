"""Families of operators whose kernels are compiled for dialects without a device, and the texts that they take."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tesserack as ts
from tesserack_kernelgen.dialect import Dialect

__all__ = ["FAMILIES", "recorded"]

F = ts.nn.functional
FLOATS = ts.float16, ts.bfloat16, ts.float32, ts.float64
INTEGERS = ts.uint8, ts.int8, ts.int16, ts.int32, ts.int64


def elementwise(device: str) -> None:
    for dtype in (*FLOATS, *INTEGERS, ts.bool):
        x = ts.ones(6, 7, device=device, dtype=dtype)
        for other in (*FLOATS, *INTEGERS, ts.bool):
            x.to(other)
            x.t().to(other)
        (x + x, x * x.t().reshape(6, 7), x == 1, ts.where(x == 1, x, x + x), x[::2] + x[1::2], x.flip(0) + x)
    for dtype in FLOATS:
        x = ts.rand(5, 9, device=device).to(dtype)
        for name in (
            "exp",
            "log1p",
            "erf",
            "erfinv",
            "lgamma",
            "digamma",
            "sigmoid",
            "tanh",
            "round",
            "rsqrt",
            "atanh",
        ):
            getattr(ts, name)(x)
        (x % 0.3, x // 0.3, x**1.5, ts.atan2(x, x), ts.hypot(x, x), ts.fmod(x, x), ts.nn.functional.gelu(x))
    for dtype in INTEGERS:
        x = ts.arange(1, 50, device=device).to(dtype)
        (x % 3, x // 3, ts.bitwise_xor(x, x), x << 1, x >> 1, ts.gcd(x, x))


def reductions(device: str) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        for shape in ((4, 300), (3, 5, 7), (40000,)):
            x = ts.ones(shape, device=device).to(dtype)
            for dim in (0, -1):
                (x.sum(dim), x.amax(dim), x.argmin(dim), x.any(dim), x.cumsum(dim), x.cummax(dim), x.sort(dim))
            (x.sum(), x.prod(), x.argmax())
        x = ts.ones(5000, 9, device=device).to(dtype)  # side by side, in parts, and in parts of one row
        (x.cumsum(0), x.cummin(0), x[:, 0].cumprod(0), x.view(-1).cummax(0))
        (ts.searchsorted(x[0], x), ts.searchsorted(x, x, right=True))
    for dtype in FLOATS:
        x = ts.rand(6, 40, device=device).to(dtype)
        (x.var(1), x.logsumexp(1), x.softmax(1), x.log_softmax(1), F.layer_norm(x, (40,)))


def indexing(device: str) -> None:
    index = ts.zeros(3, 4, dtype=ts.int64, device=device)
    for dtype in (*FLOATS, *INTEGERS):
        x = ts.ones(5, 4, device=device).to(dtype)
        (ts.cat([x, x], 1), ts.stack([x.t(), x.t()]), x.topk(3), x.t().topk(2, 0, False))
        (x.gather(0, index), x[index[0]], ts.scatter_add(x, 0, index, x[:3].clone()), x.index_select(1, index[0]))
        for reduce in ("prod", "amax", "amin"):
            x.scatter_reduce(0, index, x[:3].clone(), reduce)
    (ts.rand(100, device=device), ts.randint(0, 9, (50,), device=device), ts.randperm(20, device=device))


def products(device: str) -> None:
    for dtype in (*FLOATS, ts.int64):
        for m, n, k in ((30, 40, 50), (300, 300, 70), (40, 3, 50), (4, 4, 9000)):
            a, b = ts.ones(m, k, device=device).to(dtype), ts.ones(k, n, device=device).to(dtype)
            turned_a, turned_b = ts.ones(k, m, device=device).to(dtype).t(), ts.ones(n, k, device=device).to(dtype).t()
            (a @ b, turned_a @ b, a @ turned_b, ts.addmm(ts.ones(n, device=device).to(dtype), a, b))
            F.linear(a, turned_b.t(), None)
        ts.ones(2, 3, 4, 5, device=device).to(dtype) @ ts.ones(3, 5, 6, device=device).to(dtype)


def convolutions(device: str) -> None:
    for dtype in FLOATS:
        for n, convolve in enumerate((F.conv1d, F.conv2d, F.conv3d), 1):
            for stride in (1, 2):
                x = ts.rand(2, 4, *([8] * n), device=device).to(dtype).requires_grad_()
                w = ts.rand(6, 2, *([3] * n), device=device).to(dtype).requires_grad_()
                b = ts.rand(6, device=device).to(dtype).requires_grad_()
                convolve(x, w, b, stride, 1, 1, 2).sum().backward()
        x = ts.rand(2, 4, 9, 9, device=device).to(dtype).contiguous(memory_format=ts.channels_last).requires_grad_()
        F.conv2d(x, ts.rand(6, 4, 3, 3, device=device).to(dtype).requires_grad_()).sum().backward()
        for pool in (F.max_pool2d, F.avg_pool2d):
            (pool(x, 2).sum() + pool(x.contiguous(), 3, 1).sum()).backward()
        for mode in ("bilinear", "nearest", "bicubic"):
            grid = ts.rand(2, 5, 5, 2, device=device).to(dtype).requires_grad_()
            F.grid_sample(x, grid, mode, "reflection", False).sum().backward()


def training(device: str) -> None:
    model = ts.nn.Sequential(ts.nn.Conv2d(1, 8, 3), ts.nn.BatchNorm2d(8), ts.nn.ReLU(), ts.nn.MaxPool2d(2)).to(device)
    head = ts.nn.Sequential(ts.nn.Flatten(), ts.nn.Dropout(0.2), ts.nn.Linear(72, 10)).to(device)
    parameters = [*model.parameters(), *head.parameters()]
    for kind in (ts.optim.SGD, ts.optim.AdamW):
        optimizer = kind(parameters, lr=0.01)
        loss = F.cross_entropy(
            head(model(ts.rand(4, 1, 8, 8, device=device))), ts.zeros(4, dtype=ts.int64, device=device)
        )
        loss.backward()
        optimizer.step()
    for dtype in (ts.float16, ts.bfloat16, ts.float32):
        for depth in (8, 64, 128):
            q = ts.rand(2, 3, 10, depth, device=device).to(dtype).requires_grad_()
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
            for mask in (ts.ones(10, 10, device=device) > 0, ts.ones(10, 10, device=device).to(dtype)):
                F.scaled_dot_product_attention(q, q, q, mask).sum().backward()
    for dtype in FLOATS:
        x = ts.randn(6, 40, device=device, dtype=dtype)
        (F.dropout(x, 0.5), F.dropout(x.t(), 0.5), F.rms_norm(x, (40,)), F.rms_norm(x, (40,), x[0].clone()))
    F.embedding(
        ts.zeros(5, dtype=ts.int64, device=device), ts.rand(7, 6, device=device, requires_grad=True)
    ).sum().backward()


def spectra(device: str) -> None:
    for dtype in (ts.float32, ts.float64):
        for n in (1, 7, 48, 2310, 34, 20000):
            x = ts.ones(3, n, device=device, dtype=dtype)
            z = ts.fft.rfft(x)
            (ts.fft.ifft(z), ts.fft.irfft(z, n), ts.fft.hfft(z, n))


FAMILIES = elementwise, reductions, indexing, products, convolutions, training, spectra


_RECORDED: dict[tuple[str, str], dict[str, str]] = {}
_PLANNERS: dict[str, Any] = {}


def recorded(family: Callable[[str], None], dialect: Dialect) -> dict[str, str]:
    """The kernels that operators take in a dialect: names by text. Planned once."""
    key = family.__name__, dialect.name
    if key not in _RECORDED:
        from planner import Planner

        if dialect.name not in _PLANNERS:
            _PLANNERS[dialect.name] = Planner(dialect)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what has no kernel runs on the cpu
            _RECORDED[key] = _PLANNERS[dialect.name].record(family)
    return _RECORDED[key]
