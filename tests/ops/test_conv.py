"""Convolution against a direct sum in NumPy float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck
from tesserack.nn import functional as F

RNG = np.random.default_rng(3)


def rand(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape)


def tensor(array: Any, device: Any, dtype: Any = None, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), dtype=dtype, device=device, requires_grad=grad)


def direct(
    x: np.ndarray, w: np.ndarray, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> np.ndarray:
    """Every kernel position adds its share: the definition."""
    n = x.ndim - 2
    stride, padding, dilation = (np.broadcast_to(v, n) for v in (stride, padding, dilation))
    x = np.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)])
    kernel = w.shape[2:]
    sizes = [(x.shape[2 + d] - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1 for d in range(n)]
    out = np.zeros((x.shape[0], w.shape[0], *sizes))
    per_in, per_out = w.shape[1], w.shape[0] // groups
    for g, position in itertools.product(range(groups), itertools.product(*map(range, kernel))):
        window = tuple(
            slice(position[d] * dilation[d], position[d] * dilation[d] + stride[d] * (sizes[d] - 1) + 1, stride[d])
            for d in range(n)
        )
        taps = x[(slice(None), slice(g * per_in, (g + 1) * per_in), *window)]
        weights = w[(slice(g * per_out, (g + 1) * per_out), slice(None), *position)]
        out[:, g * per_out : (g + 1) * per_out] += np.einsum("ni...,oi->no...", taps, weights)
    return out


CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 8), (4, 3, 3), {}),
    ((2, 4, 8), (6, 2, 3), {"stride": 2, "padding": 1, "groups": 2}),
    ((2, 3, 6, 7), (4, 3, 3, 2), {}),
    ((2, 4, 6, 7), (4, 1, 3, 3), {"padding": 1, "groups": 4}),
    ((2, 4, 7, 6), (6, 2, 3, 3), {"padding": (2, 1), "stride": (1, 2), "dilation": (2, 1), "groups": 2}),
    ((1, 4, 5, 5), (3, 4, 1, 1), {"stride": 2}),
    ((2, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
]
CONV = {3: F.conv1d, 4: F.conv2d, 5: F.conv3d}
TRANSPOSED = {3: F.conv_transpose1d, 4: F.conv_transpose2d, 5: F.conv_transpose3d}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5), ("bfloat16", 0.15), ("float16", 2e-2)]
)
def test_values(device: Any, case: Any, dtype: str, tolerance: float) -> None:
    shape, kernel, options = case
    x, w, b = rand(*shape), rand(*kernel), rand(kernel[0])
    args = [tensor(v, device, getattr(ts, dtype)) for v in (x, w, b)]
    want = direct(x, w, **options) + b.reshape(-1, *[1] * (x.ndim - 2))
    got = CONV[x.ndim](*args, **options)
    assert got.dtype == getattr(ts, dtype)
    np.testing.assert_allclose(got.double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)
    single = CONV[x.ndim](args[0][0], args[1], args[2], **options)
    np.testing.assert_allclose(single.double().cpu().numpy(), want[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients(device: Any, case: Any) -> None:
    shape, kernel, options = case
    shape, kernel = (1, *shape[1:]), kernel
    args = tuple(tensor(v, device, grad=True) for v in (rand(*shape) * 0.5, rand(*kernel), rand(kernel[0])))
    assert gradcheck(lambda *t: CONV[len(shape)](*t, **options), args)
    if len(shape) < 5:
        assert gradgradcheck(lambda *t: CONV[len(shape)](*t, **options), args)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_transposed_is_the_adjoint(device: Any, case: Any) -> None:
    """<conv(x), y> == <x, conv_transpose(y)>, for output sizes the transposed form can name."""
    shape, kernel, options = case
    x, w = rand(*shape), rand(*kernel)
    forward = direct(x, w, **options)
    y = rand(*forward.shape)
    n = x.ndim - 2
    stride, padding, dilation = (
        np.broadcast_to(options.get(k, d), n) for k, d in (("stride", 1), ("padding", 0), ("dilation", 1))
    )
    plain = [
        (forward.shape[2 + d] - 1) * stride[d] - 2 * padding[d] + dilation[d] * (kernel[2 + d] - 1) + 1
        for d in range(n)
    ]
    extra = tuple(int(x.shape[2 + d] - plain[d]) for d in range(n))
    back = TRANSPOSED[x.ndim](tensor(y, device), tensor(w, device), output_padding=extra, **options)
    assert tuple(back.shape) == x.shape
    np.testing.assert_allclose((back.cpu().numpy() * x).sum(), (forward * y).sum(), rtol=1e-9)


def test_transposed_gradients(device: Any) -> None:
    args = tuple(tensor(v, device, grad=True) for v in (rand(1, 4, 3, 2), rand(4, 2, 2, 3), rand(4)))
    call = lambda *t: F.conv_transpose2d(*t, stride=2, padding=1, output_padding=1, groups=2)  # noqa: E731
    assert gradcheck(call, args)
    assert gradgradcheck(call, args)


@pytest.mark.parametrize(("size", "dilation"), [(3, 1), (4, 1), (2, 3), (1, 1)])
def test_same_padding(device: Any, size: int, dilation: int) -> None:
    x, w = rand(2, 3, 7, 6), rand(4, 3, size, size)
    total = dilation * (size - 1)
    padded = np.pad(x, [(0, 0), (0, 0), *[(total // 2, total - total // 2)] * 2])
    got = F.conv2d(tensor(x, device), tensor(w, device), padding="same", dilation=dilation)
    np.testing.assert_allclose(got.cpu().numpy(), direct(padded, w, dilation=dilation), atol=1e-12)
    assert tuple(F.conv2d(tensor(x, device), tensor(w, device), padding="valid").shape[2:]) == (8 - size, 7 - size)


def test_channels_last_stays(device: Any) -> None:
    x, w = rand(2, 3, 6, 5), rand(4, 3, 3, 3)
    last = tensor(x, device, grad=True).contiguous(memory_format=ts.channels_last)
    got = F.conv2d(last, tensor(w, device), padding=1)
    assert got.is_contiguous(memory_format=ts.channels_last)
    assert not got.is_contiguous()
    np.testing.assert_allclose(got.detach().cpu().numpy(), direct(x, w, padding=1), atol=1e-12)
    (grad,) = ts.autograd.grad(got.square().sum(), last)
    plain = tensor(x, device, grad=True)
    (want,) = ts.autograd.grad(F.conv2d(plain, tensor(w, device), padding=1).square().sum(), plain)
    np.testing.assert_allclose(grad.cpu().numpy(), want.cpu().numpy(), atol=1e-10)


def test_strided_operands(device: Any) -> None:
    x, w = rand(2, 6, 5, 3), rand(3, 3, 3, 4)
    got = F.conv2d(tensor(x, device).permute(0, 3, 1, 2).flip(2), tensor(w, device).permute(3, 0, 1, 2))
    np.testing.assert_allclose(
        got.cpu().numpy(), direct(x.transpose(0, 3, 1, 2)[:, :, ::-1], w.transpose(3, 0, 1, 2)), atol=1e-12
    )


def test_empty_batch(device: Any) -> None:
    x = ts.empty(0, 3, 6, 5, device=device, requires_grad=True)
    w = ts.ones(4, 3, 3, 3, device=device, requires_grad=True)
    got = F.conv2d(x, w)
    assert tuple(got.shape) == (0, 4, 4, 3)
    got.sum().backward()
    assert w.grad.abs().sum().item() == 0


def test_errors(device: Any) -> None:
    x, w = tensor(rand(2, 4, 6, 6), device), tensor(rand(6, 4, 3, 3), device)
    for call, text in (
        (lambda: F.conv2d(x, w, groups=3), "groups"),
        (lambda: F.conv2d(x[:, :2], w), "channels"),
        (lambda: F.conv2d(x[..., :2], w), "Kernel size"),
        (lambda: F.conv2d(x, w, stride=0), "stride"),
        (lambda: F.conv2d(x, w, padding=-1), "padding"),
        (lambda: F.conv2d(x, w, dilation=0), "dilation"),
        (lambda: F.conv2d(x, w, padding=2**62), "padding"),
        (lambda: F.conv2d(x, w, padding="odd"), "odd"),
        (lambda: F.conv2d(x, w, padding="same", stride=2), "strided"),
        (lambda: F.conv2d(x, w, ts.ones(5, dtype=ts.float64, device=device)), "bias"),
        (lambda: F.conv2d(x, w.float()), "dtype"),
        (lambda: F.conv2d(x, w, stride=(1, 2, 3)), "stride"),
        (lambda: F.conv1d(x, w), "3D"),
        (lambda: F.conv_transpose2d(x, w), "channels"),
        (lambda: F.conv_transpose2d(x, w[:4], output_padding=2), "output padding"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()


# Channels apart from each other, in three dims or in numbers for which libraries have no kernel.
APART: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 5, 6, 35), (3, 1, 3, 2, 3), {"padding": (1, 0, 2)}),
    ((1, 16, 4, 5, 17), (16, 1, 2, 3, 3), {"padding": 1, "stride": (2, 1, 1), "dilation": (1, 2, 3)}),
    ((2, 2, 3, 4, 40), (4, 1, 3, 3, 5), {"padding": (3, 4, 5), "stride": (1, 2, 3), "dilation": (1, 1, 2)}),
    ((1, 5, 1, 1, 9), (45, 1, 1, 1, 3), {"padding": 1}),
    ((1, 5, 9, 90), (5, 1, 4, 1), {"padding": (2, 1), "stride": (1, 2)}),
]


@pytest.mark.parametrize("dtype", [ts.float32, ts.bfloat16])
@pytest.mark.parametrize(("size", "kernel", "options"), APART)
def test_channels_apart(
    device: Any, size: tuple[int, ...], kernel: tuple[int, ...], options: dict[str, Any], dtype: Any
) -> None:
    conv = F.conv2d if len(size) == 4 else F.conv3d
    a, b = (tensor(rand(*s), device, dtype, grad=True) for s in (size, kernel))
    bias = rand(kernel[0])
    y = conv(a, b, tensor(bias, device, dtype), groups=size[1], **options)
    x, w = (t.detach().double().cpu().numpy() for t in (a, b))
    want = direct(x, w, groups=size[1], **options) + bias.reshape(-1, *[1] * (len(size) - 2))
    tolerance = 1e-5 if dtype is ts.float32 else 0.03
    np.testing.assert_allclose(y.detach().double().cpu().numpy(), want, rtol=tolerance, atol=tolerance)
    # The gradient of the input is the adjoint: <g, conv(z)> = <gradient, z>.
    g = tensor(rand(*y.shape), device, dtype)
    (grad,) = ts.autograd.grad(y, a, g)
    for position in itertools.islice(np.ndindex(*size), 0, None, max(1, int(np.prod(size)) // 7)):
        z = np.zeros(size)
        z[position] = 1
        share = (direct(z, w, groups=size[1], **options) * g.double().cpu().numpy()).sum()
        np.testing.assert_allclose(float(grad[position]), share, rtol=tolerance, atol=tolerance)


def test_channels_apart_around_infinities(device: Any) -> None:
    x = tensor(np.zeros((1, 2, 3, 3, 20)), device, ts.float32)
    x[0, 1, 1, 1, 4] = float("inf")
    y = F.conv3d(x, ts.ones(2, 1, 3, 3, 3, device=device), padding=1, groups=2)
    assert y[0, 0].abs().max().item() == 0
    assert y[0, 1].isinf().sum().item() == 27
    assert not y.isnan().any()
