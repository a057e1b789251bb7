"""Optimizer steps against the update rules written out in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts

RNG = np.random.default_rng(10)
SHAPES = [(3, 4), (7,), (), (2, 0)]


def tensors(arrays: list[np.ndarray], device: Any, dtype: Any = ts.float64) -> list[ts.Tensor]:
    return [ts.tensor(a, dtype=dtype, device=device) for a in arrays]


def close(got: list[ts.Tensor], want: list[np.ndarray], tolerance: float = 1e-12) -> None:
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g.double().cpu().numpy(), w, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(
    ("momentum", "dampening", "decay", "nesterov", "maximize"),
    [(0, 0, 0, False, False), (0.9, 0, 0, False, False), (0.9, 0.3, 0.1, False, True), (0.9, 0, 0.1, True, False)],
)
def test_sgd(
    device: Any, dtype: str, momentum: float, dampening: float, decay: float, nesterov: bool, maximize: bool
) -> None:
    values = [RNG.standard_normal(s) for s in SHAPES]
    params = tensors(values, device, getattr(ts, dtype))
    buffers = tensors([np.zeros(s) for s in SHAPES], device, getattr(ts, dtype)) if momentum else []
    kept = [np.zeros(s) for s in SHAPES]
    for step in range(3):
        grads = [RNG.standard_normal(s) for s in SHAPES]
        ts.sgd_step_(
            params,
            tensors(grads, device, getattr(ts, dtype)),
            buffers,
            0.1,
            momentum,
            dampening,
            decay,
            nesterov,
            maximize,
            step == 0,
        )
        for i, g in enumerate(grads):
            d = (-g if maximize else g) + decay * values[i]
            if momentum:
                kept[i] = d if step == 0 else momentum * kept[i] + (1 - dampening) * d
                d = d + momentum * kept[i] if nesterov else kept[i]
            values[i] = values[i] - 0.1 * d
    close(params, values, 1e-12 if dtype == "float64" else 1e-5)
    close(buffers, kept if momentum else [], 1e-12 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("amsgrad", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_adam(device: Any, dtype: str, decoupled: bool, amsgrad: bool, maximize: bool) -> None:
    lr, beta1, beta2, decay, eps = 0.1, 0.8, 0.95, 0.05, 1e-6
    kind = getattr(ts, dtype)
    values = [RNG.standard_normal(s) for s in SHAPES]
    params = tensors(values, device, kind)
    state = [[np.zeros(s) for s in SHAPES] for _ in range(3)]
    m, v, top = (tensors(s, device, kind) for s in state)
    for step in range(1, 4):
        grads = [RNG.standard_normal(s) for s in SHAPES]
        ts.adam_step_(
            params,
            tensors(grads, device, kind),
            m,
            v,
            top if amsgrad else [],
            step,
            lr,
            beta1,
            beta2,
            decay,
            eps,
            amsgrad,
            maximize,
            decoupled,
        )
        for i, g in enumerate(grads):
            g = -g if maximize else g
            values[i] = values[i] * (1 - lr * decay) if decoupled else values[i]
            g = g if decoupled else g + decay * values[i]
            state[0][i] = beta1 * state[0][i] + (1 - beta1) * g
            state[1][i] = beta2 * state[1][i] + (1 - beta2) * g * g
            state[2][i] = np.maximum(state[2][i], state[1][i])
            scale = np.sqrt((state[2] if amsgrad else state[1])[i] / (1 - beta2**step)) + eps
            values[i] = values[i] - lr / (1 - beta1**step) * state[0][i] / scale
    tolerance = 1e-11 if dtype == "float64" else 1e-4
    close(params, values, tolerance)
    close(m, state[0], tolerance)
    close(v, state[1], tolerance)


def test_strided_parameters_are_written(device: Any) -> None:
    base = ts.ones(4, 3, device=device)
    before = base._version
    ts.sgd_step_([base.t()], [ts.ones(3, 4, device=device)], [], 0.5, 0.0, 0.0, 0.0, False, False, True)
    assert base.tolist() == [[0.5] * 3] * 4
    assert base._version > before
    ts.sgd_step_([], [], [], 0.5, 0.0, 0.0, 0.0, False, False, True)


def test_errors(device: Any) -> None:
    p, g = ts.ones(3, device=device), ts.ones(3, device=device)

    def sgd(params: Any, grads: Any, buffers: Any = (), momentum: float = 0.0, nesterov: bool = False) -> None:
        flags = (nesterov, False, True)
        ts.sgd_step_(list(params), list(grads), list(buffers), 0.1, momentum, 0.0, 0.0, *flags)

    def adam(m: Any, v: Any, top: Any = (), step: int = 1, amsgrad: bool = False) -> None:
        ts.adam_step_([p], [g], m, v, list(top), step, 0.1, 0.9, 0.99, 0.0, 1e-8, amsgrad, False, False)

    for call, error, text in (
        (lambda: sgd([p], []), RuntimeError, "one per parameter"),
        (lambda: sgd([p], [g[:2]]), RuntimeError, "like its parameter"),
        (lambda: sgd([p], [g.double()]), RuntimeError, "like its parameter"),
        (lambda: sgd([p.long()], [g.long()]), RuntimeError, "floating"),
        (lambda: sgd([p], [g], [], 0.9), RuntimeError, "momentum_buffers"),
        (lambda: sgd([p], [g], [p.clone()]), RuntimeError, "momentum_buffers"),
        (lambda: sgd([p], [g], [], 0.0, True), ValueError, "Nesterov"),
        (lambda: sgd([p[:1].expand(3)], [g]), RuntimeError, "more than one element"),
        (lambda: adam([p.clone()], []), RuntimeError, "exp_avg_sqs"),
        (lambda: adam([p.clone()], [p.clone()], step=0), ValueError, "step"),
        (lambda: adam([p.clone()], [p.clone()], amsgrad=True), RuntimeError, "max_exp_avg_sqs"),
    ):
        with pytest.raises(error, match=text):
            call()


def test_parameters_that_require_gradients_are_refused(device: Any) -> None:
    """As by any operator that works in place, unless under no_grad; those with a history always."""
    leaf = ts.ones(2, device=device, requires_grad=True)
    for param, said in ((leaf, "leaf Variable that requires grad"), (leaf * 1, "not differentiable")):
        others = [ts.ones(2, device=device)]
        steps = (
            lambda p=param, o=others: ts.sgd_step_([p], o, [], 0.1, 0.0, 0.0, 0.0, False, False, True),
            lambda p=param, o=others: ts.adam_step_(
                [p], o, [o[0] * 0], [o[0] * 0], [], 1, 0.1, 0.9, 0.99, 0.0, 1e-8, False, False, False
            ),
        )
        for step in steps:
            with pytest.raises(RuntimeError, match=said):
                step()
            assert param.tolist() == [1.0, 1.0]
    with ts.no_grad():
        ts.sgd_step_([leaf], [ts.ones(2, device=device)], [], 0.5, 0.0, 0.0, 0.0, False, False, True)
    assert leaf.tolist() == [0.5, 0.5]
