"""What is right for the numbers and forms that come first to mind, and wrong beside them: powers of negative numbers,
large integers, signed zeros in order, NaN times zero, sums in several stages, products added to columns."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import expect, made, rounded, there

# --- one instruction --------------------------------------------------------------------------------------------------

_BASES = np.array([-2.0, -3.0, -0.5, -1.0, 0.0, -0.0, 2.0, -np.inf, np.inf])
_EXPONENTS = np.array([3.0, 2.0, -1.0, -2.0, 0.0, 5.0])


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_powers(dtype: str, card: Card, record: Record) -> None:
    """Of negative numbers, zeros of both signs and infinities, by whole exponents: no logarithm has them."""
    record.case(op="pointwise, pow", dtype=dtype, direction="numbers")
    a, b = np.repeat(_BASES, len(_EXPONENTS)), np.tile(_EXPONENTS, len(_BASES))
    found = there(a, dtype, card) ** there(b, dtype, card)
    what = "bases of either sign, whole exponents, contiguous, 54 elements"
    expect(found, rounded(np.power(a, b), dtype), f"pointwise, pow of {dtype}", what, card, ulp=4)


def test_powers_of_integers(card: Card, record: Record) -> None:
    """Exact, beyond what doubles hold, and wrapping around."""
    record.case(op="pointwise, pow", dtype="int64", direction="numbers")
    a, b = np.array([3, -3, 7, -2, 2, 10, 0, -1]), np.array([39, 37, 22, 63, 62, 18, 0, 1 << 40])
    wanted = np.array([pow(int(x), int(y), 1 << 64) if y < 1 << 30 else 1 for x, y in zip(a, b, strict=True)], object)
    exact = np.array([w - (1 << 64) if w >= 1 << 63 else w for w in wanted], np.int64)
    found = made(a, "int64", card) ** made(b, "int64", card)
    expect(found, exact, "pointwise, pow of int64", "beyond 2^53, contiguous, 8 elements", card)


_TAILS: dict[str, tuple[Any, list[float]]] = {
    "erfc": (math.erfc, [1.5, 3.0, 5.0, 7.5, 9.0, -4.0]),
    "expm1": (math.expm1, [1e-5, -1e-5, 1e-9, 0.25, -20.0]),
    "log1p": (math.log1p, [1e-5, -1e-5, 1e-9, -0.5, 1e6]),
    "sigmoid": (lambda v: math.exp(v) / (1 + math.exp(v)), [-5.0, -20.0, -50.0, -80.0, 30.0]),
    "tanh": (math.tanh, [1e-5, -1e-4, 1e-3, 0.1, 8.0]),
    "sinh": (math.sinh, [1e-5, -1e-4, 1e-3, 0.1, 20.0]),
    "asinh": (math.asinh, [1e-5, -1e-3, -1e4, 1e4, -30.0]),
    "atanh": (math.atanh, [1e-5, -1e-4, 0.1, 0.5]),
    "exp2": (lambda v: 2.0**v, [-100.0, -30.0, 0.5, 100.0]),
    "rsqrt": (lambda v: v**-0.5, [1e-30, 1e-10, 3.0, 1e30]),
}


@pytest.mark.parametrize("name", _TAILS)
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_tails(name: str, dtype: str, card: Card, record: Record) -> None:
    """Small results are right to their last digits but a few: no number close to one was subtracted from one."""
    record.case(op="pointwise", dtype=dtype, direction="numbers")
    function, points = _TAILS[name]
    held = rounded(np.array(points), dtype)
    found = getattr(ts, name)(there(held, dtype, card))
    wanted = rounded(np.array([function(float(v)) for v in held]), dtype)
    expect(found, wanted, f"pointwise, {name} of {dtype}", f"its tails, {len(points)} elements", card, ulp=64)


_COUNTS = np.array([0, 1, 7, 8, 15, 31, 32, 33, 40, 63, 64, 70])


@pytest.mark.parametrize("dtype", ("int64", "int32", "int16", "uint8"))
def test_shifts(dtype: str, card: Card, record: Record) -> None:
    """By any count, as shifting one by one would: no bits of the count are left out, and a sign is filled in."""
    record.case(op="pointwise", dtype=dtype, direction="numbers")
    info = np.iinfo(dtype)
    values = [v for v in (1, 5, info.max, info.max // 3, -1, -6, info.min, info.min // 3) if v >= info.min]
    a, b = np.repeat(np.array(values, object), len(_COUNTS)), np.tile(_COUNTS, len(values))
    x, y = made(a.astype(dtype), dtype, card), made(b.astype(dtype), dtype, card)
    what = f"{len(a)} elements, counts up to {_COUNTS.max()}, contiguous"
    right = np.array([int(v) >> int(n) for v, n in zip(a, b, strict=True)], object)
    left = np.array([(int(v) << int(n)) % (1 << info.bits) for v, n in zip(a, b, strict=True)], object)
    left = np.array([int(v) - (1 << info.bits if v > info.max else 0) for v in left], object)
    expect(x >> y, right.astype(dtype), f"pointwise, shr of {dtype}", what, card)
    expect(x << y, left.astype(dtype), f"pointwise, shl of {dtype}", what, card)


_UNSIGNED = np.array([2**63, 2**64 - 2**11, 2**63 + 2**40, 5, 2**62], np.uint64)


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_casts_of_unsigned(dtype: str, card: Card, record: Record) -> None:
    """uint64 has no sign: what its top bit stands for is added, not taken off."""
    record.case(op="copy_cast", dtype=dtype, direction="numbers")
    card.needs(dtype)
    if not card.supports("uint64"):
        pytest.skip("lacks uint64")
    x, target = made(_UNSIGNED, "uint64", card), getattr(ts, dtype)
    subject, exact = f"copy_cast of uint64 to {dtype}", _UNSIGNED.astype(np.float64)
    for layout, found, wanted in (("contiguous", x, exact), ("stepped", x[::2], exact[::2])):
        expect(found.to(target), rounded(wanted, dtype), subject, f"{layout}, {len(wanted)} elements", card)


# --- order ------------------------------------------------------------------------------------------------------------

_CLOSE = np.array([2**53 + 1, 2**53, 2**53 + 2, 2**62, 2**62 + 1, -(2**62) - 1, -(2**62), 2**53 + 3])


def test_order_of_large_integers(card: Card, record: Record) -> None:
    """Numbers of which a double cannot tell one from the next have their places, and their order."""
    record.case(op="reduce", dtype="int64", direction="numbers")
    what = "neighbours beyond 2^53, contiguous, 8 elements"
    for sign in (1, -1):
        values = sign * _CLOSE
        x = made(values, "int64", card)
        expect(x.argmax(), np.array(values.argmax()), "reduce, argmax of int64", what, card)
        expect(x.argmin(), np.array(values.argmin()), "reduce, argmin of int64", what, card)
        expect(x.cummax(0).values, np.maximum.accumulate(values), "scan, max of int64", what, card)
        for down in (False, True):
            order = np.argsort(-values if down else values, kind="stable")
            subject = f"sort{', descending' * down} of int64"
            expect(x.sort(descending=down, stable=True).indices, order, f"{subject}, positions", what, card)


def whole_range(dtype: str) -> Any:
    """From the least to the largest number, in no order."""
    info = np.iinfo(dtype)
    steps = [info.min + (info.max - info.min) * k // 12 for k in (7, 0, 12, 3, 6, 9, 1, 11, 5)]
    return np.array(steps, object).astype(dtype)


_RANGE = "numbers of the whole range, contiguous, 9 elements"


@pytest.mark.parametrize("dtype", ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"))
def test_comparisons_of_the_whole_range(dtype: str, card: Card, record: Record) -> None:
    """What has a sign is compared as such, and nothing else is."""
    record.case(op="", dtype=dtype, direction="numbers")
    values = whole_range(dtype)
    x, y = made(values, dtype, card), made(values[::-1], dtype, card)
    expect(x < y, values < values[::-1], f"pointwise, lt of {dtype}", _RANGE, card)


# Of the wider ones without a sign PyTorch, too, leaves most of this out.
@pytest.mark.parametrize("dtype", ("uint8", "int8", "int16", "int32", "int64"))
def test_order_of_the_whole_range(dtype: str, card: Card, record: Record) -> None:
    """The largest, the least and the order of numbers from the least to the largest of their dtype."""
    record.case(op="", dtype=dtype, direction="numbers")
    values, what = whole_range(dtype), _RANGE
    x, y = made(values, dtype, card), made(values[::-1], dtype, card)
    expect(ts.maximum(x, y), np.maximum(values, values[::-1]), f"pointwise, max of {dtype}", what, card)
    expect(x.amax(), np.array(values.max()), f"reduce, max of {dtype}", what, card)
    expect(x.amin(), np.array(values.min()), f"reduce, min of {dtype}", what, card)
    expect(x.argmax(), np.array(values.argmax()), f"reduce, argmax of {dtype}", what, card)
    expect(x.cummin(0).values, np.minimum.accumulate(values), f"scan, min of {dtype}", what, card)
    for down in (False, True):
        wanted = np.sort(values)[::-1] if down else np.sort(values)
        expect(x.sort(descending=down).values, wanted, f"sort{', descending' * down} of {dtype}", what, card)


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_zeros_keep_their_order(dtype: str, card: Card, record: Record) -> None:
    """Zeros of either sign are equal: sorting leaves them as they stood, and the first is the largest."""
    record.case(op="sort", dtype=dtype, direction="numbers")
    values = np.where(np.arange(130) % 3 == 1, -0.0, 0.0)
    values[[5, 99]] = 1.0, -1.0
    x = there(values, dtype, card)
    for down in (False, True):
        order = np.argsort(-values if down else values, kind="stable")
        subject = f"sort{', descending' * down} of {dtype}, positions"
        found: Any = ts.sort(x, descending=down, stable=True)
        expect(found.indices, order, subject, "zeros of both signs, contiguous, 130 elements", card)
    zeros = there(np.where(np.arange(70) % 2, 0.0, -0.0), dtype, card)
    expect(zeros.argmax(), np.array(0), f"reduce, argmax of {dtype}", "zeros of both signs, 70 elements", card)


_ENDS: dict[str, Callable[[int], Any]] = {
    "all -inf": lambda n: np.full(n, -np.inf),
    "all inf": lambda n: np.full(n, np.inf),
    "a zero, then infinity": lambda n: np.concatenate(([0.0], np.ones(n - 2), [np.inf])),
    "a zero, then NaN": lambda n: np.concatenate((np.ones(n - 2), [0.0, np.nan])),
    "infinity, then numbers": lambda n: np.concatenate(([1.0, np.inf], np.ones(n - 2))),
    "infinities of both signs": lambda n: np.concatenate(([np.inf, 1.0], np.full(n - 2, -np.inf))),
}
Forms = dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]
_EXTREMES: Forms = {
    "reduce, max": (lambda x: x.amax(-1), lambda a: a.max(-1)),
    "reduce, min": (lambda x: x.amin(-1), lambda a: a.min(-1)),
    "reduce, argmax": (lambda x: x.argmax(-1), lambda a: a.argmax(-1)),  # NumPy's first NaN wins
    "scan, max": (lambda x: x.cummax(-1).values, lambda a: np.maximum.accumulate(a, -1)),
    "scan, min": (lambda x: x.cummin(-1).values, lambda a: np.minimum.accumulate(a, -1)),
}
_SUMS: Forms = {
    "reduce, sum": (lambda x: x.sum(-1), lambda a: a.sum(-1)),
    "reduce, prod": (lambda x: x.prod(-1), lambda a: a.prod(-1)),
    "scan, sum": (lambda x: x.cumsum(-1), lambda a: a.cumsum(-1)),
    "scan, prod": (lambda x: x.cumprod(-1), lambda a: a.cumprod(-1)),
}


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_infinities(dtype: str, card: Card, record: Record) -> None:
    """Nothing is larger or smaller: extremes begin there, sums and products go through all, and none is taken off."""
    record.case(op="", dtype=dtype, direction="numbers")
    card.needs(dtype)
    for count, layout in ((3, "contiguous"), (70, "transposed"), (1030, "contiguous")):
        rows = np.stack([make(count) for make in _ENDS.values()])
        x = there(rows.T, dtype, card).t() if layout == "transposed" else there(rows, dtype, card)
        for name, (call, wanted) in (_EXTREMES | _SUMS).items():
            with np.errstate(all="ignore"):
                expected = rounded(wanted(rows), dtype) if name in _SUMS else np.asarray(wanted(rows))
            what = f"{layout}, rows of {count}: {', '.join(_ENDS)}"
            expect(call(x), expected, f"{name} of {dtype}", what, card, ulp=1 if name in _SUMS else 0)


@pytest.mark.parametrize("dtype", ("uint8", "int8", "int16", "int32", "int64"))
def test_ends_of_the_range(dtype: str, card: Card, record: Record) -> None:
    """Where all numbers lie near one end, so does their extreme: it is looked for from the other end on. Sums are
    those of int64."""
    record.case(op="", dtype=dtype, direction="numbers")
    info = np.iinfo(dtype)
    for count in (3, 1030):
        steps = np.arange(count, dtype=dtype) % 3
        rows = np.stack([info.max - steps, info.min + steps, np.full(count, info.max, dtype)]).astype(dtype)
        for name, (call, wanted) in _EXTREMES.items():
            what = f"contiguous, rows of {count} near the largest and the smallest"
            expect(call(made(rows, dtype, card)), np.asarray(wanted(rows)), f"{name} of {dtype}", what, card)
        for name in ("reduce, sum", "scan, sum") if dtype != "int64" else ():
            call, wanted = _SUMS[name]
            expect(call(made(rows, dtype, card)), wanted(rows.astype(np.int64)), f"{name} of {dtype}", what, card)


def test_counts_of_truth(card: Card, record: Record) -> None:
    """Truth values are added up in more than a byte, and in more than two."""
    record.case(op="", dtype="bool", direction="numbers")
    for count in (300, 70_000):
        some = np.arange(2 * count).reshape(2, count) % 7 != 3
        x, what = made(some, "bool", card), f"contiguous, 2 rows of {count}"
        expect(x.sum(1), some.sum(1), "reduce, sum of bool", what, card)
        expect(x.sum(), np.array(some.sum()), "reduce, sum of bool", f"all of {what}", card)
        expect(x.t().sum(0), some.sum(1), "reduce, sum of bool", what.replace("contiguous", "transposed"), card)
        expect(x.cumsum(1), some.cumsum(1), "scan, sum of bool", what, card)


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_nan_of_either_sign(dtype: str, card: Card, record: Record) -> None:
    """What is no number may have its sign bit set, as 0 / 0 has on many processors: it is the greatest all the same."""
    record.case(op="sort", dtype=dtype, direction="numbers")
    card.needs(dtype)
    values = np.array([3.0, -np.inf, np.nan, -1.0, np.inf, 0.5, np.nan, -2.0] * 20)
    x = there(values, dtype, card)
    bits = getattr(ts, f"int{8 * x.element_size()}")
    signs = ts.from_numpy(np.where(np.arange(len(values)) % 8 == 2, -1, 0)).to(bits) << (8 * x.element_size() - 1)
    x = (x.cpu().view(bits) | signs).view(x.dtype).to(card.device)
    what = f"NaN of either sign, contiguous, {len(values)} elements"
    for down in (False, True):
        keys = np.where(np.isnan(values), np.inf, values)
        order = np.lexsort((np.arange(len(values)), np.isnan(values), keys))
        if down:
            order = np.lexsort((np.arange(len(values)), ~np.isnan(values), -keys))
        found: Any = ts.sort(x, descending=down, stable=True)
        expect(found.indices, order, f"sort{', descending' * down} of {dtype}, positions", what, card)
    expect(x.argmax(), np.array(2), f"reduce, argmax of {dtype}", what, card)
    expect(x[2:].amin(), np.array(np.nan), f"reduce, min of {dtype}", what, card)


# --- sums and steps ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("float16", "bfloat16"))
def test_sums_in_stages(dtype: str, card: Card, record: Record) -> None:
    """What lies between the stages of a sum is kept in compute_dtype, and rounded once."""
    record.case(op="reduce", dtype=dtype, direction="numbers")
    card.needs(dtype)
    for count in (1200, 20_000):
        values = rounded(np.sort(np.round(np.random.default_rng(3).normal(size=count) * 64) / 64), dtype)
        row = np.concatenate((values, -values[::-1], [1.0]))  # large parts of either sign, one in all
        x, what = there(np.stack((row, row)), dtype, card), f"2 rows of {len(row)} that cancel"
        expect(x.sum(1), np.ones(2), f"reduce, sum of {dtype}", f"{what}, contiguous", card)
        expect(x.t().sum(0), np.ones(2), f"reduce, sum of {dtype}", f"{what}, transposed", card)
        expect(x.sum(), np.array(2.0), f"reduce, sum of {dtype}", f"all of {what}", card)
    far = there(np.concatenate((np.full(700, 300.0), np.full(700, -300.0), [1.0])), dtype, card)
    what = "1401 elements whose parts are beyond the largest number, contiguous"
    expect(far.sum(), np.array(1.0), f"reduce, sum of {dtype}", what, card)


def test_steps_do_not_add_up(card: Card, record: Record) -> None:
    """Each element is where it is by its number, not by the one before."""
    record.case(op="iota", dtype="float32", direction="numbers")
    card.needs("float32")
    count, step = 100_000, 0.1
    found = ts.arange(0, count * step, step, dtype=ts.float32, device=card.device)[:count]
    what = f"{count} elements, {step} apart"
    expect(found, (np.arange(count) * step).astype(np.float32).astype(np.float64), "iota of float32", what, card, ulp=2)


# --- products ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", cases.FLOATING)
def test_products_of_what_is_no_number(dtype: str, card: Card, record: Record) -> None:
    """Zero times NaN, or times infinity, is NaN: no factor is left out."""
    record.case(op="matmul", dtype=dtype, direction="numbers")
    card.needs(dtype)
    for m, k, n in ((3, 5, 4), (33, 65, 17)):
        a, b = np.zeros((m, k)), np.ones((k, n))
        a[1], b[2, 1], b[k - 1, n - 1] = 1, np.nan, np.inf
        with np.errstate(invalid="ignore"):
            wanted = a @ b
        what = f"{m} x {k} @ {k} x {n} with NaN and infinity, contiguous"
        expect(there(a, dtype, card) @ there(b, dtype, card), wanted, f"matmul of {dtype}", what, card)
        turned = there(np.ascontiguousarray(b.T), dtype, card).t()
        what = what.replace("contiguous", "transposed")
        expect(there(a, dtype, card) @ turned, wanted, f"matmul of {dtype}", what, card)


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_products_with_any_addend(dtype: str, card: Card, record: Record) -> None:
    """Rows, columns, matrices and numbers, also where a row is as long as a column, asked of the kernel itself too."""
    record.case(op="matmul", dtype=dtype, direction="numbers")
    card.needs(dtype)
    for n in (8, 33):
        a, b = (np.arange(n * n).reshape(n, n) * k % 5 - 2.0 for k in (7, 3))
        line = np.arange(n) % 7 - 3.0
        forms = {"a row": line, "a column": line[:, None], "a number": np.array(3.0), "a matrix": a + b.T}
        x, y = there(a, dtype, card), there(b, dtype, card)
        for name, third in forms.items():
            z, what = there(third, dtype, card), f"{n} x {n}, and {name}"
            expect(ts.addmm(z, x, y), rounded(a @ b + third, dtype), f"matmul of {dtype}", what, card, ulp=1)
            kept = ts.zeros(n, n, dtype=x.dtype, device=card.device)
            if ts._native._run_matmul_kernel(kept, x, y, z.expand(n, n)):
                expect(kept, rounded(a @ b + third, dtype), f"matmul of {dtype}", f"{what}, expanded", card, ulp=1)


@pytest.mark.parametrize("dtype", ("float32", "float16"))
def test_products_into_any_place(dtype: str, card: Card, record: Record) -> None:
    """The kernel writes where the strides of its output say, or declines: into columns, with gaps, and nothing else."""
    record.case(op="matmul", dtype=dtype, direction="numbers")
    card.needs(dtype)
    m, k, n = 9, 17, 12
    a, b = np.arange(m * k).reshape(m, k) % 5 - 2.0, np.arange(k * n).reshape(k, n) % 3 - 1.0
    x, y = there(a, dtype, card), there(b, dtype, card)
    for layout in ("transposed", "with gaps"):
        whole = there(np.full((n, m) if layout == "transposed" else (m, 2 * n), 7.0), dtype, card)
        place = whole.t() if layout == "transposed" else whole[:, ::2]
        if not ts._native._run_matmul_kernel(place, x, y, None):
            continue
        what = f"{m} x {k} @ {k} x {n}, output {layout}"
        expect(place, a @ b, f"matmul of {dtype}", what, card)
        if layout == "with gaps":
            expect(whole[:, 1::2], np.full((m, n), 7.0), f"matmul of {dtype}", f"{what}, between its elements", card)
