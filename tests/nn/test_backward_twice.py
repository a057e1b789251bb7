"""What saves sizes and numbers alone goes backward twice without ``retain_graph``, as in PyTorch; tensors are freed."""

import pytest
import tesserack as ts
from tesserack.nn import functional as F


def twice(function, x):
    y = function(x)
    ones = ts.ones_like(y)
    (first,) = ts.autograd.grad(y, x, ones)
    (second,) = ts.autograd.grad(y, x, ones)
    assert ts.equal(first, second) and first.any()


@pytest.mark.parametrize(
    ("mode", "dims"),
    [("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 2), ("area", 2), ("linear", 1), ("bilinear", 2)]
    + [("bicubic", 2), ("trilinear", 3)],
)
@pytest.mark.parametrize("form", [{"scale_factor": 2}, {"size": 3}, {"scale_factor": 0.5}])
def test_resizing(mode, dims, form):
    x = ts.rand((1, 2) + (4,) * dims, dtype=ts.float64, requires_grad=True)
    twice(lambda t: F.interpolate(t, mode=mode, **form), x)
    if mode in ("bilinear", "bicubic"):
        twice(lambda t: F.interpolate(t, mode=mode, antialias=True, **form), x)
        twice(lambda t: F.interpolate(t.contiguous(memory_format=ts.channels_last), mode=mode, **form), x)


NUMBERS = {
    "lerp": lambda x: ts.lerp(x, x.flip(0), 0.25),
    "lerp far": lambda x: ts.lerp(x, x.flip(0), 0.75),
    "lerp in place": lambda x: x.clone().lerp_(x.flip(0), 0.25),
    "trapezoid": lambda x: ts.trapezoid(x, dx=0.5),
    "trapz": ts.trapz,
    "trapezoid of one": lambda x: ts.trapezoid(x[..., :1]) + x[..., 0],
    "cumulative_trapezoid": lambda x: ts.cumulative_trapezoid(x, dx=2),
    "gradient": lambda x: ts.gradient(x, spacing=2.0)[0],
    "gradient of three samples": lambda x: ts.gradient(x, edge_order=2)[1],
    "round": lambda x: ts.round(x, decimals=1) + x,
    "round before the point": lambda x: ts.round(x, decimals=-1) + x,
    "matrix_power": lambda x: ts.linalg.matrix_power(x, 0) + x,
    "masked.sum": lambda x: ts.masked.sum(x, 1),
    "affine_grid": lambda x: F.affine_grid(x[:2, :3].unsqueeze(0), (1, 1, 3, 4), align_corners=False),
    "affine_grid of blocks": lambda x: F.affine_grid(x[:3].unsqueeze(0), (1, 1, 2, 3, 4), align_corners=False),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_alone(name):
    twice(NUMBERS[name], ts.rand(4, 4, dtype=ts.float64, requires_grad=True))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: x.exp(),
        lambda x: ts.lerp(x, x.flip(0), ts.full((4,), 0.5, dtype=x.dtype)),
        lambda x: ts.trapezoid(x, ts.arange(4.0, dtype=x.dtype)),
        lambda x: ts.gradient(x, spacing=[ts.arange(4.0, dtype=x.dtype)] * 2)[0],
    ],
)
def test_tensors_are_freed(function):
    x = ts.rand(4, 4, dtype=ts.float64, requires_grad=True)
    y = function(x)
    ts.autograd.grad(y, x, ts.ones_like(y))
    with pytest.raises(RuntimeError, match="second time"):
        ts.autograd.grad(y, x, ts.ones_like(y))
