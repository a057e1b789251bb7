"""Every operator at every dtype it takes and in every memory layout, against NumPy in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.conformance.areas import entry_point
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.covering import layouts_of, leads_quickly
from tesserack.testing.conformance.values import MADE, NEAR_ONE, SUMS, TIED, Findings, Measured, expectation, measure
from tesserack.testing.references import REFERENCES

# They need, or read, one layout.
CONTIGUOUS_ONLY = {"view", "view_as", "as_strided", "as_strided_"}
# They update running statistics, which cannot be expanded.
WRITING = {"batch_norm", "instance_norm"}

EVERY_LAYOUT = (*cases.LAYOUTS, "expanded")
REPETITIONS = 20

RECORDS = samples.records()
NAMES = [name for name, record in RECORDS.items() if record["variant"] == "functional" and samples.samples(name)]


def case(name: str, dtype: str) -> Any:
    """One test: of the area "required" if the operator stands for a required kernel."""
    area = "required" if entry_point(name) else "operators"
    return pytest.param(name, dtype, marks=pytest.mark.conformance(area=area))


PAIRS = [(n, d) for n in NAMES for d in cases.DTYPES if any(cases.claims(n, s, d) for s in samples.samples(n))]
CASES = [case(n, d) for n, d in PAIRS]
SPECIAL = [
    case(n, d)
    for n in NAMES
    for d in ("float64", "float32")
    if n in REFERENCES and samples.special_values(n) and samples.dtypes(n) not in ("integral", "integer")
]


def layouts(name: str, sample: samples.Sample, wanted: Sequence[str]) -> list[tuple[str, samples.Sample]]:
    """The ways the sample's tensors may lie in memory, of those wanted, with the sample fit for each."""
    if name in CONTIGUOUS_ONLY:
        return [("contiguous", sample)]
    ways = [(layout, sample) for layout in cases.LAYOUTS if layout in wanted]
    fixed = "!" in RECORDS[name]["schema"] or name in WRITING or name in TIED or "expanded" not in wanted
    expanded = None if fixed else cases.expand(sample)
    return [*ways, ("expanded", expanded)] if expanded else ways


def lead(name: str, card: Card) -> str:
    """The dtype at which an operator is tried in every layout."""
    claimed = [dtype for n, dtype in PAIRS if n == name]
    return next((dtype for dtype in (card.real, "int64") if dtype in claimed), claimed[0])


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values(name: str, dtype: str, card: Card, record: Record, thorough: bool, quick: bool) -> None:
    """Shape and values of every sample, in the layouts that are tried at this dtype."""
    leading = lead(name, card) if leads_quickly(name) or not quick else ""
    wanted = EVERY_LAYOUT if thorough else layouts_of(name, dtype, leading)
    record.case(op=name, dtype=dtype, direction="forward")
    card.needs(dtype, MADE.get(name, dtype))
    findings = Findings(f"{name} of {dtype} on {card.name}")
    for sample in samples.samples(name):
        if cases.claims(name, sample, dtype):
            check_sample(name, sample, dtype, card, findings, wanted)
    record.case(error=findings.error, ulp=findings.ulp, waits=findings.waits.count)
    verdict = findings.verdict()
    entry = entry_point(name)
    if entry in ts.backends.fallbacks():
        verdict = verdict or f"the required kernel {entry!r} ran on the cpu instead, for {name} of {dtype}"
    if verdict:
        pytest.fail(verdict, pytrace=False)


def check_sample(
    name: str,
    sample: samples.Sample,
    dtype: str,
    card: Card,
    findings: Findings,
    wanted: Sequence[str],
) -> None:
    """The layouts wanted of one sample."""
    plain = expectation(name, sample, dtype)
    for layout, laid in layouts(name, sample, wanted):
        expected = plain if laid is sample else expectation(name, laid, dtype)

        def attempt(
            laid: samples.Sample = laid, layout: str = layout, expected: list[Any] = expected, twice: bool = False
        ) -> Measured:
            args, kwargs = cases.build(laid, getattr(ts, dtype), card.device, layout)
            try:
                if twice:
                    cases.call(name, args, kwargs)
                with findings.waits:
                    results = cases.leaves(cases.call(name, args, kwargs))
                return worst(results, expected, name, dtype)
            except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError) as error:
                return Measured(f"raised {type(error).__name__}: {error}")

        measured = attempt()
        if measured.problem and not findings.failed:  # before a cause is named: is it always so?
            findings.repeated(sum(attempt().problem is None for _ in range(REPETITIONS)), REPETITIONS)
        elif not measured.problem and not findings.tried and not name.partition(".")[0].endswith("_"):
            measured = attempt(twice=True)
            findings.kept = measured.problem is not None
        findings.add(layout, laid, measured)


