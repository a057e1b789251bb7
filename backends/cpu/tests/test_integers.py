"""Integers and bools: registers as narrow as the operands, and division by one number or by many."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tesserack as ts

Array = np.ndarray[Any, Any]

# Without Python's own numbers, which NumPy would not wrap.
BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
    "and": (operator.and_, np.bitwise_and),
    "or": (operator.or_, np.bitwise_or),
    "xor": (operator.xor, np.bitwise_xor),
    "maximum": (ts.maximum, np.maximum),
    "minimum": (ts.minimum, np.minimum),
    "eq": (operator.eq, np.equal),
    "lt": (operator.lt, np.less),
    "ge": (operator.ge, np.greater_equal),
    "logical_and": (ts.logical_and, np.logical_and),
    "logical_xor": (ts.logical_xor, np.logical_xor),
    "add, alpha": (lambda a, b: ts.add(a, b, alpha=3), lambda a, b: a + b * b.dtype.type(3)),
    "where": (lambda a, b: ts.where(a > b, a, b + 1), lambda a, b: np.where(a > b, a, b + b.dtype.type(1))),
    "sum compared": (lambda a, b: a + b > 100, lambda a, b: a + b > 100),
    "clamp of a sum": (lambda a, b: (a + b).clamp(5, 90), lambda a, b: np.clip(a + b, 5, 90)),
}
UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "neg": (operator.neg, np.negative),
    "abs": (ts.abs, np.abs),
    "not": (operator.invert, np.bitwise_not),
    "sign": (ts.sign, np.sign),
    "square": (lambda a: a * a + a, lambda a: a * a + a),
    "logical_not": (ts.logical_not, np.logical_not),
}
DTYPES = ("uint8", "int8", "int16")


def pairs(dtype: str) -> tuple[Array, Array]:
    """Every pair of bytes; of wider integers, those near where bytes and they themselves end."""
    info = np.iinfo(dtype)
    values = np.arange(info.min, info.max + 1, 1 if info.bits == 8 else 251).astype(dtype)
    values = np.concatenate([values, np.array([info.min, info.max, -1 & info.max, 0, 1], dtype)])
    return tuple(np.ascontiguousarray(x.ravel()) for x in np.meshgrid(values, values))  # type: ignore[return-value]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str, dtype: str) -> None:
    a, b = pairs(dtype)
    call, reference = BINARY[name]
    np.testing.assert_array_equal(call(ts.from_numpy(a), ts.from_numpy(b)).numpy(), reference(a, b))
    strided = call(ts.from_numpy(a)[::3], ts.from_numpy(b)[::3])
    np.testing.assert_array_equal(strided.numpy(), reference(a[::3], b[::3]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, dtype: str) -> None:
    a, _ = pairs(dtype)
    call, reference = UNARY[name]
    np.testing.assert_array_equal(call(ts.from_numpy(a)).numpy(), reference(a))


@pytest.mark.parametrize("dtype", DTYPES)
def test_beside_numbers_and_bools(dtype: str) -> None:
    a, b = pairs(dtype)
    x, mask = ts.from_numpy(a), ts.from_numpy(b > 3)
    np.testing.assert_array_equal(ts.where(mask, x, 7).numpy(), np.where(b > 3, a, a.dtype.type(7)))
    np.testing.assert_array_equal((x + mask).numpy(), a + (b > 3))
    np.testing.assert_array_equal((x * 100 - 100).numpy(), a * a.dtype.type(100) - a.dtype.type(100))
    np.testing.assert_array_equal((x > 100).numpy(), a > 100)


BOOLS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Array]]] = {
    "and": (operator.and_, np.logical_and),
    "or": (operator.or_, np.logical_or),
    "xor": (operator.xor, np.logical_xor),
    "logical_and": (ts.logical_and, np.logical_and),
    "logical_or": (ts.logical_or, np.logical_or),
    "logical_xor": (ts.logical_xor, np.logical_xor),
    "eq": (operator.eq, np.equal),
    "ne": (operator.ne, np.not_equal),
    "lt": (operator.lt, np.less),
    "mul": (operator.mul, np.logical_and),
    "add": (operator.add, np.logical_or),
    "maximum": (ts.maximum, np.logical_or),
    "not": (lambda a, b: ~a, lambda a, b: ~a),
    "where": (lambda a, b: ts.where(a, b, ~b), lambda a, b: np.where(a, b, ~b)),
    "and True": (lambda a, b: a & True, lambda a, b: a),
    "and_": (lambda a, b: a.clone().logical_and_(b), np.logical_and),
}


@pytest.mark.parametrize("name", BOOLS)
@pytest.mark.parametrize("n", [1, 63, 5000])
def test_bools(name: str, n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random(2 * n) > 0.5, rng.random(2 * n) > 0.5
    call, reference = BOOLS[name]
    for x, y in ((a, b), (a[::2], b[::2])):
        got = call(ts.from_numpy(x), ts.from_numpy(y))
        assert got.dtype == ts.bool
        np.testing.assert_array_equal(got.numpy(), reference(x, y))


def test_bools_of_other_bytes() -> None:
    """A byte other than 0 is True, whatever it holds: as for every other operator."""
    a = ts.arange(256).to(ts.uint8).view(ts.bool)
    b = a.flip(0)
    assert (a & b).sum().item() == 254 and (a | b).sum().item() == 256
    assert (a ^ b).sum().item() == 2 and (~a).sum().item() == 1
    assert a.equal(ts.arange(256) != 0) and not a.equal(b)


DIVISIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "floor": (operator.floordiv, operator.floordiv),
    "remainder": (operator.mod, operator.mod),
    "trunc": (
        lambda a, b: ts.div(a, b, rounding_mode="trunc"),
        lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    ),
    "fmod": (ts.fmod, lambda a, b: abs(a) % abs(b) * (-1 if a < 0 else 1)),
}


def wrapped(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("name", DIVISIONS)
def test_division(name: str, bits: int) -> None:
    """By numbers and by tensors, of everything near a power of two, where products and float64 would round."""
    dtype = getattr(ts, f"int{bits}")
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    near = {s * ((1 << k) + d) for k in range(bits) for d in (-1, 0, 1) for s in (-1, 1)} | {10**k for k in range(19)}
    dividends = sorted({v for v in near if low <= v <= high})
    divisors = sorted({*(v for v in (1, -1, 2, 3, -3, 7, -7, 10, 641, -1000003, low, high) if low <= v <= high)})
    divisors += dividends[:: 1 + len(dividends) // 12]
    call, reference = DIVISIONS[name]
    x = ts.tensor(dividends, dtype=dtype)
    for b in divisors:
        if b == 0:
            continue
        want = [wrapped(reference(a, b), bits) for a in dividends]
        assert call(x, b).tolist() == want, b
        assert call(x[:5], b).tolist() == want[:5], b
        assert call(x, ts.full_like(x, b)).tolist() == want, b
        y = ts.tensor([v or 1 for v in dividends], dtype=dtype)
        assert call(ts.full_like(x, b), y).tolist() == [wrapped(reference(b, v or 1), bits) for v in dividends], b


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64"])
def test_division_by_zero(dtype: str) -> None:
    x = ts.arange(100).to(getattr(ts, dtype))
    for divide in (lambda: x // 0, lambda: x % x, lambda: x // x[:1]):
        with pytest.raises((ZeroDivisionError, RuntimeError), match="ero"):
            divide()


@pytest.mark.parametrize("source", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32"])
@pytest.mark.parametrize("target", ["float32", "float64", "int64", "int16"])
def test_casts(source: str, target: str) -> None:
    """Straight into the destination where it holds every value of the source."""
    x = np.arange(-40000, 40000, 7).astype(source)
    with np.errstate(invalid="ignore"):
        want = np.where(np.isinf(x), 0, x).astype(target) if source == "float16" else x.astype(target)
    x = np.where(np.isinf(x), x.dtype.type(0), x)
    y = ts.from_numpy(np.ascontiguousarray(x))
    np.testing.assert_array_equal(y.to(getattr(ts, target)).numpy(), want)
    np.testing.assert_array_equal(y[::2].to(getattr(ts, target)).numpy(), want[::2])
