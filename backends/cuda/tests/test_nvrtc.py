"""Every kernel that a broad set of operators takes on CUDA compiles, for three generations of devices."""

from __future__ import annotations

import functools
import json
import os
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack_kernelgen import DiskCache
from tesserack_kernelgen.cuda import CUDA

F = ts.nn.functional
FLOATS = ts.float16, ts.bfloat16, ts.float32, ts.float64
INTEGERS = ts.uint8, ts.int8, ts.int16, ts.int32, ts.int64
ARCHITECTURES = "sm_80", "sm_90", "sm_100"
BATCH = 24  # kernels in one text
#: Kernels that may spill a few bytes, and why.
REASONS = {
    ("softmax", "float64"): "two float64 functions stand in one loop, and the assembler keeps to 40 registers",
    ("log_softmax", "float64"): "the same",
    ("attention_dq", "float16"): "sm_80, heads of 8: four bytes, where the assembler keeps to 72 registers",
    ("attention_dq", "bfloat16"): "the same",
    ("grid_sample_scatter", "float16"): "cubic: 24 bytes of sixteen taps, where the assembler keeps to 32 registers",
    ("grid_sample_scatter", "bfloat16"): "the same",
    ("grid_sample_scatter", "float32"): "the same",
    ("grid_sample_scatter", "float64"): "the same, 32 bytes on sm_90 and sm_100",
    ("batch_norm", "float32"): "sm_80, with five dims: four bytes, where the assembler keeps to 32 registers",
}


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


FAMILIES = elementwise, reductions, indexing, products, convolutions, training


@pytest.fixture(scope="module")
def nvrtc() -> Any:
    """CuPy's bindings of NVRTC. Skips where they or the library are not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CuPy warns of each optional library that is absent
        pytest.importorskip("cupy")
        from cupy_backends.cuda.libs import nvrtc as bindings
    try:
        bindings.getVersion()
    except Exception as error:
        pytest.skip(f"no NVRTC: {error}; pip install nvidia-cuda-nvrtc")
    return bindings


def told(log: str) -> dict[str, dict[str, int]]:
    """By kernel: registers, bytes of stack, and bytes that the assembler spilled."""
    rows = {}
    for part in log.split("Compiling entry function")[1:]:
        name = re.match(r" '(\w+)'", part)
        assert name
        patterns = {
            "registers": r"Used (\d+) reg",
            "stack": r"(\d+) bytes stack",
            "spilled": r"(\d+) bytes spill stores",
        }
        rows[name[1]] = {key: int((re.search(p, part) or [0, 0])[1]) for key, p in patterns.items()}
    return rows


def compiled(nvrtc: Any, kernels: list[tuple[str, str]], architecture: str) -> dict[str, dict[str, int]]:
    """What the assembler tells of kernels, from the disk cache where it has compiled the very same before."""
    from tesserack_cuda.batch import join
    from tesserack_cuda.card import compile_text

    text, names = join(CUDA.text("", True), kernels)
    cache, key = DiskCache(), DiskCache.key(text, architecture, str(nvrtc.getVersion()), "report")
    if (kept := cache.get(key)) is None:
        _, log = compile_text(nvrtc, text, architecture, "--ptxas-options=-v")
        kept = json.dumps(told(log)).encode()
        cache.put(key, kept)
    rows = json.loads(kept)
    assert {*rows} == {*names}
    return rows


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_every_variant_compiles(family: Callable[[str], None], architecture: str, nvrtc: Any) -> None:
    kernels = sorted(recorded(family).items(), key=lambda item: item[1])
    assert kernels
    batches = [kernels[start : start + BATCH] for start in range(0, len(kernels), BATCH)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        parts = list(pool.map(lambda batch: compiled(nvrtc, batch, architecture), batches))
    rows = [row for part in parts for _, row in sorted(part.items(), key=lambda item: int(item[0].rpartition("_")[2]))]
    assert len(rows) == len(kernels)
    if folder := os.environ.get("TESSERACK_KERNEL_REPORT"):
        Path(folder, f"{architecture}-{family.__name__}.json").write_text(
            json.dumps([{"kernel": name, **row} for (_, name), row in zip(kernels, rows, strict=True)])
        )
    spilled = [
        (name, row)
        for (text, name), row in zip(kernels, rows, strict=True)
        if row["spilled"] and not _excused(text, name)
    ]
    assert not spilled


def _excused(text: str, name: str) -> bool:
    body = text[len(CUDA.text("", True)) :]
    return any(name == kernel and f"LOAD_{dtype}(" in body for kernel, dtype in REASONS)


@functools.cache
def recorded(family: Callable[[str], None]) -> dict[str, str]:
    """The kernels that operators take on CUDA: names by text."""
    pytest.importorskip("tesserack_reference")
    from planner import Planner

    planner = Planner()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what has no kernel runs on the cpu
        family(planner.name)
    return planner.recorder.sources


def test_an_error_carries_the_log(nvrtc: Any) -> None:
    from tesserack_cuda.card import compile_text

    with pytest.raises(RuntimeError, match=r"sm_90.*nonsense"):
        compile_text(nvrtc, 'extern "C" __global__ void k() { nonsense(); }', "sm_90")
