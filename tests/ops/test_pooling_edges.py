"""Pooling of empty batches, to sizes out of reach, by windows larger than any input, and by wrong samples."""

from __future__ import annotations

import pytest
import tesserack as ts
from tesserack.nn import functional as F

PLAIN = ["max_pool", "avg_pool", "adaptive_max_pool", "adaptive_avg_pool"]


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", PLAIN)
def test_empty_batches(name: str, dims: int, device: ts.device) -> None:
    """Give an empty result that is part of the graph."""
    x = ts.ones(0, 3, *[6] * dims, device=device, requires_grad=True)
    y = getattr(F, f"{name}{dims}d")(x, 2)
    assert tuple(y.shape) == (0, 3, *[2 if name.startswith("adaptive") else 3] * dims)
    y.sum().backward()
    assert x.grad is not None and x.grad.shape == x.shape


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_places_of_empty_batches(dims: int, device: ts.device) -> None:
    """Values and where they were, and the way back."""
    x = ts.ones(0, 3, *[6] * dims, device=device)
    found = [getattr(F, f"{name}{dims}d")(x, 2, return_indices=True) for name in ("max_pool", "adaptive_max_pool")]
    if dims > 1:
        found.append(getattr(F, f"fractional_max_pool{dims}d")(x, 2, output_size=2, return_indices=True))
    for values, places in found:
        assert values.shape == places.shape and values.shape[:2] == (0, 3) and places.dtype is ts.int64
    assert getattr(F, f"max_unpool{dims}d")(*found[0], 2).shape == x.shape


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", PLAIN[2:])
def test_adaptive_sizes(name: str, dims: int, device: ts.device) -> None:
    """None of them, more than there are elements, and more than there can be: an error at once."""
    call = getattr(F, f"{name}{dims}d")
    x = ts.ones(2, 3, *[5] * dims, device=device, requires_grad=True)
    assert tuple(call(x, 0).shape) == (2, 3, *[0] * dims)
    call(x, 0).sum().backward()
    assert tuple(call(x, 7).shape) == (2, 3, *[7] * dims)
    assert (call(x, 7) == 1).all()
    for size in (2**31, 2**62 - 1):
        with pytest.raises((RuntimeError, ValueError, OverflowError)):
            call(x, size)


