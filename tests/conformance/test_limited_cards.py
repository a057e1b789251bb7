"""Truthful cards that take less: what their kernels cannot take is brought into form on the card, never on the host."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from tesserack.testing import seeds
from tesserack.testing.conformance.areas import AREAS

CARDS = ("alignedonly", "fourdimsonly", "smallblocks", "halfonly", "latehealthy")
FACTORISATIONS = "lapack_"  # which no card in Python has, limited or not
#: Operators that give dtypes, or compute in some, that a card has not: nobody but the host can.
WIDER = {"halfonly": ("float", "double", "bfloat16", "float_power", "isclose", "allclose", "bincount")}
#: The rest of the kit takes minutes on a card in Python.
SOME = "capabilities,bounds,memory,copies,edges,forms,state,views"


@pytest.mark.parametrize("name", seeds.turn(CARDS, 2))
def test_nothing_of_a_limited_card_runs_on_the_host(name: str, conform_mutant: Callable[..., tuple[str, Any]]) -> None:
    """The required kernels in all layouts, dims and dtypes; FULL=1: everything, and the level *complete*."""
    chosen = () if seeds.full() else ("--areas", SOME, "--quick")
    text, found = conform_mutant(name, *chosen)
    assert [(case["id"], case["message"]) for case in found["cases"] if case["outcome"] == "failed"] == [], text
    required = {"boots", *(("trains", "complete") if seeds.full() else ())}
    helped = {
        (case["id"], kernel)
        for case in found["cases"]
        for kernel in case.get("fallbacks", {})
        if AREAS[case["area"]].level in required and not kernel.startswith(FACTORISATIONS)
        if (re.findall(r"\[([^]-]+)", case["id"]) or [""])[0] not in WIDER.get(name, ())
    }
    assert not helped
    if seeds.full():
        assert found["level"] == "complete", text
