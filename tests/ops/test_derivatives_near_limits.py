"""Functions and derivatives where their formulas cancel, overflow or divide zero by zero, against mpmath or float64."""

from __future__ import annotations

import math

import pytest
import tesserack as ts
from tesserack.nn import functional as F

mpmath = pytest.importorskip("mpmath")


def _slope(call: object, x: float, dtype: ts.dtype, device: ts.device) -> float:
    t = ts.tensor([x], dtype=dtype, device=device, requires_grad=True)
    (grad,) = ts.autograd.grad(call(t).sum(), t)  # type: ignore[operator]
    return float(grad.item())


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64], ids=str)
def test_sinc(dtype: ts.dtype, device: ts.device) -> None:
    """Near zero, where cos(pi x) and sinc(x) cancel; the second derivative there, too."""
    for x in (1e-30, 1e-8, 1e-4, 1e-2, 0.1, 0.2499, 0.2501, 0.7, -0.01):
        want = mpmath.diff(lambda v: mpmath.sincpi(v) if hasattr(mpmath, "sincpi") else mpmath.sinc(mpmath.pi * v), x)
        assert _slope(ts.sinc, x, dtype, device) == pytest.approx(
            float(want), rel=2e-5 if dtype is ts.float32 else 1e-13
        )
    assert _slope(ts.sinc, 0.0, dtype, device) == 0
    x = ts.tensor(0.0, dtype=dtype, device=device, requires_grad=True)
    (grad,) = ts.autograd.grad(ts.sinc(x), x, create_graph=True)
    assert ts.autograd.grad(grad, x)[0].item() == pytest.approx(-(math.pi**2) / 3)


def test_bessel_functions_of_order_one(device: ts.device) -> None:
    """Their slope at zero is a half, at denormals beside it as well."""
    for x in (0.0, 1e-40, -1e-40, 1e-35):
        assert _slope(ts.special.i1, x, ts.float32, device) == 0.5
        assert _slope(ts.special.i1e, x, ts.float32, device) == 0.5


@pytest.mark.parametrize("name", ["i1", "i1e"])
def test_further_derivatives_of_bessel_functions_of_order_one(name: str, device: ts.device) -> None:
    """Near zero, where the two parts of the first cancel: up to the third, against the power series."""

    def exact(v: mpmath.mpf) -> mpmath.mpf:
        return mpmath.besseli(1, v) * (mpmath.exp(-abs(v)) if name == "i1e" else 1)

    for x in (1e-9, 1e-4, 0.3, 0.9999, 1.0001, 2.0, -1e-9, -0.4, -1.5):
        at = ts.tensor(x, dtype=ts.float64, device=device, requires_grad=True)
        slope = getattr(ts.special, name)(at)
        for order in (1, 2, 3):
            (slope,) = ts.autograd.grad(slope, at, create_graph=True)
            with mpmath.workdps(40):
                want = float(mpmath.diff(exact, mpmath.mpf(x), order, h=mpmath.mpf(10) ** -12))
            assert slope.item() == pytest.approx(want, rel=1e-12), (x, order)
    at = ts.tensor(0.0, dtype=ts.float64, device=device, requires_grad=True)
    slope = ts.special.i1(at)
    for want in (0.5, 0.0, 0.375):
        (slope,) = ts.autograd.grad(slope, at, create_graph=True)
        assert slope.item() == want


def test_xlog1py(device: ts.device) -> None:
    """As xlogy: no slope where the first operand is 0 and the logarithm is none."""
    x = ts.tensor([0.0, 0.0, 0.0, 2.0], device=device, requires_grad=True)
    y = ts.tensor([-1.0, -2.0, 3.0, 1.0], device=device, requires_grad=True)
    z = ts.special.xlog1py(x, y)
    assert z.tolist() == pytest.approx([0, 0, 0, 2 * math.log(2)])
    by_x, by_y = ts.autograd.grad(z.sum(), [x, y])
    assert by_x.tolist() == pytest.approx([0, 0, math.log(4), math.log(2)])
    assert by_y.tolist()[1:] == pytest.approx([0, 0, 1])
    assert ts.special.xlog1py(x.detach(), 1).tolist() == pytest.approx([0, 0, 0, 2 * math.log(2)])
    assert ts.special.xlog1py(2, y.detach()[2:]).tolist() == pytest.approx([2 * math.log(4), 2 * math.log(2)])


