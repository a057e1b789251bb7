"""What declarations say of operators beyond their schemas is true, and no other table says it again."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import tesserack as ts
from tesserack import _native
from tesserack.ops.registry import aliases, facts, operators, said

PACKAGE = Path(ts.__file__).parent
LISTS = Path(__file__).with_name("operator_lists.txt")
PUBLIC = {r["base"] for r in _native._operators() if r["variant"] == "functional" and not r["hidden"]}
MANY = 10  # names of operators that make a table of them


@pytest.mark.parametrize("name", sorted(said("zero", "linear")))
def test_what_keeps_zero_does(name: str) -> None:
    zero = ts.zeros(3, dtype=ts.complex128 if name in ("imag", "real") else ts.float64)
    assert not operators()[name](zero).any()


@pytest.mark.parametrize("name", sorted(said("linear")))
def test_what_is_linear_adds_up(name: str) -> None:
    f = operators()[name]
    a, b = (ts.randn(4, dtype=ts.complex128 if name in ("imag", "real") else ts.float64) for _ in range(2))
    assert ts.allclose(f(a + b), f(a) + f(b))


@pytest.mark.parametrize("name", sorted(aliases()))
def test_an_alias_is_the_operator(name: str) -> None:
    known = {r["name"]: r for r in _native._operators()}
    mine, other = known[name], known[aliases()[name]]
    assert mine["schema"].partition("(")[2] == other["schema"].partition("(")[2]
    assert facts()[name] - {f"alias:{aliases()[name]}", "elementwise"} <= facts().get(aliases()[name], frozenset())


def test_facts_are_of_operators() -> None:
    assert set(facts()) <= {r["base"] for r in _native._operators()}


def operator_lists() -> dict[str, int]:
    """Tables of the package that name many operators, as "file name", with how many they name."""
    found = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        where = file.relative_to(PACKAGE)
        if where.parts[0] == "testing":  # samples, references, and what the kit asks
            continue
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                texts = (
                    n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant) and isinstance(n.value, str)
                )
                named = {word for text in texts for word in text.split()} & PUBLIC
                if len(named) >= MANY and getattr(target, "id", "") != "__all__":
                    found[f"{where.as_posix()} {getattr(target, 'id', '')}"] = len(named)
    return found


def test_operators_are_listed_nowhere_else() -> None:
    """What is true of operators is said at declarations, ops/common/facts.h, or has a reason to stand elsewhere."""
    reasons = dict(line.split(": ", 1) for line in LISTS.read_text().splitlines() if line)
    found = operator_lists()
    assert not set(found) - set(reasons), "say it at the declarations, or give a reason in operator_lists.txt"
    assert not set(reasons) - set(found), "these tables are gone: take them off operator_lists.txt"
