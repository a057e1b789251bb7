"""Every operator at every dtype it takes and in every memory layout, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import pytest

import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.conformance.areas import entry_point
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.values import TIED, Findings, Measured, expectation, measure
from tesserack.testing.references import REFERENCES

# They need, or read, one layout.
CONTIGUOUS_ONLY = {"view", "view_as", "as_strided", "as_strided_"}
# They update running statistics, which cannot be expanded.
WRITING = {"batch_norm", "instance_norm"}

RECORDS = samples.records()
NAMES = [name for name, record in RECORDS.items() if record["variant"] == "functional" and samples.samples(name)]


def case(name: str, dtype: str) -> Any:
    """One test: of the area "required" if the operator stands for a required kernel."""
    area = "required" if entry_point(name) else "operators"
    return pytest.param(name, dtype, marks=pytest.mark.conformance(area=area))


CASES = [case(n, d) for n in NAMES for d in cases.DTYPES if any(cases.claims(n, s, d) for s in samples.samples(n))]
SPECIAL = [
    case(n, d)
    for n in NAMES
    for d in ("float64", "float32")
    if n in REFERENCES and samples.special_values(n) and samples.dtypes(n) not in ("integral", "integer")
]


def layouts(name: str, sample: samples.Sample) -> list[tuple[str, samples.Sample]]:
    """The ways the sample's tensors may lie in memory, with the sample fit for each."""
    if name in CONTIGUOUS_ONLY:
        return [("contiguous", sample)]
    ways = [(layout, sample) for layout in cases.LAYOUTS]
    fixed = "!" in RECORDS[name]["schema"] or name in WRITING or name in TIED
    expanded = None if fixed else cases.expand(sample)
    return [*ways, ("expanded", expanded)] if expanded else ways


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_values(name: str, dtype: str, card: Card, record: Record) -> None:
    """Shape and values of every sample, in every layout."""
    record.case(op=name, dtype=dtype, direction="forward")
    card.needs(dtype)
    findings = Findings(f"{name} of {dtype} on {card.name}")
    for sample in samples.samples(name):
        if cases.claims(name, sample, dtype):
            check_sample(name, sample, dtype, card, findings)
    record.case(error=findings.error, ulp=findings.ulp)
    verdict = findings.verdict()
    if verdict:
        pytest.fail(verdict, pytrace=False)


def check_sample(name: str, sample: samples.Sample, dtype: str, card: Card, findings: Findings) -> None:
    """All layouts of one sample."""
    slack = 1.0 if RECORDS[name]["pointwise"] else 4.0
    plain = expectation(name, sample, dtype)
    for layout, laid in layouts(name, sample):
        expected = plain if laid is sample else expectation(name, laid, dtype)
        args, kwargs = cases.build(laid, getattr(ts, dtype), card.device, layout)
        try:
            results = cases.leaves(cases.call(name, args, kwargs))
            measured = worst(results, expected, name, dtype, slack)
        except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError) as error:
            measured = Measured(f"raised {type(error).__name__}: {error}")
        findings.add(layout, laid, measured)


def worst(results: list[Any], expected: list[Any], name: str, dtype: str, slack: float) -> Measured:
    """The measurement of all results of one call."""
    if len(results) != len(expected):
        return Measured(f"expected {len(expected)} results, got {len(results)}")
    if dtype == "bool" and name in TIED:
        results = results[: 0 if name == "argsort" else 1]
    measured = [measure(result, wanted, slack) for result, wanted in zip(results, expected, strict=False)]
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
    problem = measure(cases.call(name, args, {}), expected[0]).problem
    if problem:
        shown = [item.array.ravel().tolist() for item in sample.inputs()]
        pytest.fail(f"{name} of special values, {dtype} on {card.name}: {problem}; operands {shown}", pytrace=False)