def test_logcumsumexp_at_ties(device: ts.device) -> None:
    """The second derivative, where the gap between two sums is zero."""
    x = ts.zeros(2, dtype=ts.float64, device=device, requires_grad=True)
    w = ts.tensor([1.0, 2.0], dtype=ts.float64, device=device)
    (grad,) = ts.autograd.grad((ts.logcumsumexp(x, 0) * w).sum(), x, create_graph=True)
    assert ts.autograd.grad((grad * w).sum(), x)[0].tolist() == pytest.approx([-0.5, 0.5])
    x = ts.zeros(5, 3, dtype=ts.float64, device=device, requires_grad=True)
    assert ts.autograd.gradgradcheck(lambda v: ts.logcumsumexp(v, 0), (x,))
    infinite = ts.full((3,), -math.inf, device=device, requires_grad=True)
    assert ts.logcumsumexp(infinite, 0).tolist() == [-math.inf] * 3


@pytest.mark.parametrize("x", [-100.0, -30.0, -17.0, -15.0, -1.0, 0.0, 2.0, 15.0, 40.0])
@pytest.mark.parametrize("target", [0.0, 1.0, 0.25])
@pytest.mark.parametrize("weight", [None, 3.0])
def test_cross_entropy_of_sure_logits(x: float, target: float, weight: float | None, device: ts.device) -> None:
    """Losses and gradients in float32 that are tiny beside the logit."""
    pos = None if weight is None else ts.tensor(weight, device=device)
    logits = ts.tensor(x, device=device, requires_grad=True)
    loss = F.binary_cross_entropy_with_logits(logits, ts.tensor(target, device=device), pos_weight=pos)
    w = weight or 1.0
    # log(1 + exp(x)) and log(1 + exp(-x)).
    above, below = float(mpmath.log1p(mpmath.exp(x))), float(mpmath.log1p(mpmath.exp(-x)))
    assert loss.item() == pytest.approx((1 - target) * above + w * target * below, rel=1e-6, abs=1e-43)
    (grad,) = ts.autograd.grad(loss, logits)
    rises, falls = float(1 / (1 + mpmath.exp(-x))), float(1 / (1 + mpmath.exp(x)))
    assert grad.item() == pytest.approx((1 - target) * rises - w * target * falls, rel=1e-5, abs=1e-43)


def test_exponentials_whose_modulus_overflows(device: ts.device) -> None:
    """A part may be finite all the same."""
    for z in (710 + 1j, 709.9 + 1.5707j, 720 + 1.5707963267948966j, 700 + 3j, 745 + 1.57079632j):
        got = ts.exp(ts.tensor(z, dtype=ts.complex128, device=device)).item()
        want = mpmath.exp(mpmath.mpc(z))
        for part, true in ((got.real, want.real), (got.imag, want.imag)):
            assert part == (
                pytest.approx(float(true), rel=1e-9) if abs(true) < 1.7e308 else math.copysign(math.inf, true)
            )
    assert ts.exp(ts.tensor(1e3 + 0j, dtype=ts.complex128, device=device)).item() == complex(math.inf, 0)
    got = ts.exp(ts.tensor(89 + 1.5j, dtype=ts.complex64, device=device)).item()
    assert got.real == pytest.approx(float(mpmath.exp(89) * mpmath.cos(1.5)), rel=1e-4)


