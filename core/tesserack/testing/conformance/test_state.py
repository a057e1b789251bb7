"""What a kernel keeps from call to call answers the right calls only: programs, plans and prepared steps by all that
they depend on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.backends.recording import record as recorded
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.exactly import expect, made, rounded

# Narrow, wide, integers, and back to where it began.
ORDER = ("float32", "float64", "int64", "float16", "int32", "uint8", "float32")
_A = np.arange(60).reshape(6, 10) * 7 % 11
_B = np.arange(60).reshape(6, 10) * 3 % 5 + 1

# The same sizes, in other ways: on two matrices, and the same on arrays.
FORMS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "stepped": lambda x: x[:, ::2],
    "transposed": lambda x: x.T if isinstance(x, np.ndarray) else x.t(),
    "broadcast": lambda x: x[:1],
    "of fewer elements": lambda x: x[:3, :3],
    "of one element": lambda x: x[2, 3],
}
Op = tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]
PROGRAMS: dict[str, Op] = {
    "add": (lambda a, b: a + b, lambda a, b: a + b),
    "mul": (lambda a, b: a * b, lambda a, b: a * b),
    "add a number": (lambda a, b: a + 3, lambda a, b: a + 3),
    "add another number": (lambda a, b: a + 5, lambda a, b: a + 5),
    "maximum": (lambda a, b: ts.maximum(a, b), np.maximum),
    "lt": (lambda a, b: a < b, lambda a, b: a < b),
    "where": (lambda a, b: ts.where(a < b, a, b), np.minimum),
    "floor_divide": (lambda a, b: a // b, lambda a, b: a // b),
    "square": (lambda a, b: a * a, lambda a, b: a * a),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_many_dtypes(name: str, card: Card, record: Record) -> None:
    """A program is compiled for dtypes, layouts and numbers of operands: its id alone does not tell them apart."""
    record.case(op="pointwise", dtype="", direction="state")
    call, wanted = PROGRAMS[name]
    before = "nothing"
    for dtype in ORDER:
        if not card.supports(dtype):
            continue
        a, b = (made(x.astype(dtype), dtype, card) for x in (_A, _B))
        for form, see in FORMS.items():
            what = f"{form}, after the same program of {before}"
            array = wanted(see(_A.astype(dtype)), _B.astype(dtype)[:1, :1] if form == "broadcast" else see(_B))
            found = call(see(a), b[:1, :1] if form == "broadcast" else see(b))
            kind = "bool" if array.dtype == bool else dtype
            expect(found, array.astype(kind), f"pointwise, {name} of {dtype}", what, card)
            before = f"{dtype}, {form}"


def test_programs_of_other_constants(card: Card, record: Record) -> None:
    """Programs of the same instructions that differ by a constant alone are two."""
    record.case(op="pointwise", dtype="", direction="state")
    for dtype in ("float32", "float64", "float32"):
        if not card.supports(dtype):
            continue
        x = made(_A.astype(dtype), dtype, card)
        for turn in range(2):
            for name, factor in (("deg2rad", np.pi / 180), ("rad2deg", 180 / np.pi)):
                what = f"6 x 10, contiguous, {'again, ' * turn}among programs that differ by a constant alone"
                found = getattr(ts, name)(x)
                expect(found, rounded(_A * factor, dtype), f"pointwise, {name} of {dtype}", what, card, ulp=2)


CALLS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "copy_cast": (lambda x: x.t().contiguous(), lambda a: a.T),
    "fill": (lambda x: ts.empty_like(x).fill_(len(x)), lambda a: np.full_like(a, len(a))),
    "iota": (lambda x: ts.arange(len(x), 3 * len(x), 2, dtype=x.dtype, device=x.device), lambda a: _iota(a)),
    "reduce, sum": (lambda x: x.sum(1), lambda a: a.sum(1)),
    "reduce, max": (lambda x: x.amax(1), lambda a: a.max(1)),
    "reduce, sum of columns": (lambda x: x.sum(0), lambda a: a.sum(0)),
    "reduce, argmax": (lambda x: x.argmax(1), lambda a: a.argmax(1)),
    "reduce, argmin": (lambda x: x.argmin(1), lambda a: a.argmin(1)),
    "scan, sum": (lambda x: x.cumsum(1), lambda a: a.cumsum(1)),
    "scan, max": (lambda x: x.cummax(1).values, lambda a: np.maximum.accumulate(a, 1)),
    "matmul": (lambda x: (x % 3) @ (x.t() % 3), lambda a: (a % 3) @ (a.T % 3)),
    "gather": (lambda x: x.gather(1, x.long() % 4), lambda a: np.take_along_axis(a, a.astype(int) % 4, 1)),
    "gather, rows": (lambda x: x.gather(0, x.long() % 4), lambda a: np.take_along_axis(a, a.astype(int) % 4, 0)),
    "scatter": (
        lambda x: ts.zeros_like(x).scatter(1, ts.arange(x.shape[1], device=x.device).flip(0).expand(x.shape), x),
        lambda a: a[:, ::-1],
    ),
    "scatter, add": (
        lambda x: ts.zeros_like(x).scatter_add(1, ts.zeros_like(x).long(), x % 2),
        lambda a: np.concatenate(((a % 2).sum(1, keepdims=True), 0 * a[:, 1:]), 1),
    ),
    "sort": (lambda x: x.sort(1).values, lambda a: np.sort(a, 1)),
    "sort, descending": (lambda x: x.sort(1, descending=True).values, lambda a: np.sort(a, 1)[:, ::-1]),
}


def _iota(a: Any) -> Any:
    return np.arange(len(a), 3 * len(a), 2)


SHAPES = ((6, 10), (10, 6), (5, 12), (60, 1))


def test_kernels_of_many_dtypes(card: Card, record: Record) -> None:
    """One kernel after the other, in dtypes and sizes that change: a plan, a compiled kernel or a grid that is kept is
    kept by all of them, and by opcodes and parameters."""
    record.case(op="", dtype="", direction="state")
    before = "nothing"
    for dtype in ORDER:
        for shape in SHAPES:
            for name, (call, wanted) in CALLS.items():
                if not card.supports(dtype) or (shape[1] < 4 and "gather" in name):
                    continue
                if dtype in ("uint8", "float16") and name in ("matmul", "scan, sum"):
                    continue
                if min(shape) < 4 and name == "gather, rows":
                    continue
                array = _A.reshape(shape).astype(dtype)
                found = call(made(array, dtype, card))
                expected = np.asarray(wanted(array)).astype(str(found.dtype)[10:])
                what = f"{shape[0]} x {shape[1]}, after {before}"
                expect(found, expected, f"{name} of {dtype}", what, card)
                before = f"{dtype}, {shape[0]} x {shape[1]}"


# As they lie: without a copy in between.
IN_PLACE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = CALLS | {
    "pointwise": (lambda x: x + x, lambda a: a + a),
    "matmul": (lambda x: x @ x.t(), lambda a: a @ a.T),
    "gather": (lambda x: x.gather(1, _places(x)), lambda a: a[:, ::-1]),
}


def _places(x: Any) -> Any:
    return ts.arange(x.shape[1] - 1, -1, -1, device=x.device).expand(x.shape)


@pytest.mark.parametrize("where", ["elsewhere in its block", "where it was"])
def test_operands_of_one_size(where: str, card: Card, record: Record) -> None:
    """The same sizes, other numbers: in another part of one block, and written over those of before. No operand is
    known again by its sizes, nor by its address."""
    record.case(op="", dtype=card.real, direction="state")
    arrays = [(_A * 7 + turn * 3) % 5 for turn in range(3)]
    held = made(np.concatenate(arrays).astype("int64"), "int64", card).to(getattr(ts, card.real))
    x = held[:6].clone()
    for turn, array in enumerate(arrays):
        if where == "elsewhere in its block":
            x = held[6 * turn : 6 * turn + 6]
        elif turn:
            x.copy_(held[6 * turn : 6 * turn + 6])
        for name, (call, wanted) in IN_PLACE.items():
            what = f"6 x 10, contiguous, of other numbers than before, {where}, turn {turn}"
            expect(call(x), np.asarray(wanted(array)), f"{name} of {card.real}", what, card)


STEPS: dict[str, Callable[[Any], Any]] = {
    "pointwise": lambda x: x * 3 + 1,
    "reduce": lambda x: x.sum(1),
    "scan": lambda x: x.cumsum(1),
    "matmul": lambda x: x @ x.t(),
    "copy_cast": lambda x: x.t().contiguous(),
    "copy_within": lambda x: x.clone() + 1,
    "gather": lambda x: x.flip(0).gather(1, x.long() % 3),
    "sort": lambda x: x.sort(1).values,
}


@pytest.mark.parametrize("name", STEPS)
def test_prepared_steps_of_many_dtypes(name: str, card: Card, record: Record) -> None:
    """Recordings of one function in several dtypes and sizes, replayed in turn with other numbers."""
    record.case(op=name, dtype="", direction="state")
    made_of = []
    for dtype in dict.fromkeys((card.real, "float64", "int64", "int32")):
        if card.supports(dtype) and not (name == "matmul" and "int" in dtype):
            for shape in ((4, 6), (6, 9)):
                x = ts.ones(shape, dtype=getattr(ts, dtype), device=card.device)
                try:
                    STEPS[name](x)
                    made_of.append((dtype, shape, x, recorded(lambda x=x: STEPS[name](x), card.device)))  # type: ignore[misc]
                except RuntimeError as error:
                    pytest.skip(f"not recorded: {error}")
    for turn in range(3):
        for dtype, shape, x, kept in made_of:
            values = (np.arange(shape[0] * shape[1]) * (7 + turn) % 5).astype(dtype).reshape(shape)
            x.copy_(ts.from_numpy(values))
            found, expected = kept.replay(), STEPS[name](ts.from_numpy(values))
            what = f"{shape[0]} x {shape[1]}, replayed among recordings of other dtypes and sizes"
            expect(found, expected.numpy(), f"{name} of {dtype}", what, card)


SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "scatter, add": lambda x, at: ts.zeros(7, device=x.device).scatter_add(0, at, x),
    "scatter, add by index_add": lambda x, at: ts.zeros(7, device=x.device).index_add(0, at, x),
    "scatter, add by index_put": lambda x, at: ts.zeros(7, device=x.device).index_put((at,), x, accumulate=True),
    "reduce, sum": lambda x, at: x.sum(),
    "scan, sum": lambda x, at: x.cumsum(0),
    "matmul": lambda x, at: x[:19_600].reshape(140, 140) @ x[:19_600].reshape(140, 140),
}


@pytest.mark.parametrize("name", SUMS)
def test_determinism_where_it_is_asked_for(name: str, card: Card, record: Record) -> None:
    """The same bits in every run, once use_deterministic_algorithms(True) asks for them."""
    record.case(op=name, dtype="float32", direction="state")
    count = 20_000
    values = (np.random.default_rng(4).normal(size=count) * 10.0 ** (np.arange(count) % 7)).astype(np.float32)
    x, at = made(values, "float32", card), made(np.arange(count) * 7919 % 7, "int64", card)
    was = ts.are_deterministic_algorithms_enabled()
    ts.use_deterministic_algorithms(True)
    try:
        first = SUMS[name](x, at).cpu().numpy().tobytes()
        for again in range(12):
            if SUMS[name](x, at).cpu().numpy().tobytes() != first:
                pytest.fail(
                    f"{name} of float32 on {card.name}: {count} elements: run {again + 2} differs from the first, "
                    "where determinism was asked for (TS_C_DETERMINISTIC): have another way, or decline",
                    pytrace=False,
                )
    finally:
        ts.use_deterministic_algorithms(was)