def test_adaptive_windows_against_slices(device: ts.device) -> None:
    """Means and maxima of windows of two lengths; of equal maxima the first one has the gradient."""
    ts.manual_seed(0)
    for size, n in ((7, 3), (3, 7), (10, 4), (6, 6), (1, 5), (9, 1)):
        x = ts.randn(2, size, dtype=ts.float64, device=device, requires_grad=True)
        slices = [x[:, o * size // n : -((o + 1) * size // -n)] for o in range(n)]
        mean, most = F.adaptive_avg_pool1d(x, n), F.adaptive_max_pool1d(x, n)
        assert ts.allclose(mean, ts.stack([s.mean(1) for s in slices], 1))
        assert (most == ts.stack([s.amax(1) for s in slices], 1)).all()
        assert ts.autograd.gradcheck(lambda v, n=n: F.adaptive_avg_pool1d(v, n), (x,))
    x = ts.ones(1, 5, 5, device=device, requires_grad=True)
    F.adaptive_max_pool2d(x, 2).sum().backward()
    assert x.grad is not None and x.grad.nonzero().tolist() == [[0, 0, 0], [0, 0, 2], [0, 2, 0], [0, 2, 2]]
    half = ts.full((1, 3000), 60.0, dtype=ts.float16, device=device)
    assert F.adaptive_avg_pool1d(half, 7).tolist() == [[60.0] * 7]


@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("dtype", [ts.float32, ts.float64, ts.float16], ids=str)
def test_windows_larger_than_any_input(dtype: ts.dtype, include: bool, device: ts.device) -> None:
    """Of 2^31 - 1 elements, padded: the sum of what lies inside over what PyTorch divides by."""
    k, p, size = 2**31 - 1, 2**30 - 1, 6
    x = ts.arange(1.0, 7.0, device=device).to(dtype).reshape(1, 1, size).requires_grad_()
    got = F.avg_pool1d(x, k, 1, p, count_include_pad=include)
    assert got.shape == x.shape
    if not include:
        assert got.flatten().tolist() == [3.5] * size
        got.sum().backward()
        assert x.grad is not None and x.grad.flatten().tolist() == pytest.approx([1.0] * size, rel=1e-2)
    else:
        assert got.float().abs().max().item() < 1e-7
    for kernel, stride, padding, ceil in ((5, 1, 2, False), (7, 2, 3, True), (9, 3, 4, False), (8, 1, 4, True)):
        planes = ts.randn(2, 3, 4, 3, dtype=ts.float64, device=device)
        got = F.avg_pool2d(planes, kernel, stride, padding, ceil, include)
        padded = F.pad(planes, [20] * 4)
        ones = F.pad(ts.ones_like(planes), [padding] * 4, value=float(include))
        ones = F.pad(ones, [20 - padding] * 4)
        for i in range(got.shape[2]):
            for j in range(got.shape[3]):
                top, left = i * stride - padding + 20, j * stride - padding + 20
                total = padded[..., top : top + kernel, left : left + kernel].sum((-1, -2))
                count = ones[..., top : top + kernel, left : left + kernel].sum((-1, -2)).clamp(min=1)
                assert ts.allclose(got[..., i, j], total / count)


def test_fractional_pooling_checks_its_samples(device: ts.device) -> None:
    """One row of numbers for each plane, of the input's dtype."""
    x = ts.arange(72.0, device=device).reshape(1, 2, 6, 6)
    right = ts.full((1, 2, 2), 0.5, device=device)
    assert tuple(F.fractional_max_pool2d(x, 2, 3, _random_samples=right).shape) == (1, 2, 3, 3)
    for wrong in (right[:0], right[:, :1], right[..., :1], right[0], right.double()):
        with pytest.raises(RuntimeError, match="_random_samples"):
            F.fractional_max_pool2d(x, 2, 3, _random_samples=wrong)
    assert tuple(F.fractional_max_pool2d(x[:0], 2, 3).shape) == (0, 2, 3, 3)
    with pytest.raises(RuntimeError, match="non-zero sizes"):
        F.fractional_max_pool2d(x[:, :0], 2, 3)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding_of_empty_inputs(mode: str, device: ts.device) -> None:
    """An empty batch is padded; nothing else is there to be repeated."""
    assert tuple(F.pad(ts.ones(0, 3, 4, device=device), (1, 1), mode).shape) == (0, 3, 6)
    for shape in ((2, 0, 4), (2, 3, 0), (0, 4), (3, 0)):
        with pytest.raises(RuntimeError):
            F.pad(ts.ones(shape, device=device), (1, 1), mode)


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16], ids=str)
def test_sums_of_halves_are_rounded_once(dtype: ts.dtype, device: ts.device) -> None:
    """Overlapping blocks, and means of windows of several sizes: as in float32, then rounded."""
    columns = ts.randn(2, 27, 16, device=device).to(dtype)
    assert F.fold(columns, (6, 6), 3).equal(F.fold(columns.float(), (6, 6), 3).to(dtype))
    x = ts.randn(2, 3, 20, 19, device=device).to(dtype).requires_grad_()
    wide = x.detach().float().requires_grad_()
    for call in (
        lambda t: F.unfold(t, 3),
        lambda t: F.adaptive_avg_pool2d(t, (3, 7)),
        lambda t: F.interpolate(t, scale_factor=3),
        lambda t: F.interpolate(t, size=(31, 40), mode="nearest-exact"),
        *(lambda t, m=mode: F.pad(t, (5, 4, 3, 6), mode=m) for mode in ("reflect", "replicate", "circular")),
    ):
        y, expected = call(x), call(wide)
        grad = ts.randn(*y.shape, device=device).to(dtype)
        (found,) = ts.autograd.grad(y, x, grad)
        (exact,) = ts.autograd.grad(expected, wide, grad.float())
        assert y.dtype is dtype and y.equal(expected.to(dtype)) and found.equal(exact.to(dtype))


def test_sizes_of_other_dims_in_unpooling(device: ts.device) -> None:
    x = ts.ones(1, 3, 1, 1, 1, device=device)
    for given in ({"kernel_size": [1, 1]}, {"kernel_size": 1, "stride": [1]}, {"kernel_size": 1, "padding": [0] * 4}):
        with pytest.raises(RuntimeError, match=r"max_unpool3d: expected .* to be one number or 3"):
            F.max_unpool3d(x, ts.zeros_like(x).long(), **given)
    with pytest.raises(RuntimeError, match="input of 4 or 5 dims"):
        F.max_unpool3d(x[0, 0], ts.zeros(1, 1, 1, device=device).long(), 1)