@pytest.mark.parametrize("dtype", [ts.float32, ts.float64], ids=str)
def test_norms_of_values_whose_square_overflows(dtype: ts.dtype, device: ts.device) -> None:
    """Large and small; on cards that the host would have to wait for, float32 alone."""
    asynchronous = device.type not in ("cpu", "reference")
    huge, tiny = (1e30, 1e-30) if dtype is ts.float32 else (1e200, 1e-200)
    if asynchronous and (dtype is ts.float64 or tiny * tiny == 0.0):
        pytest.skip("documented: squares of float64 are not rescaled there")
    for scale in (huge, tiny, 1.0):
        x = ts.tensor([[3.0, 4.0], [0.0, 0.0], [5.0, 12.0]], dtype=dtype, device=device) * scale
        assert (ts.linalg.vector_norm(x, dim=1) / scale).tolist() == pytest.approx([5, 0, 13], rel=1e-5)
        assert x.norm().item() / scale == pytest.approx(194**0.5, rel=1e-5)
        if not asynchronous:
            assert ts.linalg.vector_norm(x, 3).item() / scale == pytest.approx(
                2009**0.0 * (27 + 64 + 125 + 1728) ** (1 / 3), rel=1e-5
            )
        unit = F.normalize(x, dim=1, eps=0.0 if scale == tiny else 1e-12)
        assert unit[0].tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
        y = x[0].clone().requires_grad_()
        assert ts.autograd.grad(y.norm(), y)[0].tolist() == pytest.approx([0.6, 0.8], rel=1e-5)
    assert ts.tensor([math.inf, 1.0], dtype=dtype, device=device).norm().item() == math.inf
    assert math.isnan(ts.tensor([math.nan, 1e30], dtype=dtype, device=device).norm().item())


def test_norms_of_complex_numbers_whose_square_overflows(device: ts.device) -> None:
    for scale in (1e30, 1e-30, 1.0):
        x = ts.tensor([[3j, -4.0], [0.0, 0.0], [3 + 4j, 12j]], dtype=ts.complex64, device=device) * scale
        assert (ts.linalg.vector_norm(x, dim=1) / scale).tolist() == pytest.approx([5, 0, 13], rel=1e-5)
        assert x.norm().item() / scale == pytest.approx(194**0.5, rel=1e-5)
    assert ts.tensor([complex(math.inf, 1), 1], dtype=ts.complex64, device=device).norm().item() == math.inf


def test_norms_of_bfloat16_whose_square_overflows(device: ts.device) -> None:
    for scale in (2.0**100, 1.0) if device.type in ("cpu", "reference") else (1.0,):
        x = ts.tensor([[3.0, 4.0], [0.0, 0.0], [5.0, 12.0]], dtype=ts.bfloat16, device=device) * scale
        assert (ts.linalg.vector_norm(x, dim=1).float() / scale).tolist() == [5, 0, 13]
        assert x.norm(dtype=ts.float32).item() / scale == pytest.approx(194**0.5, rel=1e-5)
        assert x.expand(1000, 3, 2).norm().item() / scale == pytest.approx(194000**0.5, rel=1e-2)


@pytest.mark.filterwarnings("ignore:.*running it on the cpu")
@pytest.mark.usefixtures("needs_lapack")
def test_hessian_of_a_determinant_at_zero(device: ts.device) -> None:
    """The derivatives of minors, which are there where those of singular values are not."""
    for n in (1, 2, 3):
        zero = ts.zeros(n, n, dtype=ts.float64, device=device)
        hessian = ts.autograd.functional.hessian(ts.linalg.det, zero)
        want = ts.zeros(n, n, n, n, dtype=ts.float64, device=device)
        if n == 2:
            for a, b, sign in (((0, 0), (1, 1), 1), ((1, 1), (0, 0), 1), ((0, 1), (1, 0), -1), ((1, 0), (0, 1), -1)):
                want[(*a, *b)] = sign
        assert (hessian == want).all(), n
    singular = ts.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=ts.float64, device=device, requires_grad=True)
    (grad,) = ts.autograd.grad(ts.linalg.det(singular), singular, create_graph=True)
    assert grad.tolist() == [[4.0, -2.0], [-2.0, 1.0]]


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16], ids=str)
def test_means_of_halves(dtype: ts.dtype, device: ts.device) -> None:
    """Whose sums they do not hold."""
    x = ts.full((3000,), 60.0, dtype=dtype, device=device)
    assert ts.nanmean(x).item() == 60
    logits = ts.zeros(4, 50000, dtype=dtype, device=device)
    target = ts.zeros(4, dtype=ts.int64, device=device)
    for reduction in ("mean", "none"):
        loss = F.cross_entropy(logits, target, label_smoothing=0.1, reduction=reduction).float().mean().item()
        assert loss == pytest.approx(math.log(50000), rel=0.01)
    soft = ts.zeros(70000, 2, dtype=dtype, device=device)
    assert F.cross_entropy(soft, soft + 0.5).item() == pytest.approx(math.log(2), rel=0.01)


