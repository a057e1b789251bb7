"""Values where kernels go wrong: tiny numbers, NaN, bytes of truth, large integers, long sums, ties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import expect, made, real, rounded, there

# --- tiny numbers -----------------------------------------------------------------------------------------------------

# The smallest normal number and the smallest of all.
_SMALLEST = {
    "float64": (2.0**-1022, 2.0**-1074),
    "float32": (2.0**-126, 2.0**-149),
    "bfloat16": (2.0**-126, 2.0**-133),
    "float16": (2.0**-14, 2.0**-24),
}
_IN_ORDER = np.array([3, -7, 0, 12, -1, 5, 9, -20, 1, 64, -64, 33, 7, -2, 100, 2, 17])


def tiny(dtype: str) -> Any:
    """Denormal numbers in no order, 17 of them."""
    return _IN_ORDER * _SMALLEST[dtype][1]


def _matrix(x: Any) -> Any:
    return x[:16].reshape(4, 4)


# What each kernel makes of tiny numbers: exact in every dtype. On tensors, and the same on arrays.
TINY: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "copy_cast": (lambda x: _matrix(x).t().contiguous(), lambda a: _matrix(a).T),
    "copy_cast, stepped": (lambda x: x[::2].contiguous(), lambda a: a[::2]),
    "copy_cast, to float64": (lambda x: x.double(), lambda a: a),
    "pointwise, neg": (lambda x: -x, lambda a: -a),
    "pointwise, mul": (lambda x: x * 2, lambda a: a * 2),
    "pointwise, mul of two": (lambda x: x * ts.ones_like(x), lambda a: a),
    "pointwise, div": (lambda x: x / ts.ones_like(x), lambda a: a),
    "pointwise, add": (lambda x: x + x, lambda a: a + a),
    "pointwise, sub": (lambda x: x - x.flip(0), lambda a: a - a[::-1]),
    "pointwise, max": (lambda x: ts.maximum(x, x.flip(0)), lambda a: np.maximum(a, a[::-1])),
    "pointwise, lt": (lambda x: x < x.flip(0), lambda a: a < a[::-1]),
    "pointwise, select": (lambda x: ts.where(x != 0, x, x + 1), lambda a: np.where(a != 0, a, 1)),
    "reduce, sum": (lambda x: x.sum(), lambda a: a.sum()),
    "reduce, max": (lambda x: _matrix(x).amax(1), lambda a: _matrix(a).max(1)),
    "reduce, argmin": (lambda x: x.argmin(), lambda a: a.argmin()),
    "reduce, any": (lambda x: x[:2].any(), lambda a: a[:2].any()),
    "scan": (lambda x: x.cumsum(0), lambda a: a.cumsum(0)),
    "gather": (lambda x: x[ts.arange(16, -1, -2, device=x.device)], lambda a: a[::-2]),
    "scatter": (
        lambda x: ts.zeros_like(x).scatter(0, ts.arange(16, -1, -1, device=x.device), x),
        lambda a: a[::-1],
    ),
    "scatter, add": (lambda x: x.scatter_add(0, ts.arange(16, -1, -1, device=x.device), x), lambda a: a + a[::-1]),
    "sort": (lambda x: x.sort().values, lambda a: np.sort(a)),
    "matmul": (lambda x: _matrix(x) @ ts.eye(4, dtype=x.dtype, device=x.device), _matrix),
}
# Instructions of processors for products of bfloat16 take its denormal numbers for zero: so do all who use them.
FLUSHED = {("matmul", "bfloat16")}


@pytest.mark.parametrize("dtype", cases.FLOATING)
@pytest.mark.parametrize("name", TINY)
def test_tiny(name: str, dtype: str, card: Card, record: Record) -> None:
    """Denormal numbers are numbers: no kernel takes them for zero."""
    record.case(op=name, dtype=dtype, direction="edges")
    card.needs(dtype, *(["float64"] if "float64" in name else []))
    if (name, dtype) in FLUSHED:
        pytest.skip("denormal numbers of bfloat16 may be zero in products")
    call, wanted = TINY[name]
    expect(
        call(there(tiny(dtype), dtype, card)), wanted(tiny(dtype)), f"{name} of {dtype}", "17 denormal numbers", card
    )


# What numbers that are none of them denormal make of one another: denormal numbers, exactly. Given numbers, a power of
# two whose products with them are tiny, and the smallest normal number.
Below = tuple[Callable[[Any, Any, Any], Any], Callable[[Any, Any, Any], Any]]
BELOW: dict[str, Below] = {
    "pointwise, mul": (lambda x, p, n: x * p, lambda a, p, n: a * p),
    "pointwise, div": (lambda x, p, n: x / (1 / p), lambda a, p, n: a * p),
    "pointwise, sub": (lambda x, p, n: (x * 0 + 1.5 * n) - (x * 0 + n), lambda a, p, n: a * 0 + 0.5 * n),
    "reduce, prod": (lambda x, p, n: ts.stack((x, p.expand(17)), 1).prod(1), lambda a, p, n: a * p),
    "reduce, sum": (lambda x, p, n: ts.stack((1.5 * n, -n)).sum(), lambda a, p, n: np.array(0.5 * n)),
    "scan, prod": (lambda x, p, n: ts.stack((x, p.expand(17)), 1).cumprod(1)[:, 1], lambda a, p, n: a * p),
    "matmul": (lambda x, p, n: x[:, None] @ p.expand(1, 3), lambda a, p, n: np.repeat((a * p)[:, None], 3, 1)),
    "copy_cast from float64": (lambda x, p, n: (x.double() * p.double()).to(x.dtype), lambda a, p, n: a * p),
}


@pytest.mark.parametrize("dtype", cases.FLOATING)
@pytest.mark.parametrize("name", BELOW)
def test_underflow_is_gradual(name: str, dtype: str, card: Card, record: Record) -> None:
    """Results below the smallest normal number are denormal ones, not zero."""
    record.case(op=name, dtype=dtype, direction="edges")
    card.needs(dtype, *(["float64"] if "float64" in name else []))
    if (name, dtype) in FLUSHED:
        pytest.skip("denormal numbers of bfloat16 may be zero in products")
    call, wanted = BELOW[name]
    normal, least = _SMALLEST[dtype]
    up = 2.0 ** (np.log2(least) // 2)  # which splits the least number into two
    array, factor = _IN_ORDER * up, least / up
    x, p, n = (there(v, dtype, card) for v in (array, np.array(factor), np.array(normal)))
    expect(call(x, p, n), wanted(array, factor, normal), f"{name} of {dtype}", "normal numbers, denormal results", card)


# Functions whose results are tiny: operands, and what comes of them.
SMALL: dict[str, tuple[tuple[float, ...], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "exp": ((-20.0, -60.0, -80.0, -87.0), lambda x: x.exp(), np.exp),
    "sigmoid": ((-20.0, -60.0, -80.0), lambda x: x.sigmoid(), lambda a: np.exp(a) / (1 + np.exp(a))),
    "expm1": ((1e-20, -3e-25, 1e-30), lambda x: x.expm1(), np.expm1),
    "log1p": ((1e-20, -3e-25, 1e-30), lambda x: x.log1p(), np.log1p),
    "sin": ((1e-20, -3e-25, 1e-30), lambda x: x.sin(), np.sin),
    "tanh": ((1e-20, -3e-25, 1e-30), lambda x: x.tanh(), np.tanh),
    "atan": ((1e-20, -3e-25, 1e-30), lambda x: x.atan(), np.arctan),
    "sqrt": ((1e-30, 3e-36, 2e-38), lambda x: x.sqrt(), np.sqrt),
    "mul": ((1e-15, -3e-18, 1e-12), lambda x: x * x, lambda a: a * a),
    "div": ((1e20, -3e25, 1e30), lambda x: 1 / x, lambda a: 1 / a),
    "pow": ((1e-9, 3e-11, 1e-12), lambda x: x**3, lambda a: a**3),
    "softmax": ((0.0, -30.0, -60.0, -80.0), lambda x: x.softmax(0), lambda a: np.exp(a) / np.exp(a).sum()),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_results(name: str, card: Card, record: Record) -> None:
    """Right to the last digits, however small: relative to the result, not to 1."""
    record.case(op=name, dtype="float32", direction="edges")
    operands, call, wanted = SMALL[name]
    given = np.array(operands, np.float32)
    found = cases.values(call(made(given, "float32", card)))
    exact = wanted(given.astype(np.float64))
    error = np.abs(found - exact) / np.abs(exact)
    if not (error < 2e-5).all():
        at = int(np.argmax(~(error < 2e-5)))
        pytest.fail(
            f"{name} of float32 on {card.name}: {exact[at]:.9g} is expected of {operands[at]}, got {found[at]:.9g}: "
            f"small results are wrong by {error[at]:.1e} of themselves",
            pytrace=False,
        )


# --- NaN --------------------------------------------------------------------------------------------------------------


def with_nan(count: int, at: int) -> Any:
    """Numbers in no order, one of them no number."""
    values = (np.arange(count) * 7919 % 97 - 48.0) / 4
    values[at] = np.nan
    return values


def _first(values: Any) -> Any:
    return np.array(int(np.argmax(np.isnan(values))))


NAN: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "reduce, max": (lambda x: x.amax(), lambda a: a.max()),
    "reduce, min": (lambda x: x.amin(), lambda a: a.min()),
    "reduce, argmax": (lambda x: x.argmax(), _first),
    "reduce, argmin": (lambda x: x.argmin(), _first),
    "reduce, sum": (lambda x: x.sum(), lambda a: a.sum()),
    "pointwise, max": (lambda x: ts.maximum(x, x.flip(0)), lambda a: np.maximum(a, a[::-1])),
    "pointwise, min": (lambda x: ts.minimum(x.flip(0), x), lambda a: np.minimum(a, a[::-1])),
    "pointwise, eq": (lambda x: x == x, lambda a: a == a),
    "scan, max": (lambda x: x.cummax(0).values, np.maximum.accumulate),
    "scan, min": (lambda x: x.cummin(0).values, np.minimum.accumulate),
    "gather": (lambda x: x.gather(0, ts.arange(len(x) - 1, -1, -1, device=x.device)), lambda a: a[::-1]),
    "scatter": (
        lambda x: ts.zeros_like(x).scatter(0, ts.arange(len(x) - 1, -1, -1, device=x.device), x),
        lambda a: a[::-1],
    ),
    "scatter, max": (
        lambda x: ts.zeros(2, dtype=x.dtype, device=x.device).scatter_reduce(
            0, ts.zeros(len(x), dtype=ts.int64, device=x.device), x, "amax"
        ),
        lambda a: np.array([np.nan, 0]),
    ),
    "sort": (lambda x: x.sort().values, np.sort),
    "sort, descending": (lambda x: x.sort(descending=True).values, lambda a: np.sort(a)[::-1][_nan_first(a)]),
}


def _nan_first(values: Any) -> Any:
    return np.arange(len(values))  # np.sort has NaN last, reversed first: as the greatest


@pytest.mark.parametrize("dtype", cases.FLOATING)
@pytest.mark.parametrize("name", NAN)
def test_nan(name: str, dtype: str, card: Card, record: Record) -> None:
    """NaN goes through, wherever it stands: in the first place, the last, a vector's middle, a block's end."""
    record.case(op=name, dtype=dtype, direction="edges")
    card.needs(dtype)
    call, wanted = NAN[name]
    for count in (1, 7, 65, 1025):
        for at in sorted({0, count // 2, count - 1}):
            values = rounded(with_nan(count, at), dtype)
            if name == "reduce, sum" or count < 1025 or at:
                what = f"{count} elements, NaN in place {at}"
                expect(call(there(values, dtype, card)), wanted(values), f"{name} of {dtype}", what, card)


# --- truth ------------------------------------------------------------------------------------------------------------

_ODD = np.array([0.0, 1.0, 2.0, 0.5, -1.0, 256.0, np.nan, np.inf, 65536.0, 0.0, 4294967296.0, 2.0**-24])
_SOME = np.arange(12) % 3 == 1
_HIGH = np.array([0, 1 << 8, 1 << 15, 0, 1 << 16, 1 << 31, 0, 1 << 32, 3 << 40, 1 << 52, 1 << 62, -(1 << 63)])


def made_of_high_bits(x: Any) -> Any:
    """Integers that are true by one bit, on the device of a tensor."""
    return ts.from_numpy(_HIGH).to(x.device)


TRUTH: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "copy_cast": (lambda x, b: x.bool(), _ODD != 0),
    "copy_cast, int": (lambda x, b: made_of_high_bits(x).bool(), _HIGH != 0),
    "copy_cast, stepped": (lambda x, b: b[::2].contiguous(), _SOME[::2]),
    "fill": (lambda x, b: ts.empty(12, dtype=ts.bool, device=x.device).fill_(5), np.ones(12, bool)),
    "pointwise, eq": (lambda x, b: x == x, _ODD == _ODD),
    "pointwise, lt": (lambda x, b: x < 1, _ODD < 1),
    "pointwise, not": (lambda x, b: x.logical_not(), _ODD == 0),
    "pointwise, and": (lambda x, b: x.logical_and(b), (_ODD != 0) & _SOME),
    "pointwise, bitnot": (lambda x, b: ~b, ~_SOME),
    "pointwise, add": (lambda x, b: b + b, _SOME),
    "pointwise, select": (lambda x, b: ts.where(b, x > 1, b), np.where(_SOME, _ODD > 1, _SOME)),
    "reduce, any": (lambda x, b: b.reshape(3, 4).any(1), _SOME.reshape(3, 4).any(1)),
    "reduce, any of numbers": (lambda x, b: x.reshape(3, 4).any(0), (_ODD != 0).reshape(3, 4).any(0)),
    "reduce, any of integers": (
        lambda x, b: made_of_high_bits(x).reshape(6, 2).any(1),
        (_HIGH != 0).reshape(6, 2).any(1),
    ),
    "pointwise, not of integers": (lambda x, b: made_of_high_bits(x).logical_not(), _HIGH == 0),
    "reduce, all": (lambda x, b: x.reshape(3, 4).all(1), (_ODD != 0).reshape(3, 4).all(1)),
    "reduce, max": (lambda x, b: b.reshape(3, 4).amax(1), _SOME.reshape(3, 4).any(1)),
    "scatter": (
        lambda x, b: ts.zeros(12, dtype=ts.bool, device=x.device).scatter(0, ts.arange(11, -1, -1, device=x.device), b),
        _SOME[::-1],
    ),
    "gather": (lambda x, b: b[ts.arange(11, -1, -1, device=x.device)], _SOME[::-1]),
    "sort": (lambda x, b: b.sort().values, np.sort(_SOME)),
}


@pytest.mark.parametrize("name", TRUTH)
def test_truth_is_0_or_1(name: str, card: Card, record: Record) -> None:
    """A bool is the byte 0 or 1, not 255 and not what a number's low byte happens to be."""
    record.case(op=name, dtype="bool", direction="edges")
    call, wanted = TRUTH[name]
    found = call(real(_ODD, card), made(_SOME, "bool", card))
    assert found.dtype is ts.bool
    expect(found.contiguous().view(ts.uint8), wanted.astype(np.uint8), f"{name} of bool", "bytes of 12 elements", card)


