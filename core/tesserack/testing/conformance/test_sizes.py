"""Operators at sizes that programs use: right there too, and how long they take beside the cpu."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack import nn
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import rounded
from tesserack.testing.conformance.own.nearly import judge

F = nn.functional
Inputs = tuple[tuple[int, ...], ...]

CASES: dict[str, tuple[Inputs, Callable[..., Any]]] = {
    "add 1M": (((1000, 1000), (1000, 1000)), lambda a, b: a + b),
    "add, broadcast 1M": (((1000, 1000), (1000, 1)), lambda a, b: a + b),
    "gelu 1M": (((1000, 1000),), lambda a: F.gelu(a)),
    "transposed copy 1M": (((1000, 1000),), lambda a: a.t().contiguous()),
    "sum 1M": (((1000, 1000),), lambda a: a.sum()),
    "sum of columns 1M": (((1000, 1000),), lambda a: a.sum(0)),
    "max of rows 1M": (((1000, 1000),), lambda a: a.max(1).values),
    "cumsum 1M": (((1000, 1000),), lambda a: a.cumsum(1)),
    "sort 100k": (((100, 1000),), lambda a: a.sort(1).values),
    "softmax 1M": (((1000, 1000),), lambda a: a.softmax(1)),
    "layer_norm 1M": (((1000, 1000), (1000,), (1000,)), lambda a, w, b: F.layer_norm(a, (1000,), w, b)),
    "batch_norm 800k": (((16, 16, 56, 56),), lambda a: F.batch_norm(a, None, None, training=True)),
    "matmul 256": (((256, 256), (256, 256)), lambda a, b: a @ b),
    "matmul 512": (((512, 512), (512, 512)), lambda a, b: a @ b),
    "matmul, batched 16x128": (((16, 128, 128), (16, 128, 128)), lambda a, b: a @ b),
    "linear 256x512": (((256, 512), (512, 512), (512,)), lambda a, w, b: F.linear(a, w, b)),
    "conv2d 8x16x28": (((8, 16, 28, 28), (32, 16, 3, 3)), lambda a, w: F.conv2d(a, w, padding=1)),
    "max_pool2d 800k": (((16, 16, 56, 56),), lambda a: F.max_pool2d(a, 2)),
    "attention 4x4x128": (((4, 4, 128, 32),) * 3, lambda q, k, v: F.scaled_dot_product_attention(q, k, v)),
    "gather rows 100k": (((5000, 64),), lambda a: a[ts.arange(0, 5000, 3, device=a.device)]),
    "index_add 100k": (((500, 64), (2000, 64)), lambda a, b: a.index_add(0, _rows(b, 500), b)),
    "cross_entropy 256x1000": (((256, 1000),), lambda a: F.cross_entropy(a, _rows(a, 1000))),
}


# Whole numbers so small that float32 adds them up without rounding: of these, every element must be exact, so that no
# lost part hides behind a large sum. Others are judged by themselves, or by a thousandth of the largest.
EXACT = (
    *(
        "add 1M",
        "add, broadcast 1M",
        "transposed copy 1M",
        "sum 1M",
        "sum of columns 1M",
        "max of rows 1M",
        "cumsum 1M",
    ),
    *("sort 100k", "matmul 256", "matmul 512", "matmul, batched 16x128", "linear 256x512", "conv2d 8x16x28"),
    *("max_pool2d 800k", "gather rows 100k", "index_add 100k"),
)
# What sums of halves lose of the largest of them, where a device adds them up as they are.
LEAST = {"float32": 1e-3, "float64": 1e-3, "float16": 5e-2, "bfloat16": 4e-1}
TOLERANCE = {"float32": 3e-4, "float64": 3e-4, "float16": 2e-2, "bfloat16": 1e-1}


def _rows(x: Any, modulus: int) -> Any:
    return ts.arange(0, 7 * x.shape[0], 7, device=x.device) % modulus


def once(call: Callable[..., Any], inputs: list[Any], weights: Any) -> Any:
    """The result, or the gradients of a weighted sum of it."""
    result = call(*inputs)
    return (result,) if weights is None else ts.autograd.grad(result, inputs, weights)


def seconds(call: Callable[..., Any], inputs: list[Any], weights: Any) -> float:
    """The fastest of a few calls, after one to warm up, waiting for the device each time."""
    best, spent = float("inf"), 0.0
    while spent < 0.05:
        start = time.perf_counter()
        once(call, inputs, weights)
        ts.synchronize(inputs[0].device)
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best


def _whole(shape: tuple[int, ...], seed: int) -> Any:
    """Whole numbers from -3 to 3 without a pattern, the maximum of few of them alone at its place."""
    return ts.from_numpy(np.random.default_rng(seed).integers(-3, 4, shape)).to(ts.get_default_dtype())


@pytest.mark.parametrize("direction", ("forward", "backward"))
@pytest.mark.parametrize("name", CASES)
def test_size(name: str, direction: str, card: Card, record: Record) -> None:
    """Near what the cpu computes in float64."""
    shapes, call = CASES[name]
    backward = direction == "backward"
    exact_values = name in EXACT
    values = [_whole(shape, seed) if exact_values else ts.randn(*shape) for seed, shape in enumerate(shapes)]
    here = str(card.device)
    inputs = {where: [x.to(where).requires_grad_(backward) for x in values] for where in dict.fromkeys((here, "cpu"))}
    exact = [x.double().requires_grad_(backward) for x in values]
    weights = None
    if backward:
        shape = tuple(call(*exact).shape)
        weights = _whole(shape, 9) if exact_values else ts.randn(shape)
    expected = once(call, exact, weights.double() if weights is not None else None)
    on = {where: weights.to(where) if weights is not None else None for where in inputs}
    found = once(call, inputs[here], on[here])
    wanted = [rounded(cases.values(e), card.real) for e in expected] if exact_values else expected
    problem, error = judge(found, wanted, 0.0 if exact_values else TOLERANCE[card.real], LEAST[card.real])
    took = {where: seconds(call, tensors, on[where]) for where, tensors in inputs.items()}
    record.case(op=name, dtype=card.real, direction=direction, error=error)
    record.timing(name, took[here], took["cpu"])
    if problem:
        pytest.fail(f"{name} ({direction}) on {card.name}: {problem}", pytrace=False)


MANY = (1 << 22) + 3  # beyond what 32-bit grids, 16-bit counters and powers of two of either cover


def _many(device: Any) -> Any:
    return ts.arange(MANY, device=device)


# Exact: numbers and positions that say of every element whether it is right.
LARGE: dict[str, Callable[[Any], Any]] = {
    "copy_cast": lambda d: _many("cpu").to(d).int(),
    "copy_cast, strided": lambda d: _many(d)[: MANY - 3].reshape(1 << 11, -1).t().contiguous(),
    "fill": lambda d: ts.full((MANY,), 7, dtype=ts.int32, device=d),
    "iota": _many,
    "pointwise": lambda d: _many(d) * 3 + 1,
    "pointwise, broadcast": lambda d: ts.arange(2049, device=d)[:, None] * 5 + ts.arange(2051, device=d),
    "reduce": lambda d: ts.stack((_many(d).sum(), _many(d).amax(), _many(d).argmax(), (_many(d) % 977).argmin())),
    "reduce, rows": lambda d: _many(d)[: MANY - 3].reshape(-1, 4).sum(1),
    "reduce, columns": lambda d: _many(d)[: MANY - 3].reshape(-1, 4).sum(0),
    "scan": lambda d: _many(d).cumsum(0),
    "matmul": lambda d: ts.arange(2049.0, device=d)[:, None] % 64 @ (ts.arange(2051.0, device=d)[None] % 64),
    "gather": lambda d: _many(d).gather(0, _many(d) * 7919 % MANY),
    "scatter": lambda d: ts.zeros(MANY, dtype=ts.int64, device=d).scatter_(0, _many(d).flip(0), _many(d)),
    "sort": lambda d: (_many(d) * 7919 % MANY).sort().values,
    "random_bits": lambda d: ts.empty(MANY, dtype=ts.int32, device=d).random_(generator=ts.Generator(d).manual_seed(3)),
}


@pytest.mark.conformance(slow=True)
@pytest.mark.parametrize("name", LARGE)
def test_millions(name: str, card: Card) -> None:
    """More than four million elements, each of them right."""
    found, expected = LARGE[name](card.device).cpu(), LARGE[name]("cpu")
    assert found.shape == expected.shape
    wrong = (found != expected).reshape(-1)
    if wrong.any():
        first = int(wrong.int().argmax().item())
        pytest.fail(
            f"{name} of {found.numel()} elements on {card.name}: {int(wrong.sum().item())} wrong, the first is number "
            f"{first}: expected {expected.reshape(-1)[first].item()}, got {found.reshape(-1)[first].item()}",
            pytrace=False,
        )