def test_attention_whose_row_is_masked(device: ts.device) -> None:
    """With weights as without: zeros, and numbers for gradients."""
    ts.manual_seed(0)
    layer = ts.nn.MultiheadAttention(8, 2, batch_first=True).to(device)
    x = ts.randn(2, 3, 8, device=device)
    padding = ts.tensor([[False, False, True], [True, True, True]], device=device)
    outs = []
    for need in (True, False):
        layer.zero_grad()
        out, weights = layer(x, x, x, key_padding_mask=padding, need_weights=need)
        out.sum().backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
        assert weights is None or weights[1].abs().sum().item() == 0
        outs.append(out.detach())
    assert (outs[0] - outs[1]).abs().max().item() < 1e-5


def test_batch_norm_far_from_zero(device: ts.device) -> None:
    """Data around 1e4 with spread 1: the mean is not rounded by more than the spread bears."""
    ts.manual_seed(0)
    x = (ts.randn(4096, 4, dtype=ts.float64) + 1e4).float()
    want = F.batch_norm(x.double(), None, None, training=True)
    got = F.batch_norm(x.to(device), None, None, training=True)
    assert (got.cpu().double() - want).abs().max().item() < 1e-3
    got = F.batch_norm(x.to(device).reshape(64, 64, 4).transpose(1, 2), None, None, training=True)
    assert (got.cpu().transpose(1, 2).reshape(4096, 4).double() - want).abs().max().item() < 1e-3


def test_sinc_of_complex_numbers_has_its_slope_everywhere(device: ts.device) -> None:
    """The series near zero is for small numbers, not for those whose square is imaginary or negative."""
    points = [0.1 + 0.05j, 3j, -2.5j, 1 + 1j, 0.24j, 0.2 + 0.2j, 5 - 5j, 1e-9j, 0.3 - 0.3j]
    x = ts.tensor(points, dtype=ts.complex128, device=device, requires_grad=True)
    y = ts.sinc(x)
    y.backward(ts.ones_like(y))
    for point, got in zip(points, x.grad.tolist(), strict=True):
        with mpmath.workdps(50):
            z = mpmath.pi * mpmath.mpc(point)
            exact = (mpmath.cos(z) - mpmath.sin(z) / z) / mpmath.mpc(point)
        assert abs(got - complex(exact).conjugate()) <= 2e-13 * max(1.0, abs(complex(exact)))


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16, ts.float32], ids=str)
def test_hardshrink_meets_its_limit_in_the_dtype(device, dtype):
    for limit in (0.1, 0.3, 0.7):
        x = ts.tensor([limit, -limit, 2.0], dtype=dtype, device=device, requires_grad=True)
        result = ts.nn.functional.hardshrink(x, limit)
        assert result.tolist() == [0, 0, 2]
        assert ts.autograd.grad(result.sum(), x)[0].tolist() == [0, 0, 1]
        strided = x.detach().expand(2, 3).t()
        assert ts.nn.functional.hardshrink(strided, limit).tolist() == [[0, 0], [0, 0], [2, 2]]
