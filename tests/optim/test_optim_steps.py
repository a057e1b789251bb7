"""Optimizer steps against the update rules written out in NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack import _native, ops

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


# --- kernels by hand against the rule that the core states ------------------------------------------------------------

FLAGS = (False, True)


def random_lists(count: int, device: Any, dtype: Any) -> list[list[ts.Tensor]]:
    """Of some shapes: parameters, gradients, and states that are not negative."""
    ts.manual_seed(5)
    made = [[ts.randn(shape, dtype=ts.float64) for shape in SHAPES] for _ in range(count)]
    made[2:] = [[x.abs() for x in row] for row in made[2:]]
    return [[x.to(device, dtype) for x in row] for row in made]


def by_kernel_and_by_rule(kernel: Any, rule: str, lists: list[list[ts.Tensor]], numbers: tuple[float, ...]) -> None:
    """The operator, whatever kernel computes it, and the rule's own program give the same."""
    other = [[x.clone() for x in row] for row in lists]
    kernel(*lists)
    ops._optimizer_step_(rule, *other[:2], *other[2:], *[[]] * (5 - len(other)), *numbers)
    tolerance = {ts.float64: 1e-13, ts.float32: 3e-6, ts.bfloat16: 2e-2}[lists[0][0].dtype]
    for row, wanted in zip(lists, other, strict=True):
        for x, y in zip(row, wanted, strict=True):
            ts.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [ts.float64, ts.float32, ts.bfloat16])
@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_is_its_rule(device: Any, dtype: Any, momentum: float, nesterov: bool) -> None:
    for first, maximize, decay in itertools.product(FLAGS, FLAGS, (0.0, 0.1)):
        dampening = 0.0 if nesterov else 0.25
        lists = random_lists(3 if momentum else 2, device, dtype)
        by_kernel_and_by_rule(
            lambda p, g, *b, rest=(0.1, momentum, dampening, decay, nesterov, maximize, first): ts.sgd_step_(
                p, g, b[0] if b else [], *rest
            ),
            _native._sgd_rule(momentum != 0, nesterov, first, decay != 0),
            lists,
            (0.1, momentum, dampening, decay, float(maximize)),
        )


@pytest.mark.parametrize("dtype", [ts.float64, ts.float32, ts.bfloat16])
@pytest.mark.parametrize("amsgrad", FLAGS)
def test_adam_is_its_rule(device: Any, dtype: Any, amsgrad: bool) -> None:
    for step, maximize, decay, decoupled, beta1 in itertools.product((1, 9), FLAGS, (0.0, 0.1), FLAGS, (0.9, 0.25)):
        lists = random_lists(5 if amsgrad else 4, device, dtype)
        by_kernel_and_by_rule(
            lambda p, g, m, v, *top, rest=(step, 0.1, beta1, 0.99, decay, 1e-3, amsgrad, maximize, decoupled): (
                ts.adam_step_(p, g, m, v, top[0] if top else [], *rest)
            ),
            _native._adam_rule(amsgrad, decay != 0, decoupled, beta1 > 0.5),
            lists,
            (step, 0.1, beta1, 0.99, decay, 1e-3, float(maximize)),
        )


@pytest.mark.parametrize("dtype", [ts.float64, ts.float32, ts.bfloat16, ts.float16])
def test_amsgrad_keeps_what_is_no_number(device: Any, dtype: Any) -> None:
    """Of the greatest square so far or of the newest: a greatest that drops it would step on as if nothing had been."""
    n, places = 67, (3, 40)
    p, g, m, v, top = (ts.ones(n, device=device, dtype=dtype) for _ in range(5))
    top[places[0]], v[places[1]] = float("nan"), float("nan")
    ts.adam_step_([p], [g], [m], [v], [top], 2, 0.1, 0.9, 0.99, 0.0, 1e-3, True, False, False)
    for x, lost in ((top, places), (p, places), (v, places[1:])):
        assert [k for k, bad in enumerate(x.isnan().tolist()) if bad] == list(lost)


def test_numbers_of_a_rule_are_computed_in_double(device: Any) -> None:
    """Lines of numbers alone: 1 - beta**step of a beta near 1 would have no digit of float32."""
    w, g = (ts.ones(3, device=device) for _ in range(2))
    rule = "param grad,,beta step:rest=1 - pow(beta, step);param - grad * rest"
    ops._optimizer_step_(rule, [w], [g], [], [], [], 1 - 1e-9, 1.0)
    assert w.tolist() == [1.0] * 3
    ops._optimizer_step_(rule, [w.zero_()], [g], [], [], [], 1 - 1e-9, 1.0)
    np.testing.assert_allclose(w.cpu().numpy(), -1e-9, rtol=1e-6)
    with pytest.raises(ValueError, match="sin of numbers alone is not known"):
        ops._optimizer_step_("param grad,,a:b=sin(a);param - b * grad", [w], [g], [], [], [], 1.0)