@pytest.mark.parametrize("byte", (2, 128, 255))
def test_truth_is_not_0(byte: int, card: Card, record: Record) -> None:
    """Memory that is seen as bool may hold other bytes: a reduction takes them for true, as a copy does."""
    record.case(op="reduce", dtype="bool", direction="edges")
    some = (np.arange(12).reshape(3, 4) > 3) * np.uint8(byte)
    x = made(some, "uint8", card).view(ts.bool)
    for name, found, wanted in (
        ("any", x.any(1), [False, True, True]),
        ("all", x.all(1), [False, True, True]),
        ("any", x.any(), True),
    ):
        expect(found, np.array(wanted), f"reduce, {name} of bool", f"bytes 0 and {byte}", card)


# --- what memory is filled with ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_fills_with_no_numbers(dtype: str, card: Card, record: Record) -> None:
    """Infinity is not the largest number, NaN is none, and zero has a sign."""
    record.case(op="fill", dtype=dtype, direction="edges")
    card.needs(dtype)
    for value in (np.inf, -np.inf, np.nan, -0.0, 2.0**-14):
        for count in (1, 7, 65):
            wanted, where = np.full(count, value), f"{count} elements of {value}"
            x = ts.full((2 * count,), 3.0, dtype=getattr(ts, dtype), device=card.device)
            x[:count].fill_(value)
            expect(x[:count], wanted, f"fill of {dtype}", f"{where}, contiguous", card)
            x[::2].fill_(value)
            expect(x[::2], wanted, f"fill of {dtype}", f"{where}, stepped", card)


