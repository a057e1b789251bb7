"""Tensors as quantized ones would hold them, beside torch's: values, gradients, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
import torch

# Halves between steps, what is clamped, and what is not finite.
EDGES = [-3.0, -0.75, -0.26, -0.25, 0.0, 0.24, 0.25, 0.26, 0.75, 1.25, 3.0, float("nan"), float("inf"), float("-inf")]
Call = Callable[[Any, Any, Any], Any]


def _compare(call: Call, values: Any, dtype: str, device: Any) -> None:
    results = []
    for module, target in ((torch, "cpu"), (ts, device)):
        x = module.tensor(values, dtype=module.float64).to(getattr(module, dtype)).to(target).requires_grad_()
        y = call(module, x, lambda *args, m=module, d=target, **options: m.tensor(*args, device=d, **options))
        (grad,) = module.autograd.grad((y * y.detach().new_tensor(range(y.numel())).reshape(y.shape)).sum(), x)
        assert y.dtype == x.dtype == grad.dtype
        results.append([t.detach().double().cpu().numpy() for t in (y, grad)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        # PyTorch multiplies steps of float64 in float32.
        np.testing.assert_allclose(ours, theirs, rtol=2e-7 if dtype == "float64" else 0)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("options", [(0.5, 0, -2, 3), (0.5, 1, 0, 5), (0.1, 3, 0, 255), (0.3, -1, -128, 127)], ids=str)
def test_per_tensor(options: Any, dtype: str, device: Any) -> None:
    scale, zero, low, high = options
    _compare(lambda m, x, _: m.fake_quantize_per_tensor_affine(x, *options), EDGES, dtype, device)
    _compare(
        lambda m, x, t: m.fake_quantize_per_tensor_affine(x, t([scale]), t([zero], dtype=m.int32), low, high),
        EDGES,
        dtype,
        device,
    )


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("zeros", [[0, 1, 3], [0.0, 0.5, 2.25]], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_per_channel(axis: int, zeros: list[Any], dtype: str, device: Any) -> None:
    rows = [EDGES[:11], EDGES[:11][::-1], [0.1 * x for x in EDGES[:11]]]
    values = rows if axis == 0 else np.array(rows).T.tolist()
    kind = "int32" if isinstance(zeros[0], int) else "float32"

    def call(m: Any, x: Any, t: Any) -> Any:
        zero_points = t(zeros, dtype=getattr(m, kind))
        return m.fake_quantize_per_channel_affine(x, t([0.5, 0.1, 0.25]), zero_points, axis, 0, 5)

    _compare(call, values, dtype, device)


def _channels(x: Any, m: Any, scale: Any = None, zero: Any = None, axis: int = 0, low: int = 0) -> Any:
    scale = m.tensor([0.5, 0.1, 0.2]) if scale is None else scale
    zero = m.tensor([0, 1, 2], dtype=m.int32) if zero is None else zero
    return m.fake_quantize_per_channel_affine(x, scale, zero, axis, low, 5)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "zero point": lambda m, x: m.fake_quantize_per_tensor_affine(x, 0.5, 9, 0, 5),
    "range": lambda m, x: m.fake_quantize_per_tensor_affine(x, 0.5, 0, 5, 0),
    "integers": lambda m, x: m.fake_quantize_per_tensor_affine(x.int(), 0.5, 0, 0, 5),
    "a zero point between": lambda m, x: m.fake_quantize_per_tensor_affine(x, 0.5, 0.5, 0, 5),
    "an axis from the end": lambda m, x: _channels(x.T, m, axis=-1),
    "no axis": lambda m, x: _channels(x, m, axis=9),
    "another axis": lambda m, x: _channels(x, m, axis=1),
    "zero points of int64": lambda m, x: _channels(x, m, zero=m.tensor([0, 1, 2])),
    "scales of float64": lambda m, x: _channels(x, m, scale=m.ones(3).double()),
    "zero points beyond": lambda m, x: _channels(x, m, low=1),
    "scales in rows": lambda m, x: _channels(x, m, scale=m.ones(1, 3)),
    "fewer zero points": lambda m, x: _channels(x, m, zero=m.tensor([0, 1], dtype=m.int32)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    for module in (torch, ts):
        with pytest.raises((RuntimeError, TypeError, IndexError)) as caught:
            REFUSED[name](module, module.ones(3, 4))
        if module is torch:
            kind = caught.type
    assert caught.type is kind


def test_meta_and_vmap() -> None:
    x = ts.ones(3, 4, device="meta")
    scale, zero = ts.ones(3, device="meta"), ts.zeros(3, device="meta", dtype=ts.int32)
    assert ts.fake_quantize_per_channel_affine(x, scale, zero, 0, 0, 5).shape == (3, 4)
    y = ts.randn(3, 4)
    each = ts.vmap(lambda row: ts.fake_quantize_per_tensor_affine(row, 0.1, 0, -8, 7))(y)
    assert each.equal(ts.fake_quantize_per_tensor_affine(y, 0.1, 0, -8, 7))
