"""Functions that processors compute in vectors, against float64 of the cpu: special numbers and other layouts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from scipy import special
from tesserack.nn import functional as F

INF, NAN = float("inf"), float("nan")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, -0.999, 2.5, -7.75, 30.25, 88.9, -104.5, 1e-30, -1e-6, 4e4, 3e37, INF, -INF, NAN)

UNARY: tuple[str, ...] = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
    *("cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "digamma", "sigmoid", "rsqrt"),
)
BINARY = ("pow", "fmod", "remainder", "floor_divide", "hypot", "atan2", "copysign")
COMPOSED: dict[str, Callable[[Any], Any]] = {
    "gelu": F.gelu,
    "gelu of tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
    "elu": F.elu,
    "logsigmoid": F.logsigmoid,
}


def numbers(seed: int = 0) -> ts.Tensor:
    """Special ones, those of every magnitude, and an odd count, so that the last vector is a part."""
    generator = ts.Generator().manual_seed(seed)
    normal = ts.randn(301, generator=generator)
    large = ts.randn(200, generator=generator) * 2 ** ts.randint(-30, 30, (200,), generator=generator).float()
    return ts.cat([ts.tensor(SPECIAL), normal, large, ts.tensor([0.25])])


def agree(found: ts.Tensor, expected: ts.Tensor) -> None:
    assert found.device.type == "opencl"
    exact = expected.to(found.dtype).double()
    assert ts.allclose(found.cpu().double(), exact, rtol=2e-6, atol=1e-6, equal_nan=True), (
        (found.cpu().double() - exact).abs().nan_to_num().max()
    )


@pytest.mark.parametrize("name", UNARY)
def test_functions(name: str) -> None:
    x = numbers()
    agree(getattr(ts, name)(x.to("opencl")), getattr(ts, name)(x.double()))


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two(name: str) -> None:
    pairs = ts.tensor([(a, b) for a in SPECIAL for b in SPECIAL])
    x, y = ts.cat([pairs[:, 0], numbers(1)]), ts.cat([pairs[:, 1], numbers(2)])
    function = getattr(ts, name)
    if name in ("fmod", "remainder", "floor_divide"):  # of float32: what is left of a quotient depends on each bit
        assert ts.equal(function(x.to("opencl"), y.to("opencl")).cpu().nan_to_num(7), function(x, y).nan_to_num(7))
    else:
        agree(function(x.to("opencl"), y.to("opencl")), function(x.double(), y.double()))


@pytest.mark.parametrize("name", COMPOSED)
def test_activations(name: str) -> None:
    x = ts.cat([numbers()[18:319], ts.tensor([0.0, 30.0, -30.0, INF, NAN])])
    agree(COMPOSED[name](x.to("opencl")), COMPOSED[name](x.double()))


@pytest.mark.parametrize("dtype", [ts.float16, ts.bfloat16, ts.uint8, ts.int32, ts.bool])
def test_other_dtypes_in_memory(dtype: ts.dtype) -> None:
    x = (numbers()[18:101] * 3).abs().to(dtype)
    agree(x.to("opencl").exp(), x.float().exp() if dtype.is_floating_point else x.double().exp())
    assert ts.equal((x.to("opencl") != 0).cpu(), x != 0)
    assert ts.equal(x.to("opencl").float().cpu(), x.float())


@pytest.mark.parametrize(
    "target", [ts.bool, ts.uint8, ts.int8, ts.int16, ts.int64, ts.float16, ts.bfloat16, ts.float32, ts.float64]
)
@pytest.mark.parametrize("source", [ts.float32, ts.float16, ts.int8, ts.bool])
def test_casts(source: ts.dtype, target: ts.dtype) -> None:
    x = (numbers()[18:101].abs() * 30).to(source)
    assert ts.equal(x.to("opencl").to(target).cpu(), x.to(target))
    if source == ts.float32 and target.is_floating_point:
        special = ts.tensor(SPECIAL)
        assert ts.equal(special.to("opencl").to(target).cpu().nan_to_num(7), special.to(target).nan_to_num(7))


LAYOUTS: dict[str, Callable[[ts.Tensor], ts.Tensor]] = {
    "stepped": lambda x: x[:, ::3],
    "turned": lambda x: x.t(),
    "offset": lambda x: x[3:, 5:],
    "flipped": lambda x: x.flip(1)[:, 1:],
    "repeated": lambda x: x[:, 7:8].expand(37, 53),
    "one row": lambda x: x[5],
    "one column": lambda x: x[:, 5],
    "one element": lambda x: x[5, 5],
    "none": lambda x: x[:0],
    "of three dims": lambda x: x[:, :48].reshape(37, 6, 8).permute(1, 0, 2)[:, ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: str) -> None:
    x = numbers()[: 37 * 13].repeat(5)[: 37 * 53].reshape(37, 53)
    ours, theirs = LAYOUTS[layout](x.to("opencl")), LAYOUTS[layout](x)
    agree(ours.tanh(), theirs.double().tanh())
    bias = ts.linspace(-1, 1, theirs.shape[-1] if theirs.ndim else 1)
    agree(F.silu(ours + bias.to("opencl")), F.silu((theirs + bias).double()))
    out = ts.zeros_like(x).to("opencl")
    LAYOUTS["offset"](out).copy_(LAYOUTS["offset"](x.to("opencl")).sigmoid())
    assert out[:3].sum().item() == 0 and out[:, :5].sum().item() == 0


def test_more_than_the_caches_hold() -> None:
    """Stored past them, where it is: from an odd element on as well."""
    x = ts.linspace(-4, 4, 5 << 20)
    ours = x.to("opencl")
    assert ts.allclose((ours * 2 + 1).cpu(), x * 2 + 1)
    assert ts.equal(ours[1:].neg().cpu(), -x[1:])
    out = ts.zeros(x.numel() + 3, device="opencl")
    out[3:].copy_(ours)
    assert ts.equal(out.cpu()[3:], x) and out[:3].sum().item() == 0


OTHERS: dict[str, Callable[..., Any]] = {
    "lgamma": np.vectorize(math.lgamma),
    "digamma": special.digamma,
    "sigmoid": special.expit,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "pow": np.power,
    "atan2": np.arctan2,
}


def oracle(name: str, *arguments: ts.Tensor) -> np.ndarray:
    """What NumPy or SciPy makes of float64."""
    arc = name.replace("a", "arc", 1) if name[1:] in ("sin", "cos", "tan", "sinh", "cosh", "tanh") else name
    function = OTHERS.get(name) or getattr(np, arc, None) or getattr(special, name)
    with np.errstate(all="ignore"):
        return np.asarray(function(*(x.numpy() for x in arguments)))


@pytest.mark.parametrize("name", UNARY)
def test_float64(name: str) -> None:
    """Within some units in the last place of what others compute, but beside zeros and poles of the gamma functions."""
    ends = ts.tensor([1e-310, 1e300, 700.5, -709.5, 1 - 1e-16, 1 - 1e-12], dtype=ts.float64)
    x = ts.cat([numbers().double(), ts.rand(300, dtype=ts.float64), ends])
    if name in ("lgamma", "digamma"):
        x = x[(x > 0) | (x != x)]
    found, expected = getattr(ts, name)(x.to("opencl")).cpu().numpy(), oracle(name, x)
    np.testing.assert_allclose(found, expected, rtol=2e-15, atol=4e-15 if name in ("lgamma", "digamma") else 1e-322)
    assert ts.equal(
        getattr(ts, name)(ts.tensor([-0.0], device="opencl", dtype=ts.float64)).cpu().signbit(),
        getattr(ts, name)(ts.tensor([-0.0], dtype=ts.float64)).signbit(),
    )


@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_functions_below_zero(name: str) -> None:
    x = -ts.rand(300, dtype=ts.float64) * 9 - 1e-3
    found, expected = getattr(ts, name)(x.to("opencl")).cpu().numpy(), oracle(name, x)
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", BINARY)
def test_float64_of_two(name: str) -> None:
    pairs = ts.tensor([(a, b) for a in SPECIAL for b in SPECIAL]).double()
    x = ts.cat([pairs[:, 0], numbers(1).double(), ts.randn(300, dtype=ts.float64) * 9])
    y = ts.cat([pairs[:, 1], numbers(2).double(), ts.randn(300, dtype=ts.float64)])
    function = getattr(ts, name)
    found = function(x.to("opencl"), y.to("opencl")).cpu().numpy()
    if name in ("fmod", "remainder", "floor_divide"):  # exact, and of what others say, Python's
        assert np.array_equal(found, function(x, y).numpy(), equal_nan=True)
    else:
        np.testing.assert_allclose(found, oracle(name, x, y), rtol=1e-15)


@pytest.mark.parametrize(
    "dtype", [ts.float16, ts.bfloat16, ts.float32, ts.bool, ts.int8, ts.uint32, ts.int64, ts.uint64]
)
def test_float64_beside_other_dtypes(dtype: ts.dtype) -> None:
    x, y = (numbers()[18:101].abs() * 3).to(dtype), numbers(1)[18:101].double()
    assert ts.equal((y.to("opencl") + x.to("opencl")).cpu(), y + x)
    out = ts.empty(83, dtype=dtype)
    if dtype.is_floating_point:
        ours = ts.exp(y.to("opencl"), out=out.to("opencl"))
        ts.testing.assert_close(ours.cpu(), ts.exp(y, out=out))
