"""Operators that take ``out=`` fill it, and write nothing else: neither around it nor in their operands."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pytest

import tesserack as ts
from tesserack.testing import cases, samples
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.guarding.canaries import Guarded, report
from tesserack.testing.conformance.values import TIED

RECORDS = samples.records()
OUT = {cases.functional_name(r) for r in RECORDS.values() if r["variant"] == "out"}
NAMES = [name for name in RECORDS if name in OUT and samples.samples(name)]


@pytest.mark.parametrize("name", NAMES)
def test_operator_keeps_to_its_output(name: str, card: Card, record: Record) -> None:
    """Every operator that takes out=, on its samples; and its operands are as they were."""
    for dtype in ("float32", "int64"):
        record.case(op=name, dtype=dtype, direction="bounds")
        if not card.supports(dtype):
            continue
        for sample in samples.samples(name):
            if cases.claims(name, sample, dtype):
                check(name, sample, dtype, card)


def check(name: str, sample: samples.Sample, dtype: str, card: Card) -> None:
    """One call, into outputs of the shape and dtype that it gives."""
    args, kwargs = cases.build(sample, getattr(ts, dtype), card.device)
    given = [a for a in [*args, *kwargs.values()] if isinstance(a, ts.Tensor)]
    before = [fingerprint(x) for x in given]
    expected = cases.call(name, args, kwargs)
    made = [Guarded(tuple(e.shape), e.dtype, card.device) for e in cases.leaves(expected)]
    outs = tuple(guarded.tensor for guarded in made)
    cases.call(name, args, {**kwargs, "out": outs if isinstance(expected, tuple) else outs[0]})
    report(made, f"{name} of {dtype}", f"({sample})", card.name)
    if [fingerprint(x) for x in given] != before:
        pytest.fail(f"{name} of {dtype} on {card.name}: wrote to an operand it only reads; ({sample})", pytrace=False)
    for found, wanted in zip(outs, cases.leaves(expected), strict=True):
        if name not in TIED and not alike(found, wanted):
            first = cases.values(found).ravel()[:8].tolist()
            pytest.fail(
                f"{name} of {dtype} on {card.name}: out= differs from the result ({sample}): {first}", pytrace=False
            )


def alike(found: Any, wanted: Any) -> bool:
    """The same bits; of what was made on another device, for want of operands that say where, but for rounding."""
    if found.device == wanted.device:
        return fingerprint(found) == fingerprint(wanted)
    few = 2e-3 if wanted.dtype in (ts.float16, ts.bfloat16) else 1e-6
    return np.allclose(cases.values(found), cases.values(wanted), few, few, equal_nan=True)


def fingerprint(x: Any) -> int:
    """Of the bytes of a tensor."""
    return zlib.crc32(cases.values(x).tobytes())