# --- large integers ---------------------------------------------------------------------------------------------------

_BIG = 2**53 + 1  # the first whole number that float64 does not hold
_BIGS = np.array([_BIG, -_BIG, _BIG + 2, 2**62 + 1, -(2**62) - 3, 2**63 - 1, -(2**63), 7])


def _scattered() -> Any:
    with np.errstate(over="ignore"):
        wanted, at = _BIGS.copy(), np.abs(_BIGS) % 2
    np.maximum.at(wanted, at, _BIGS)
    return wanted


LARGE: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "fill": (lambda x: ts.full((5,), _BIG, dtype=ts.int64, device=x.device), np.full(5, _BIG)),
    "fill, negative": (lambda x: ts.empty_like(x).fill_(-_BIG - 2), np.full(8, -_BIG - 2)),
    "fill, largest": (lambda x: ts.empty_like(x).fill_(2**63 - 1), np.full(8, 2**63 - 1)),
    "iota": (lambda x: ts.arange(_BIG, _BIG + 6, device=x.device), np.arange(_BIG, _BIG + 6)),
    "iota, by steps": (lambda x: ts.arange(0, 5 * _BIG, _BIG, device=x.device), np.arange(5) * _BIG),
    "copy_cast": (lambda x: x[::2].contiguous(), _BIGS[::2]),
    "pointwise, add": (lambda x: x + _BIG, _BIGS + _BIG),
    "pointwise, lt": (lambda x: x < _BIG + 2, _BIGS < _BIG + 2),
    "pointwise, lt of two": (lambda x: x < x + 1, _BIGS != 2**63 - 1),
    "pointwise, eq of two": (lambda x: x == x + 1, np.zeros(8, bool)),
    "pointwise, mul": (lambda x: x * 3, _BIGS * 3),
    "pointwise, div": (lambda x: x // 7, _BIGS // 7),
    "pointwise, max": (lambda x: ts.maximum(x, x.flip(0)), np.maximum(_BIGS, _BIGS[::-1])),
    "reduce, sum": (lambda x: x[:3].sum(), _BIGS[:3].sum()),
    "reduce, max": (lambda x: x[:3].amax(), _BIGS[:3].max()),
    "reduce, argmax": (lambda x: x[:3].argmax(), _BIGS[:3].argmax()),
    "reduce, prod": (lambda x: (x[:6] % 1_000_003).prod(), (_BIGS[:6] % 1_000_003).prod()),
    "copy_cast to float64": (lambda x: x.double(), _BIGS.astype(np.float64)),
    "copy_cast to int32": (lambda x: x.to(ts.int32), _BIGS.astype(np.int32)),
    "matmul": (lambda x: x.reshape(2, 4) @ (x % 5).reshape(4, 2), _BIGS.reshape(2, 4) @ (_BIGS % 5).reshape(4, 2)),
    "scatter, max": (lambda x: x.scatter_reduce(0, x.abs() % 2, x, "amax"), _scattered()),
    "scan": (lambda x: x[:3].cumsum(0), _BIGS[:3].cumsum()),
    "sort": (lambda x: x.sort().values, np.sort(_BIGS)),
    "gather": (lambda x: x[ts.arange(7, -1, -1, device=x.device)], _BIGS[::-1]),
    "scatter, add": (lambda x: x.scatter_add(0, ts.arange(8, device=x.device), x % 2), _BIGS + _BIGS % 2),
}


