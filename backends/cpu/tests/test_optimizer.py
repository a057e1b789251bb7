"""Fused optimizer steps against torch.optim in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from kernel_harness import BFLOAT16, ERROR, Array, KernelError, Tensors, call

torch = pytest.importorskip("torch")

SHAPES = [(3,), (1, 1), (17, 5), (40, 300), (70_001,)]
TOLERANCE: dict[Any, float] = {"f4": 3e-6, "f8": 1e-13}


def arrays(dtype: Any, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(dtype) for shape in SHAPES]


def parameters(values: list[Array]) -> list[Any]:
    return [torch.from_numpy(v.astype("f8")).requires_grad_() for v in values]


def take_step(optimizer: Any, params: list[Any], grads: list[Array]) -> None:
    for p, g in zip(params, grads, strict=True):
        p.grad = torch.from_numpy(g.astype("f8"))
    optimizer.step()


def compare(got: list[Array], want: list[Any], tolerance: float) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.astype("f8"), b.detach().numpy(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sgd(dtype: str) -> None:
    for momentum, decay, nesterov, maximize in product((0.0, 0.9), (0.0, 0.1), (False, True), (False, True)):
        if nesterov and momentum == 0:
            continue
        dampening = 0.0 if nesterov else 0.2
        p = arrays(dtype, 0)
        reference = parameters(p)
        kept: dict[str, Any] = {"momentum": momentum, "dampening": dampening, "nesterov": nesterov}
        optimizer = torch.optim.SGD(reference, 0.1, weight_decay=decay, maximize=maximize, **kept)
        buffers = [np.full_like(x, np.nan) for x in p] if momentum else []
        for step in range(3):
            g = arrays(dtype, step + 1)
            take_step(optimizer, reference, g)
            scalars = [0.1, momentum, dampening, decay, nesterov, maximize, step == 0]
            call("sgd_step_", [], [*p, *g, *buffers], scalars)
        compare(p, reference, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("decoupled", [False, True])
def test_adam(dtype: str, decoupled: bool) -> None:
    kind = torch.optim.AdamW if decoupled else torch.optim.Adam
    flags = (False, True)
    for betas, decay, amsgrad, maximize in product(((0.9, 0.999), (0.3, 0.4)), (0.0, 0.1), flags, flags):
        p = arrays(dtype, 0)
        reference = parameters(p)
        optimizer = kind(reference, 0.01, betas=betas, weight_decay=decay, amsgrad=amsgrad, maximize=maximize)
        m, v = [np.zeros_like(x) for x in p], [np.zeros_like(x) for x in p]
        top = [np.zeros_like(x) for x in p] if amsgrad else []
        for step in range(4):
            g = arrays(dtype, step + 1)
            take_step(optimizer, reference, g)
            n = len(p)
            lists = [Tensors(i * n, n) for i in range(4)] + [Tensors(4 * n, len(top))]
            scalars = [step + 1, 0.01, *betas, decay, 1e-8, amsgrad, maximize, decoupled]
            call("adam_step_", [], [*p, *g, *m, *v, *top], [*lists, *scalars])
        compare(p, reference, TOLERANCE[dtype] * 10)
        compare(m, [optimizer.state[r]["exp_avg"] for r in reference], TOLERANCE[dtype])
        compare(v, [optimizer.state[r]["exp_avg_sq"] for r in reference], TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["f2", BFLOAT16], ids=str)
def test_half_types_round_once(dtype: Any) -> None:
    p, g = arrays(dtype, 0), arrays(dtype, 1)
    want = [a.astype("f4") - np.float32(0.125) * b.astype("f4") for a, b in zip(p, g, strict=True)]
    call("sgd_step_", [], [*p, *g], [0.125, 0.0, 0.0, 0.0, False, False, True])
    for a, b in zip(p, want, strict=True):
        np.testing.assert_array_equal(a, b.astype(dtype))


def test_mismatched_state_is_refused() -> None:
    with pytest.raises(KernelError, match="expected state of 3 elements of float32") as caught:
        call("sgd_step_", [], [np.ones(3, "f4"), np.ones(2, "f4")], [0.1, 0.0, 0.0, 0.0, False, False, True])
    assert caught.value.status == ERROR
