"""Kernels that a card has beside the required ones: each by calls that use it, at sizes that leave a tail."""

from __future__ import annotations

from typing import Any

import pytest

import tesserack as ts
from tesserack.testing import cases
from tesserack.testing.conformance.card import Card, Record
from tesserack.testing.conformance.own.given import Given
from tesserack.testing.conformance.own.kernels import CALLS, Call
from tesserack.testing.conformance.own.nearly import judge

#: Relative to each element, or to a part of the largest where that is more.
TOLERANCE = {"float64": 1e-8, "float32": 1e-3, "float16": 3e-2, "bfloat16": 1e-1}
LEAST = {"float64": 1e-3, "float32": 3e-2, "float16": 1e-1, "bfloat16": 2e-1}


def _has(kernel: str, card: Card) -> bool:
    """Those that nothing has asked for yet are not known: tried all the same."""
    return bool(ts._native._has_kernel(card.name, kernel)) or kernel not in ts._native._kernel_names()


def check(call: Call, dtype: str, stepped: bool, card: Card) -> tuple[str | None, float]:
    """What is wrong with a call, if anything, and the largest error."""
    results = []
    for device, kept in ((card.device, dtype), ("cpu", dtype if call.alike else "float64")):
        ts.manual_seed(3)
        results.append(_tensors(call.run(Given(device, dtype, kept, stepped))))
    found, wanted = results
    for number, (f, w) in enumerate(zip(found, wanted, strict=True)):
        if f.device.type != card.name and card.name != "cpu":
            return f"result {number} lies on {f.device}", float("inf")
        if f.is_floating_point() != w.is_floating_point():
            return f"result {number}: expected {w.dtype}, got {f.dtype}", float("inf")
    return judge(found, wanted, TOLERANCE[dtype], LEAST[dtype])


def _tensors(result: Any) -> list[Any]:
    return [leaf for leaf in cases.leaves(result) if isinstance(leaf, ts.Tensor)]


@pytest.mark.parametrize("kernel", CALLS)
def test_kernel(kernel: str, card: Card, record: Record, thorough: bool) -> None:
    """Near what the cpu computes in float64. The first call of each in its dtypes and of operands with gaps, too: cards
    that compile what they meet would compile for hours."""
    record.case(op=kernel, dtype="float32", direction="kernels")
    if not _has(kernel, card):
        pytest.skip(f"the card has no kernel {kernel!r} of its own")
    for number, call in enumerate(CALLS[kernel]):
        every = thorough or number == 0
        for dtype in (d for d in ("float32", *call.dtypes * every) if card.supports(d)):
            for layout in ("contiguous", "stepped") if thorough or (every and dtype == "float32") else ("contiguous",):
                problem, _ = check(call, dtype, layout == "stepped", card)
                if problem:
                    pytest.fail(f"{kernel} of {dtype} on {card.name}: {call.what}, {layout}: {problem}", pytrace=False)
