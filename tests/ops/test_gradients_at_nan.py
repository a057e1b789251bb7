"""At NaN a gradient passes or is NaN, never 0: nothing hides a NaN. And zeros keep their sign."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import tesserack as ts
from tesserack.nn import functional as F
from tesserack.ops.registry import operators

FLOATS = [ts.float32, ts.float64, ts.bfloat16]
NAN = float("nan")
# Whose value at NaN is a number, so that no gradient is to be had there.
STEPS = {
    "sign", "sgn", "nan_to_num", "nan_to_num_", "isnan", "heaviside", "special_entr", "nanmean", "nansum",
    "ceil", "floor", "round", "trunc", "fix", "threshold",
}  # fmt: skip


def _unary() -> list[str]:
    from tesserack import _native

    taken = set()
    for record in _native._operators():
        schema, name = record["schema"], record["base"]
        alone = schema.startswith((f"{name}(Tensor self) -> Tensor", f"{name}(Tensor self, Scalar"))
        if alone and not name.endswith("_") and not name.startswith("_") and name in operators():
            taken.add(name)
    return sorted(taken - STEPS)


MASKS: dict[str, Callable[[Any], Any]] = {
    "relu": F.relu,
    "relu6": F.relu6,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x: F.threshold(x, 0.1, 1.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp min": lambda x: x.clamp(min=-1),
    "clamp max": lambda x: x.clamp(max=1),
    "logit": lambda x: ts.logit(x, 1e-3),
    "nanmean": lambda x: ts.nanmean(x).reshape(1),
    "huber": lambda x: F.huber_loss(x, ts.zeros_like(x), reduction="none"),
    "max": lambda x: x.max().reshape(1),
    "amin": lambda x: x.amin().reshape(1),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [1, 40])
@pytest.mark.parametrize("name", MASKS)
def test_nothing_is_hidden(name: str, count: int, dtype: ts.dtype, device: ts.device) -> None:
    """By no mask, in a loop or in vectors."""
    x = ts.full((count,), NAN, dtype=dtype, device=device, requires_grad=True)
    y = MASKS[name](x)
    assert y.isnan().all()
    (grad,) = ts.autograd.grad(y.sum(), x)
    assert (grad != 0).all()


@pytest.mark.parametrize("name", _unary())
def test_the_whole_table(name: str, device: ts.device) -> None:
    """Of every operator of one tensor whose value at NaN is NaN."""
    x = ts.full((3,), NAN, device=device, requires_grad=True)
    try:
        y = operators()[name](x)
    except (TypeError, RuntimeError):
        pytest.skip("takes more than one tensor")
    if not isinstance(y, ts.Tensor) or not y.requires_grad or y.shape != x.shape or not y.isnan().all():
        pytest.skip("has no gradient here")
    (grad,) = ts.autograd.grad(y.sum(), x)
    assert (grad != 0).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_shares_of_equal_elements(dtype: ts.dtype, device: ts.device) -> None:
    """Extremes and medians over all: NaN among them, and more of them than halves count."""
    for call in (ts.max, ts.min, ts.amax, ts.median):
        x = ts.tensor([NAN, 1.0, NAN, 3.0], dtype=dtype, device=device, requires_grad=True)
        assert ts.autograd.grad(call(x), x)[0].tolist() == [0.5, 0.0, 0.5, 0.0]
        x = ts.tensor([3.0, 3.0, 3.0, 3.0], dtype=dtype, device=device, requires_grad=True)
        assert ts.autograd.grad(call(x), x)[0].tolist() == [0.25] * 4
    x = ts.tensor([NAN, 2.0, 1.0, 2.0, 5.0, NAN], dtype=dtype, device=device, requires_grad=True)
    assert ts.autograd.grad(ts.nanmedian(x), x)[0].tolist() == [0.0, 0.5, 0.0, 0.5, 0.0, 0.0]
    x = ts.ones(70000, dtype=dtype, device=device, requires_grad=True)
    assert ts.autograd.grad(ts.amax(x), x)[0].double().sum().item() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("count", [1, 40])
def test_zeros_keep_their_sign(count: int, dtype: ts.dtype, device: ts.device) -> None:
    """Through functions that are the identity or zero there; of equal operands the first counts."""
    x = ts.full((count,), -0.0, dtype=dtype, device=device)
    for call in (F.relu, F.relu6, F.hardtanh, F.softshrink, F.hardswish, F.leaky_relu, F.silu):
        assert call(x).signbit().all(), call
        assert not call(-x).signbit().any(), call
    assert ts.maximum(x, -x).signbit().all() and not ts.maximum(-x, x).signbit().any()
    assert ts.minimum(x, -x).signbit().all() and not ts.minimum(-x, x).signbit().any()
    assert x.clamp(min=0.0).signbit().all()


@pytest.mark.parametrize("value", [math.inf, -math.inf, 1e-40, -1e-40, 0.0, -0.0])
def test_limits_and_denormals(value: float, device: ts.device) -> None:
    """Values and slopes beside the flat parts, at what float32 has besides ordinary numbers."""
    inside = abs(value) < 1
    for call, low, high in ((F.relu6, 0.0, 6.0), (F.hardtanh, -1.0, 1.0), (F.hardsigmoid, -3.0, 3.0)):
        x = ts.tensor([value], dtype=ts.float64, device=device, requires_grad=True)
        (grad,) = ts.autograd.grad(call(x).sum(), x)
        slope = 1 / 6 if call is F.hardsigmoid else 1.0
        assert grad.item() == pytest.approx(slope if low < value < high else 0.0), call
    for call in (F.softshrink, F.hardshrink):
        x = ts.tensor([value], dtype=ts.float64, device=device, requires_grad=True)
        (grad,) = ts.autograd.grad(call(x).sum(), x)
        assert grad.item() == (0.0 if inside else 1.0)
