"""The Array API standard's functions on random arrays beside array_api_strict: values, shapes and dtypes.

Where the reference refuses, the standard leaves the answer open. The standard's special values that NumPy does not
have are written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts

strict = pytest.importorskip("array_api_strict", reason="the standard's reference is not installed")
xp = ts.array_api
pytestmark = pytest.mark.filterwarnings("ignore")
KINDS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
KINDS += ["float32", "float64", "complex64", "complex128"]
BINARY = ["add", "bitwise_and", "bitwise_or", "bitwise_xor", "divide", "equal", "greater", "less_equal", "maximum"]
BINARY += ["minimum", "multiply", "not_equal", "subtract", "pow", "atan2", "copysign", "hypot", "logaddexp"]
SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (2, 0), (1, 3, 2)]


def drawn(kind: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    if kind == "bool":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if kind[0] in "iu":
        return np.asarray(rng.integers(0 if kind[0] == "u" else -5, 6, shape)).astype(kind)
    values = np.asarray(3 * rng.standard_normal(shape))
    return (values + 1j * np.asarray(rng.standard_normal(shape)) if kind[0] == "c" else values).astype(kind)


def both(array: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    return ts.from_numpy(np.array(array)), strict.asarray(np.array(array))


def kind_of(value: Any) -> str:
    return str(value.dtype).rpartition(".")[2]


def check(call: Callable[..., Any], ours: list[Any], theirs: list[Any], what: str) -> None:
    try:
        expected = call(strict, *theirs)
    except Exception:
        return  # the standard does not say
    got = call(xp, *ours)
    for mine, wanted in zip(*((r if isinstance(r, tuple) else (r,)) for r in (got, expected)), strict=True):
        if not hasattr(wanted, "_array"):
            assert mine == wanted, what
            continue
        assert tuple(mine.shape) == tuple(wanted.shape) and kind_of(mine) == kind_of(wanted), what
        values = mine.resolve_conj().numpy()
        np.testing.assert_allclose(values, np.asarray(wanted._array), 1e-4, 1e-6, err_msg=what)


@pytest.mark.parametrize("name", BINARY)
def test_two_arrays_of_any_dtypes(name: str) -> None:
    """Arrays without dims count in promotion like others."""
    for k, first in enumerate(KINDS):
        for second in KINDS:
            if name == "pow" and second[0] == "i":
                continue  # negative powers of integers
            for left, right in (((2, 3), (2, 3)), ((2, 3), ()), ((), (3,)), ((2, 1), (1, 3))):
                a, b = drawn(first, left, k), drawn(second, right, k + 1)
                (x, y), (p, q) = both(a), both(b)
                check(lambda m, u, v: getattr(m, name)(u, v), [x, p], [y, q], f"{first}{left} {second}{right}")


@pytest.mark.parametrize("name", BINARY)
def test_numbers_beside_arrays(name: str) -> None:
    for kind in KINDS:
        for number in (True, 2, 2.5, 1j):
            if number == 1j and name in ("greater", "less_equal", "maximum", "minimum"):
                continue  # complex numbers have no order
            x, y = both(drawn(kind, (2, 3)))
            check(lambda m, u, number=number: getattr(m, name)(u, number), [x], [y], f"{kind} {number}")
            check(lambda m, u, number=number: getattr(m, name)(number, u), [x], [y], f"{number} {kind}")


ONE: dict[str, Callable[[Any, Any], Any]] = {
    **{
        name: lambda m, x, name=name: getattr(m, name)(x)
        for name in ("abs", "ceil", "conj", "exp", "floor", "imag", "log1p", "negative", "real", "reciprocal", "round",
                     "sign", "sqrt", "square", "tanh", "trunc", "isfinite", "bitwise_invert", "logical_not")
    },
    **{
        f"{name} {axis}": lambda m, x, name=name, axis=axis: getattr(m, name)(x, axis=axis, keepdims=axis == 0)
        for name in ("sum", "prod", "mean", "max", "min", "all", "any", "count_nonzero", "var", "std")
        for axis in (None, 0, -1, (), (0, 1))
    },
    "corrected": lambda m, x: (m.var(x, axis=0, correction=1), m.std(x, axis=(), correction=1)),
    "running": lambda m, x: (m.cumulative_sum(x, axis=0, include_initial=True), m.cumulative_prod(x, axis=-1)),
    "order": lambda m, x: (m.sort(x, axis=0, descending=True), m.argsort(x, axis=-1, stable=True)),
    "sets": lambda m, x: (*m.unique_all(x), *m.unique_counts(x), *m.unique_inverse(x)),
    "triangles": lambda m, x: (m.tril(x, k=1), m.triu(x, k=-1)),
    "places": lambda m, x: m.nonzero(x),
    "moved": lambda m, x: (m.flip(x), m.roll(x, 2), m.permute_dims(x, tuple(range(x.ndim))[::-1]), m.tile(x, (2, 1))),
    "joined": lambda m, x: (m.concat([x, x], axis=None), m.stack([x, x], axis=-1), m.expand_dims(x, axis=0)),
    "repeated": lambda m, x: (m.repeat(x, 2, axis=0), m.take(x, m.asarray([0, -1]), axis=-1)) if x.ndim else (),
    "bounded": lambda m, x: (m.clip(x, 1, 3), m.clip(x, x, None)),
    "products": lambda m, x: (m.matmul(x, m.matrix_transpose(x)), m.vecdot(x, x), m.tensordot(x, x, axes=0)),
    "transformed": lambda m, x: (m.fft.fft(x), m.fft.ifft(x, axis=0), m.fft.rfft(x, norm="ortho")),
    "transformed whole": lambda m, x: (m.fft.fftn(x, axes=(0, -1)), m.fft.fftshift(x)) if x.ndim > 1 else (),
    "norms": lambda m, x: (m.linalg.vector_norm(x, axis=-1, ord=3), m.linalg.matrix_norm(x, ord="nuc")),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_one_array(name: str) -> None:
    for kind in KINDS:
        for k, shape in enumerate(SHAPES):
            x, y = both(drawn(kind, shape, k))
            check(ONE[name], [x], [y], f"{kind}{shape}")


def test_questions_about_dtypes() -> None:
    for first in KINDS:
        for second in KINDS:
            check(lambda m, a=first, b=second: m.can_cast(getattr(m, a), getattr(m, b)), [], [], f"{first} {second}")


def remainder(a: float, b: float) -> float:
    """The standard's table."""
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return math.nan
    if a == 0:
        return math.copysign(0.0, b)
    if math.isinf(b):
        return a if (a > 0) == (b > 0) else b
    return a % b


def floor_divide(a: float, b: float) -> float:
    """The standard's table."""
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and math.isinf(b)) or (a == 0 and b == 0):
        return math.nan
    sign = math.copysign(1, a) * math.copysign(1, b)
    if b == 0 or math.isinf(a):
        return sign * math.inf
    if a == 0:
        return sign * 0.0
    return (0.0 if sign > 0 else -1.0) if math.isinf(b) else float(a // b)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("table", [remainder, floor_divide])
def test_division_at_zeros_and_infinities(table: Callable[[float, float], float], kind: str) -> None:
    values = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, math.inf, -math.inf, math.nan]
    x = ts.tensor(values, dtype=getattr(ts, kind))
    found = getattr(xp, table.__name__)(x[:, None], x[None, :]).numpy()
    wanted = np.array([[table(a, b) for b in values] for a in values])
    np.testing.assert_array_equal(found, wanted)
    kept = ~np.isnan(wanted)
    assert (np.signbit(found) == np.signbit(wanted))[kept].all()
