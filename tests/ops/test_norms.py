"""Normalisations against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.nn import functional as F

RNG = np.random.default_rng(6)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def standardised(x: np.ndarray, axes: tuple[int, ...], eps: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def close(got: ts.Tensor, want: np.ndarray, tolerance: float = 1e-11) -> None:
    assert tuple(got.shape) == want.shape
    np.testing.assert_allclose(got.detach().double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)


DTYPES = [("float64", 1e-11), ("float32", 2e-5), ("bfloat16", 4e-2), ("float16", 5e-3)]


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize(("shape", "n"), [((4, 6), 1), ((2, 3, 5), 1), ((2, 3, 5), 2), ((3, 5), 2), ((2, 700), 1)])
def test_layer_norm(device: Any, shape: tuple[int, ...], n: int, dtype: str, tolerance: float) -> None:
    x, w, b = rand(*shape), rand(*shape[-n:]), rand(*shape[-n:])
    args = [tensor(v, device, getattr(ts, dtype)) for v in (x, w, b)]
    want = standardised(x, tuple(range(-n, 0)))
    close(F.layer_norm(args[0], shape[-n:], args[1], args[2]), want * w + b, tolerance)
    close(F.layer_norm(args[0], shape[-n:]), want, tolerance)
    close(F.layer_norm(args[0].flip(0).flip(0), shape[-n:], args[1]), want * w, tolerance)


@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_gradients(device: Any, affine: bool) -> None:
    args = [tensor(rand(2, 3, 4), device, grad=True)]
    if affine:
        args += [tensor(rand(3, 4), device, grad=True), tensor(rand(3, 4), device, grad=True)]
    call = lambda x, w=None, b=None: F.layer_norm(x, (3, 4), w, b)  # noqa: E731
    assert gradcheck(call, tuple(args))
    assert gradgradcheck(call, tuple(args))


@pytest.mark.parametrize(("dtype", "tolerance"), DTYPES)
@pytest.mark.parametrize("shape", [(6, 3), (4, 3, 5), (2, 3, 4, 5), (2, 3, 2, 3, 2)])
def test_batch_norm_training(device: Any, shape: tuple[int, ...], dtype: str, tolerance: float) -> None:
    x, w, b = rand(*shape), rand(3), rand(3)
    axes = tuple(d for d in range(x.ndim) if d != 1)
    beside = [1, 3] + [1] * (x.ndim - 2)
    args = [tensor(v, device, getattr(ts, dtype)) for v in (x, w, b)]
    mean, var = ts.zeros(3, device=device, dtype=ts.float64 if dtype == "float64" else ts.float32), None
    var = ts.ones_like(mean)
    got = F.batch_norm(args[0], mean, var, args[1], args[2], training=True, momentum=0.25)
    close(got, standardised(x, axes) * w.reshape(beside) + b.reshape(beside), tolerance)
    close(mean, 0.25 * x.mean(axes), tolerance)
    close(var, 0.75 + 0.25 * x.var(axes, ddof=1), tolerance)


@pytest.mark.parametrize("layout", ["plain", "channels_last"])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_gradients(device: Any, training: bool, layout: str) -> None:
    args = tuple(tensor(v, device, grad=True) for v in (rand(2, 3, 2, 3), rand(3), rand(3)))
    mean, var = tensor(rand(3), device), tensor(rand(3) ** 2 + 0.5, device)

    def call(x: Any, w: Any, b: Any) -> Any:
        x = x.contiguous(memory_format=ts.channels_last) if layout != "plain" else x
        return F.batch_norm(x, mean.clone(), var.clone(), w, b, training)

    close(call(*args), F.batch_norm(args[0], mean.clone(), var.clone(), *args[1:], training).detach().cpu().numpy())
    assert gradcheck(call, args)
    assert gradgradcheck(call, args)


def test_batch_norm_evaluation(device: Any) -> None:
    x, mean, var = rand(2, 3, 4), rand(3), rand(3) ** 2 + 0.1
    running = [tensor(mean, device), tensor(var, device)]
    want = (x - mean[:, None]) / np.sqrt(var[:, None] + 1e-5)
    close(F.batch_norm(tensor(x, device), *running), want)
    close(running[0], mean)
    assert not running[0].requires_grad
    trained = tensor(x, device, grad=True)
    F.batch_norm(trained, *running, training=True).sum().backward()
    assert not running[0].requires_grad


def test_running_statistics_count_as_modified(device: Any) -> None:
    mean, var = ts.zeros(3, device=device), ts.ones(3, device=device)
    before = mean._version
    F.batch_norm(tensor(rand(4, 3), device, ts.float32), mean, var, training=True)
    assert mean._version > before


def test_groups_instances_and_lengths(device: Any) -> None:
    x, w, b = rand(2, 4, 3, 2), rand(4), rand(4)
    args = tuple(tensor(v, device, grad=True) for v in (x, w, b))
    beside = (1, 4, 1, 1)
    grouped = standardised(x.reshape(2, 2, -1), (2,)).reshape(x.shape)
    close(F.group_norm(args[0], 2, args[1], args[2]), grouped * w.reshape(beside) + b.reshape(beside))
    close(ts.instance_norm(args[0], weight=args[1]), standardised(x, (2, 3)) * w.reshape(beside))
    close(ts.rms_norm(args[0], (3, 2), eps=0.1), x / np.sqrt((x**2).mean((2, 3), keepdims=True) + 0.1))
    close(F.normalize(args[0]), x / np.linalg.norm(x, axis=1, keepdims=True))
    close(F.normalize(ts.zeros(2, 3, device=device)), np.zeros((2, 3)))
    for call in (
        lambda x, w, b: F.group_norm(x, 2, w, b),
        lambda x, w, b: ts.instance_norm(x, weight=w, bias=b),
        lambda x, w, b: F.normalize(x) * w.sum() * b.sum(),
    ):
        assert gradcheck(call, args)
    assert gradgradcheck(lambda x, w, b: F.group_norm(x, 2, w, b), args)


def test_local_response_norm(device: Any) -> None:
    x = rand(2, 5, 3)
    padded = np.pad(x**2, [(0, 0), (1, 1), (0, 0)])
    mean = np.stack([padded[:, c : c + 3].sum(1) / 3 for c in range(5)], 1)
    close(ts.local_response_norm(tensor(x, device), 3, 0.2, 0.6, 2.0), x / (2 + 0.2 * mean) ** 0.6, 1e-10)


def test_empty(device: Any) -> None:
    w = ts.ones(3, device=device, requires_grad=True)
    F.layer_norm(ts.empty(0, 3, device=device), (3,), w).sum().backward()
    assert w.grad.tolist() == [0.0] * 3
    assert tuple(F.batch_norm(ts.empty(0, 3, 2, device=device), None, None, training=True).shape) == (0, 3, 2)


def test_errors(device: Any) -> None:
    x = tensor(rand(2, 4, 6), device)
    ones = lambda n: ts.ones(n, dtype=ts.float64, device=device)  # noqa: E731
    for call, error, text in (
        (lambda: F.layer_norm(x, (5,)), RuntimeError, "normalized_shape"),
        (lambda: F.layer_norm(x, ()), RuntimeError, "at least 1"),
        (lambda: F.layer_norm(x, (6,), ones(4)), RuntimeError, "same shape"),
        (lambda: F.layer_norm(x.long(), (6,)), RuntimeError, "floating"),
        (lambda: F.batch_norm(x, None, None), RuntimeError, "running_mean"),
        (lambda: F.batch_norm(x[:1, :, :1], None, None, training=True), ValueError, "more than 1 value"),
        (lambda: F.batch_norm(x, None, None, ones(3), training=True), RuntimeError, "weight"),
        (
            lambda: F.batch_norm(x, ones(4).expand(4), ones(1).expand(4), training=True),
            RuntimeError,
            "more than one element",
        ),
        (lambda: F.group_norm(x, 3), RuntimeError, "divisible"),
        (lambda: F.group_norm(x, 0), RuntimeError, "greater than 0"),
    ):
        with pytest.raises(error, match=text):
            call()
