"""Kernels that the operators ask for are data of a declaration: its own, or a word of it where code asks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.library.dispatch import lowering

OPERATORS = Path(__file__).resolve().parents[2] / "core" / "native" / "ops"
IDS = re.compile(r"\bKernelId ([^;]*);")
RECORDS = [record for record in ts._native._operators() if record["variant"] == "functional"]
DECLARED = {record["kernel"]["name"] for record in RECORDS if record["kernel"]}


def asked_by_hand() -> dict[str, set[str]]:
    """Kernels by the names of operators whose declaration says ``kernel:NAME``."""
    found: dict[str, set[str]] = {}
    for name, words in ts._native._facts().items():
        for word in words.split():
            if word.startswith("kernel:"):
                found.setdefault(word.removeprefix("kernel:"), set()).add(name)
    return found


def kernels_named() -> set[str]:
    """Every kernel that the sources of operators name in code."""
    if not OPERATORS.is_dir():
        pytest.skip("not a checkout")
    written = (ids for file in OPERATORS.rglob("*.cpp") for ids in IDS.findall(file.read_text()))
    return {name for ids in written for name in re.findall(r'"(\w+)"', ids)}


def test_every_kernel_that_code_asks_for_is_said_beside_an_operator() -> None:
    named = kernels_named()
    assert {"searchsorted", "random_order", "sort"} <= named
    said = {*ts._native._required_kernels()} | DECLARED | {*asked_by_hand()}
    # LAPACK's are run for their operators alone, by the cpu where a card has none.
    assert {name for name in named - said if not name.startswith("lapack_")} == set()


def test_what_is_said_is_so() -> None:
    """Of a kernel that code names, and not of one that a declaration has as data."""
    asked = asked_by_hand()
    assert asked.keys() <= kernels_named()
    others = {"attention_blocks", "cat", "scaled_dot_product_attention"}  # declared by another operator
    assert not asked.keys() & DECLARED - others
    for names in asked.values():
        for name in names:
            assert any(record["base"] == name for record in RECORDS)


def test_they_are_known_before_they_are_asked_for() -> None:
    """A backend that has one is not told that nothing calls it; in a process of its own, where nothing was called."""
    program = "import json, tesserack; print(json.dumps(tesserack._native._kernel_names()))"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert asked_by_hand().keys() - {*json.loads(done.stdout)} - {*ts._native._required_kernels()} == set()


def test_explain_says_it() -> None:
    assert lowering("searchsorted.Tensor")["asks"] == ["searchsorted"]
    assert lowering("softmax")["asks"] == []
    assert lowering("_rank_positions")["kernel"]["name"] == "rank_positions"


def test_the_page_tells_how_many_are_data() -> None:
    primitives = [record for record in RECORDS if record["kind"] == "primitive"]
    data, code = (sum(bool(record[key]) for record in primitives) for key in ("kernel", "code"))
    text = " ".join((OPERATORS.parents[2] / "docs" / "architecture.md").read_text().split())
    assert f"Of the {len(primitives)} primitives {data} name their kernel as data" in text
    assert f"{code} are code" in text and f"{len(primitives) - data - code} are a decomposition alone" in text