def worst(results: list[Any], expected: list[Any], name: str, dtype: str) -> Measured:
    """The measurement of all results of one call."""
    slack, least = (
        (1.0, float(name in NEAR_ONE)) if RECORDS[name]["pointwise"] else (4.0, float(name.partition(".")[0] in SUMS))
    )
    if len(results) != len(expected):
        return Measured(f"expected {len(expected)} results, got {len(results)}")
    if dtype == "bool" and name in TIED:
        results = results[: 0 if name == "argsort" else 1]
    measured = [measure(result, wanted, slack, least) for result, wanted in zip(results, expected, strict=False)]
    problem = next((m.problem for m in measured if m.problem), None)
    return Measured(problem, max((m.error for m in measured), default=0), max((m.ulp for m in measured), default=0))


@pytest.mark.parametrize(("name", "dtype"), SPECIAL)
def test_special_values(name: str, dtype: str, card: Card) -> None:
    """Infinities, NaN, zeros, tiny and huge numbers come out as in NumPy."""
    card.needs(dtype)
    sample = samples.special_values(name)
    assert sample
    args, _ = cases.build(sample, getattr(ts, dtype), card.device)
    expected = expectation(name, sample, dtype)
    problem = measure(cases.call(name, args, {}), expected[0], least=float(name in NEAR_ONE)).problem
    if problem:
        shown = [item.array.ravel().tolist() for item in sample.inputs()]
        pytest.fail(f"{name} of special values, {dtype} on {card.name}: {problem}; operands {shown}", pytrace=False)


# What keeps the sign of a zero, or makes one: calls on a tensor of negative zeros, and the sign of what they give.
ZEROS: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "clone": (lambda x: x.clone(), True),
    "contiguous": (lambda x: x.reshape(2, 8).t().contiguous(), True),
    "flip": (lambda x: x.flip(0), True),
    "cat": (lambda x: ts.cat((x, x)), True),
    "to another dtype": (lambda x: x.to(ts.float32 if x.dtype != ts.float32 else ts.float16), True),
    "full": (lambda x: ts.full((16,), -0.0, dtype=x.dtype, device=x.device), True),
    "neg": (lambda x: -x, False),
    "abs": (lambda x: x.abs(), False),
    "mul": (lambda x: x * 3, True),
    "div": (lambda x: x / 3, True),
    "add": (lambda x: x + x, True),
    "add of opposites": (lambda x: x + x.abs(), False),
    "sub": (lambda x: x - x.abs(), True),
    "sqrt": (lambda x: x.sqrt(), True),
    "floor": (lambda x: x.floor(), True),
    "ceil": (lambda x: (x - 0.5).ceil(), True),
    "trunc": (lambda x: (x - 0.5).trunc(), True),
    "round": (lambda x: (x - 0.25).round(), True),
    "copysign": (lambda x: ts.zeros_like(x).copysign(x), True),
    "where": (lambda x: ts.where(x == 0, x, x + 1), True),
    "gather": (lambda x: x.gather(0, ts.arange(15, -1, -1, device=x.device)), True),
    "scatter": (lambda x: ts.zeros_like(x).scatter(0, ts.arange(16, device=x.device), x), True),
    "sort": (lambda x: x.sort().values, True),
    "amax": (lambda x: x.reshape(4, 4).amax(1), True),
}


@pytest.mark.conformance(area="required")
@pytest.mark.parametrize("dtype", cases.FLOATING)
@pytest.mark.parametrize("name", ZEROS)
def test_sign_of_zero(name: str, dtype: str, card: Card) -> None:
    """Minus zero is not lost on the way."""
    card.needs(dtype, *(["float32", "float16"] if name == "to another dtype" else []))
    call, negative = ZEROS[name]
    result = call(ts.full((16,), -0.0, dtype=getattr(ts, dtype)).to(card.device)).cpu().double()
    assert (result == 0).all(), f"{name} of minus zeros on {card.name} gave {result.tolist()}"
    signs = result.signbit()
    wanted = "-0.0" if negative else "0.0"
    assert (signs == negative).all(), f"{name} of {dtype} minus zeros on {card.name}: expected {wanted}, got the other"