@pytest.mark.parametrize("name", LARGE)
def test_beyond_what_floats_hold(name: str, card: Card, record: Record) -> None:
    """Integers beyond 2^53 keep every bit."""
    record.case(op=name, dtype="int64", direction="edges")
    card.needs(*(["float64"] if "float64" in name else []))
    with np.errstate(over="ignore"):
        call, wanted = LARGE[name]
    expect(call(made(_BIGS, "int64", card)), wanted, f"{name} of int64", "beyond 2^53", card)


# --- long sums --------------------------------------------------------------------------------------------------------

PRODUCTS = ((3, 2049, 5), (1, 2049, 1), (17, 4096, 33), (65, 31, 65), (2, 1, 3), (4, 0, 6), (1, 0, 1))


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_products(dtype: str, card: Card, record: Record) -> None:
    """Sums are longer than the dtype counts: they are added up in compute_dtype. Of no products, they are zero."""
    record.case(op="matmul", dtype=dtype, direction="edges")
    card.needs(dtype)
    for m, k, n in PRODUCTS:
        a, b = np.ones((m, k)), np.ones((k, n))
        a[:, ::3], b[:, : n // 2] = 2, -1
        bias = np.arange(n, dtype=np.float64)
        x, y, z = (there(v, dtype, card) for v in (a, b, bias))
        subject, what = f"matmul of {dtype}", f"{m} x {k} @ {k} x {n}, contiguous"
        expect(ts.mm(x, y), rounded(a @ b, dtype), subject, what, card)
        expect(ts.addmm(z, x, y), rounded(a @ b + bias, dtype), subject, f"{what}, with a third operand", card, ulp=1)
        expect(ts.bmm(x[None], y[None])[0], rounded(a @ b, dtype), subject, f"{what}, batched", card)
        kept = there(np.full((m, n), 7.0), dtype, card)
        expect(ts.mm(x, y, out=kept), rounded(a @ b, dtype), subject, f"{what}, over other values", card)
        turned = there(np.ascontiguousarray(b.T), dtype, card).t()
        expect(ts.mm(x, turned), rounded(a @ b, dtype), subject, what.replace("contiguous", "transposed"), card)


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_products_of_nothing(dtype: str, card: Card, record: Record) -> None:
    """K may be 0: the kernel, which the core calls by itself here, writes zeros, or what it is to add to them."""
    record.case(op="matmul", dtype=dtype, direction="edges")
    card.needs(dtype)
    for m, n in ((4, 6), (1, 1), (33, 129)):
        a, b = (ts.empty(*shape, dtype=getattr(ts, dtype), device=card.device) for shape in ((m, 0), (0, n)))
        add = np.arange(m * n).reshape(m, n) % 5
        for third, wanted in ((None, np.zeros((m, n))), (there(add, dtype, card), add)):
            kept = there(np.full((m, n), 7.0), dtype, card)
            if ts._native._run_matmul_kernel(kept, a, b, third):
                what = f"{m} x 0 @ 0 x {n}{', with a third operand' if third is not None else ''}"
                expect(kept, wanted, f"matmul of {dtype}", what, card)
            else:
                assert third is not None, f"matmul of {dtype} on {card.name} declines {m} x 0 @ 0 x {n}: K may be 0"


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_long_sums(dtype: str, card: Card, record: Record) -> None:
    """Of halves, more than they count to: in compute_dtype, rounded once."""
    record.case(op="reduce", dtype=dtype, direction="edges")
    card.needs(dtype)
    ones = np.ones((3, 4100))
    x = there(ones, dtype, card)
    expect(x.sum(1), rounded(ones.sum(1), dtype), f"reduce, sum of {dtype}", "rows of 4100", card)
    expect(x.sum(), rounded(ones.sum(), dtype), f"reduce, sum of {dtype}", "3 x 4100", card)
    expect(x.t().sum(0), rounded(ones.sum(1), dtype), f"reduce, sum of {dtype}", "columns of 4100, transposed", card)
    expect(x.cumsum(1), rounded(ones.cumsum(1), dtype), f"scan, sum of {dtype}", "rows of 4100", card)
    # Halves beside numbers that would swallow them, were sums kept in the dtype, in whatever order they are added.
    small = np.array([2048.0, *[0.5] * 61, -2048.0, 0.5])
    found = there(small, dtype, card)
    expect(found.sum(), small.sum(), f"reduce, sum of {dtype}", "64 elements, of which two are large", card)
    expect(found.mean(), rounded(small.mean(), dtype), f"reduce, mean of {dtype}", "64 elements, two large", card)


MANY = (255, 257, 1025, 4097, 65_537, 70_001)


@pytest.mark.parametrize("dtype", ("float32", "int64", "int32"))
def test_scans_carry(dtype: str, card: Card, record: Record) -> None:
    """From block to block, in rows of any length."""
    record.case(op="scan", dtype=dtype, direction="edges")
    card.needs(dtype)
    for count in MANY:
        rows = 1 if count > 60_000 else 3
        values = (np.arange(rows * count) * 7919 % 13 - 5.0).reshape(rows, count)
        x, what = there(values, dtype, card), f"{rows} rows of {count}"
        expect(x.cumsum(1), values.cumsum(1), f"scan, sum of {dtype}", what, card)
        values[:, count - 2] = 9
        x = there(values, dtype, card)
        found, wanted = x.cummax(1), np.maximum.accumulate(values, 1)
        expect(found.values, wanted, f"scan, max of {dtype}", what, card)
        last = np.maximum.accumulate(np.where(values == wanted, np.arange(count), 0), 1)
        expect(found.indices, last, f"scan, positions of max of {dtype}", what, card)
        signs = np.where(np.arange(count) % 5 == 2, -1.0, 1.0)[None]
        expect(
            there(signs, dtype, card).cumprod(1), signs.cumprod(1), f"scan, prod of {dtype}", f"1 row of {count}", card
        )


@pytest.mark.parametrize("dtype", ("float32", "int64", "uint8"))
def test_reductions_of_many(dtype: str, card: Card, record: Record) -> None:
    """Beyond 2^16 elements in a row, and beyond 2^16 rows."""
    record.case(op="reduce", dtype=dtype, direction="edges")
    card.needs(dtype)
    for shape in ((65_537,), (2, 70_001), (65_537, 2), (70_001, 3)):
        values = (np.arange(np.prod(shape)) * 7919 % 11).reshape(shape).astype(np.float64)
        values.flat[-1] = 12
        x, what = there(values, dtype, card), " x ".join(map(str, shape))
        for dim in range(len(shape)):
            expect(x.sum(dim), values.sum(dim), f"reduce, sum of {dtype}", f"dim {dim} of {what}", card)
            expect(x.amax(dim), values.max(dim), f"reduce, max of {dtype}", f"dim {dim} of {what}", card)
            expect(x.argmax(dim), values.argmax(dim), f"reduce, argmax of {dtype}", f"dim {dim} of {what}", card)
        low = values + 1
        low.flat[-1] = 0
        x_low = there(low, dtype, card)
        for dim in range(len(shape)):
            expect(x_low.argmin(dim), low.argmin(dim), f"reduce, argmin of {dtype}", f"dim {dim} of {what}", card)
        expect(x.sum(), values.sum(), f"reduce, sum of {dtype}", what, card)
        expect((x > 11).any(), np.array(True), f"reduce, any of {dtype}", what, card)


@pytest.mark.parametrize("dtype", ("float32", "int64"))
def test_rows_and_batches_of_many(dtype: str, card: Card, record: Record) -> None:
    """Beyond 2^16 rows of scans and sorts, 2^16 products, and 2^16 elements of a row that is sorted."""
    record.case(op="sort", dtype=dtype, direction="edges")
    card.needs(dtype)
    rows = 65_539
    values = (np.arange(3 * rows) * 7919 % 11 - 3.0).reshape(rows, 3)
    x, what = there(values, dtype, card), f"{rows} rows of 3, contiguous"
    expect(x.cumsum(1), values.cumsum(1), f"scan, sum of {dtype}", what, card)
    expect(x.sort(1).values, np.sort(values, 1), f"sort of {dtype}", what, card)
    long = np.arange(70_001) * 7919 % 70_001.0
    found: Any = ts.sort(there(long, dtype, card), stable=True)
    expect(found.indices, np.argsort(long), f"sort of {dtype}, positions", "1 row of 70001, contiguous", card)
    if dtype == "float32":
        a = values[:, :2, None] * values[:, None, 1:]
        m, what = there(a, dtype, card), f"{rows} products of 2 x 2 @ 2 x 2, contiguous"
        expect(m @ m, a @ a, f"matmul of {dtype}", what, card)


@pytest.mark.conformance(slow=True)
def test_reductions_of_millions(card: Card, record: Record) -> None:
    """Beyond 2^24 elements: more than float32 counts, and more than most grids have items."""
    record.case(op="reduce", dtype="uint8", direction="edges")
    card.needs("uint8")
    count = (1 << 24) + 3
    x = ts.ones(count, dtype=ts.uint8).to(card.device)
    x[count - 2] = 5
    what = f"{count} elements"
    expect(x.sum(), np.array(count + 4), "reduce, sum of uint8", what, card)
    expect(x.amax(), np.array(5), "reduce, max of uint8", what, card)
    expect(x.argmax(), np.array(count - 2), "reduce, argmax of uint8", what, card)
    expect((x > 4).any(), np.array(True), "reduce, any of uint8", what, card)


@pytest.mark.conformance(slow=True)
def test_sums_of_millions(card: Card, record: Record) -> None:
    """The same of float32, whose sums are rounded."""
    record.case(op="reduce", dtype="float32", direction="edges")
    card.needs("uint8", "float32")
    count = (1 << 24) + 3
    if 0 < int(card.properties["max_allocation"]) < 4 * count:
        pytest.skip("the device has no block of that many numbers")
    x = ts.ones(count, dtype=ts.uint8).to(card.device)
    x[count - 2] = 5
    wanted = np.array(float(count + 4))
    expect(x.float().sum().round(), wanted, "reduce, sum of float32", f"{count} elements", card, ulp=4)


# --- ties -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("float32", "int64", "uint8", "float16"))
def test_ties(dtype: str, card: Card, record: Record) -> None:
    """Of equal elements, the first is the largest; sorting leaves them in their order."""
    record.case(op="sort", dtype=dtype, direction="edges")
    card.needs(dtype)
    for count in (2, 100, 1025, 5000):
        same, few = np.full((2, count), 3.0), (np.arange(2 * count) * 7919 % 7 % 3.0).reshape(2, count)
        for values, kind in ((same, "equal elements"), (few, "elements of three values")):
            x, what = there(values, dtype, card), f"rows of {count} {kind}"
            expect(x.argmax(1), values.argmax(1), f"reduce, argmax of {dtype}", what, card)
            expect(x.argmin(1), values.argmin(1), f"reduce, argmin of {dtype}", what, card)
            expect(x.argmax(), np.array(values.argmax()), f"reduce, argmax of {dtype}", f"two {what}", card)
            for down in (False, True):
                found: Any = ts.sort(x, dim=1, descending=down, stable=True)
                order = np.argsort(-values if down else values, 1, kind="stable")
                subject = f"sort{', descending' * down} of {dtype}"
                expect(found.values, np.take_along_axis(values, order, 1), subject, what, card)
                expect(found.indices, order, f"{subject}, positions", what, card)
