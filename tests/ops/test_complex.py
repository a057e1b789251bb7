"""Complex numbers against NumPy in complex128: functions with their special values, parts, gradients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts
from tesserack.autograd import gradcheck, gradgradcheck

RNG = np.random.default_rng(14)
SPECIAL = (0.0, -0.0, 0.5, -1.0, 1.0, 2.5, -30.0, np.inf, -np.inf, np.nan)
GRID = np.array([complex(a, b) for a, b in itertools.product(SPECIAL, SPECIAL)])

# NumPy's name where it is another.
NUMPY = {
    **{f"a{name}": f"arc{name}" for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "neg": "negative",
    "conj_physical": "conj",
    "log1p": "log1p",
}
REFERENCES: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "rsqrt": lambda z: 1 / np.sqrt(z),
    "sgn": lambda z: np.where(z == 0, 0, z / np.where(z == 0, 1, np.abs(z))),
}
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "sinh", "cosh",
    "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "sigmoid", "reciprocal", "square", "neg", "abs",
    "angle", "sgn", "real", "imag", "conj", "conj_physical",
)  # fmt: skip
# Where NumPy itself leaves annex G of C99, or a formula by parts has no meaning there.
EXEMPT = ("expm1", "exp2", "log1p", "log2", "log10", "sigmoid", "rsqrt", "reciprocal", "square", "sgn")


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def tensor(array: Any, device: Any, grad: bool = False) -> ts.Tensor:
    return ts.tensor(np.asarray(array), device=device, requires_grad=grad)


def reference(name: str) -> Callable[[Any], Any]:
    return REFERENCES.get(name) or getattr(np, NUMPY.get(name, name))


def close(got: ts.Tensor, want: Any, tolerance: float = 1e-13) -> None:
    array = got.detach().cpu().resolve_conj().numpy()
    assert array.shape == np.shape(want)
    assert np.iscomplexobj(array) == np.iscomplexobj(want)
    np.testing.assert_allclose(array, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(("dtype", "tolerance"), [("complex128", 1e-13), ("complex64", 2e-6)])
def test_function(name: str, dtype: str, tolerance: float, device: Any) -> None:
    z = (draw(5, 7) * 2).astype(dtype)
    want = reference(name)(z.astype("complex128"))
    close(getattr(ts, name)(tensor(z, device)), want, tolerance)
    close(getattr(ts, name)(tensor(z.T, device).T[::2, 1:]), want[::2, 1:], tolerance)
    assert getattr(ts, name)(tensor(z[:0], device)).shape == (0, 7)
    close(getattr(ts, name)(tensor(z[0, 0], device)), want[0, 0], tolerance)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in EXEMPT])
def test_special_values(name: str, device: Any) -> None:
    with np.errstate(all="ignore"):
        want = reference(name)(GRID)
    close(getattr(ts, name)(tensor(GRID, device)), want, 1e-12)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_arithmetic(name: str, device: Any) -> None:
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}[name]
    a, b, r = draw(4, 3), draw(3), RNG.standard_normal((4, 1))
    op = getattr(ts, name)
    close(op(tensor(a, device), tensor(b, device)), function(a, b), 1e-12)
    close(op(tensor(a, device), tensor(r, device)), function(a, r), 1e-12)
    close(op(tensor(r, device), tensor(a, device)), function(r + 0j, a), 1e-12)
    close(op(tensor(a, device), 1.5 - 2j), function(a, 1.5 - 2j), 1e-12)
    close(op(tensor(r, device), 1j), function(r + 0j, 1j), 1e-12)
    x = tensor(a, device)
    assert getattr(x, f"{name}_")(tensor(b, device)) is x
    close(x, function(a, b), 1e-12)
    out = ts.empty(0, dtype=ts.complex128, device=device)
    op(tensor(a, device), tensor(b, device), out=out)
    close(out, function(a, b), 1e-12)


def test_division_does_not_overflow(device: Any) -> None:
    z = np.array([1e300 + 1e300j, 1e-300 - 1e-300j, 3e200j])
    close(tensor(z, device) / tensor(z, device), np.ones(3) + 0j)
    close(1 / tensor(np.array([2e38 + 2e38j], "complex64"), device), np.array([2.5e-39 - 2.5e-39j]), 1e-6)


def test_powers(device: Any) -> None:
    z = draw(6)
    for e in (0, 1, 2, 3, -1, -2, 0.5, -0.5, 2.5, 1j, 2 - 1j):
        close(tensor(z, device) ** e, z**e, 1e-12)
    close(2.0 ** tensor(z, device), 2.0**z, 1e-12)
    close(tensor(np.zeros(1) + 0j, device) ** 2.5, np.zeros(1) + 0j)
    close(tensor(np.zeros(1) + 0j, device) ** 0, np.ones(1) + 0j)


def test_promotion(device: Any) -> None:
    x, i = ts.ones(2, device=device), ts.ones(2, dtype=ts.int64, device=device)
    assert (x * 1j).dtype == (i + 1j).dtype == ts.complex64
    assert (x.double() * 1j).dtype == ts.complex128 == (x.double() * ts.ones(2, dtype=ts.complex64)).dtype
    assert (ts.ones(2, dtype=ts.complex64) * x.double().sum()).dtype == ts.complex64
    assert ts.result_type(x, 1j) == ts.complex64
    assert ts.full((2,), 1 - 1j, device=device).dtype == ts.complex64
    with pytest.raises(RuntimeError, match="complex"):
        x.add(x, alpha=1j)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.mul_(1j)
    with pytest.raises(RuntimeError, match="cannot be converted"):
        x.fill_(1j)


def test_comparisons(device: Any) -> None:
    a = np.array([1 + 2j, 1 - 2j, complex(np.nan, 0), 0])
    b = np.array([1 + 2j, 1 + 2j, complex(np.nan, 0), 0])
    x, y = tensor(a, device), tensor(b, device)
    close(x == y, a == b)
    close(x != y, a != b)
    close(x.isnan(), np.isnan(a))
    close(x.logical_not(), a == 0)
    close(x.logical_and(y), (a != 0) & (b != 0))
    close(ts.isreal(x), a.imag == 0)
    close(tensor(GRID, device).isfinite(), np.isfinite(GRID))
    close(tensor(GRID, device).isinf(), np.isinf(GRID))
    assert ts.allclose(x[:2], x[:2] + 1e-9)
    assert not ts.allclose(x[:2], x[:2] + 1e-2j)
    assert ts.equal(x[:2], x[:2].clone())
    for name in ("lt", "ge", "maximum", "floor", "erf", "sign", "remainder", "atan2", "relu", "clamp_min"):
        with pytest.raises(RuntimeError, match="complex"):
            getattr(ts, name)(
                *((x, y) if name in ("lt", "ge", "maximum", "remainder", "atan2") else (x,)),
                *((0.0,) if name == "clamp_min" else ()),
            )


def test_parts_are_views(device: Any) -> None:
    z = draw(3, 4)
    x = tensor(z, device)
    x.real.mul_(2)
    x.imag[0] = 7.0
    want = z.real * 2 + 1j * np.where(np.arange(3)[:, None] == 0, 7.0, z.imag)
    close(x, want)
    x.real = ts.zeros(4, dtype=ts.float64, device=device)
    x.imag = 1.0
    close(x, np.full((3, 4), 1j))
    pairs = ts.view_as_real(tensor(z, device).T)
    close(pairs, np.stack([z.T.real, z.T.imag], -1))
    close(ts.view_as_complex(pairs), z.T)
    assert ts.view_as_complex(pairs).data_ptr() == pairs.data_ptr()
    with pytest.raises(RuntimeError, match="last dimension of size 2"):
        ts.view_as_complex(ts.ones(3))
    with pytest.raises(RuntimeError, match="only supported for complex"):
        ts.view_as_real(ts.ones(3))
    with pytest.raises(RuntimeError, match="non-complex"):
        ts.imag(ts.ones(3))


def test_making(device: Any) -> None:
    a, b = RNG.standard_normal((2, 3)), RNG.standard_normal(3)
    close(ts.complex(tensor(a, device), tensor(b, device)), a + 1j * b)
    close(ts.polar(tensor(a, device), tensor(b, device)), a * np.exp(1j * b))
    close(ts.full((2, 2), 1 - 2j, dtype=ts.complex128, device=device), np.full((2, 2), 1 - 2j))
    close(ts.eye(3, dtype=ts.complex128, device=device), np.eye(3) + 0j)
    with pytest.raises(RuntimeError, match="same dtype"):
        ts.complex(ts.ones(2), ts.ones(2, dtype=ts.float64))


def test_indexing_and_joining(device: Any) -> None:
    z = draw(4, 3)
    x, mask = tensor(z, device), tensor(np.abs(z) > 1, device)
    close(ts.where(mask, x, 0.0), np.where(np.abs(z) > 1, z, 0))
    close(x.masked_fill(mask, 1j), np.where(np.abs(z) > 1, 1j, z))
    close(ts.cat([x, x * 1j]), np.concatenate([z, z * 1j]))
    close(ts.stack([x, x.conj()], 1), np.stack([z, z.conj()], 1))
    close(x[[2, 0]], z[[2, 0]])
    y = x.clone()
    y[1] = 2 - 1j
    y[mask] = 3j
    want = z.copy()
    want[1] = 2 - 1j
    want[np.abs(z) > 1] = 3j
    close(y, want)
    assert x[0, 0].item() == z[0, 0]
    assert x.tolist() == z.tolist()


def test_casts(device: Any) -> None:
    z = draw(5)
    x = tensor(z, device)
    close(x.to(ts.complex64).to(ts.complex128), z.astype("complex64").astype("complex128"))
    close(tensor(z.real, device).to(ts.complex128), z.real + 0j)
    close(x.reshape(1, 5).mH, z.reshape(1, 5).conj().T)
    close(x.reshape(5, 1).H, z.reshape(5, 1).conj().T)
    close(x.reshape(5, 1).adjoint(), z.reshape(5, 1).conj().T)


@pytest.mark.parametrize("name", [*FUNCTIONS, "view_as_real"])
def test_gradient(name: str, device: Any) -> None:
    z = tensor(draw(4), device, True)
    assert gradcheck(getattr(ts, name), (z,))
    assert gradgradcheck(getattr(ts, name), (z,))


@pytest.mark.parametrize("real", ["neither", "first", "second"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "pow"])
def test_gradient_of_arithmetic(name: str, real: str, device: Any) -> None:
    a = tensor(np.abs(draw(2, 3)) + 0.2 if real == "first" else draw(2, 3), device, True)
    b = tensor(RNG.standard_normal(3) if real == "second" else draw(3), device, True)
    assert gradcheck(getattr(ts, name), (a, b))
    assert gradgradcheck(getattr(ts, name), (a, b))


def test_gradient_convention(device: Any) -> None:
    """The gradient of a real loss is the direction of steepest ascent: dL/dx + i dL/dy."""
    z = tensor(np.array([3 - 4j]), device, True)
    (z * z.conj()).real.sum().backward()
    close(z.grad, np.array([6 - 8j]))
    x = tensor(np.array([2.0]), device, True)
    (x * (1 + 2j)).imag.sum().backward()
    close(x.grad, np.array([2.0]))
    zero = tensor(np.zeros(2) + 0j, device, True)
    (zero.abs().sum() + zero.angle().sum()).backward()
    close(zero.grad, np.zeros(2) + 0j)


def test_gradients_of_other_operators(device: Any) -> None:
    z, w = tensor(draw(3, 2), device, True), tensor(draw(2), device, True)
    mask = tensor(np.array([True, False]), device)
    for function in (
        lambda a, b: ts.where(mask, a, b),
        lambda a, b: ts.addcmul(a, a, b, value=2 - 1j),
        lambda a, b: ts.addcdiv(a, a, b, value=2 - 1j),
        lambda a, b: ts.lerp(a, b, 0.3),
        lambda a, b: ts.cat([a, b.expand(3, 2)]).conj(),
        lambda a, b: ts.view_as_complex(ts.view_as_real(a) * ts.view_as_real(b)),
        lambda a, b: ts.polar(a.abs(), a.angle()) * b.imag,
    ):
        assert gradcheck(function, (z, w))
        assert gradgradcheck(function, (z, w))


@pytest.mark.parametrize("real", [2.0, ts.tensor(2.0), ts.full((3,), 2.0)])
def test_zeros_of_real_operands_meet_infinities(real: float | ts.Tensor, device: ts.device) -> None:
    """As in PyTorch, which makes the real operand complex."""
    real = real.to(device) if isinstance(real, ts.Tensor) else real
    z = ts.tensor([complex("inf+1j"), complex("1+infj"), 3 + 4j], device=device)
    for of, finite in ((z * real, 6 + 8j), (real * z, 6 + 8j), (z / real, 1.5 + 2j), (z.clone().mul_(real), 6 + 8j)):
        infinite, other, plain = of.cpu().tolist()
        assert infinite.real == math.inf and math.isnan(infinite.imag)
        assert math.isnan(other.real) and other.imag == math.inf
        assert plain == finite


def test_means_of_infinities(device: ts.device) -> None:
    for dims in (None, 0):
        mean = ts.tensor([complex("inf+1j"), 1j], device=device).mean(dims).cpu().item()
        assert mean.real == math.inf and math.isnan(mean.imag)
    z = ts.tensor([2 + 4j, 0.0], device=device)
    assert z.mean().cpu().item() == 1 + 2j
    quotients = (z / ts.zeros(2, device=device)).cpu().tolist()
    assert quotients[0] == complex("inf+infj") and math.isnan(quotients[1].real)
