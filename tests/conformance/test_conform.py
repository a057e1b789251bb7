"""The command, on the device under test: what it prints, writes and returns."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.testing import conform
from tesserack.testing.conformance import areas

SOME = ("--areas", "operators", "-k", "test_values and softmax")


@pytest.fixture
def run(device: ts.device, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any) -> Any:
    """Runs the command; returns its status, its output without line breaks, and the results."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, gaps: str | None = None, name: str | None = None) -> tuple[int, str, Any]:
        path = tmp_path / "results.json"
        path.unlink(missing_ok=True)
        words = [name or device.type, "--json", str(path), *arguments]
        if gaps is not None:
            (tmp_path / "gaps.txt").write_text(gaps)
            words += ["--expected-failures", str(tmp_path / "gaps.txt")]
        status = conform.main(words)
        out, err = capfd.readouterr()
        return status, " ".join((out + err).split()), json.loads(path.read_text()) if path.exists() else None

    return run


def test_required_kernels_are_those_of_the_contract() -> None:
    """The table of operators that stand for them names each, and operators that exist."""
    assert set(areas.REQUIRED) == set(ts._native._required_kernels())
    known = {record["name"] for record in ts._native._operators()}
    assert [name for names in areas.REQUIRED.values() for name in names if name not in known] == []


def test_some_tests(run: Any, device: ts.device, tmp_path: Path) -> None:
    """A table, the level as far as it was tried, and the three files."""
    status, text, found = run(*SOME, "--report", str(tmp_path / "out"))
    assert status == 0, text
    assert f"Conformance of {device.type}" in text
    assert "not boots: capabilities: not run" in text
    assert {case["outcome"] for case in found["cases"]} == {"passed"}
    assert {case["op"] for case in found["cases"]} == {"softmax", "log_softmax"}
    assert all(case["error"] < 0.1 for case in found["cases"])
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"report.html", "report.json", "badge.svg"}


def test_boots_alone(run: Any) -> None:
    """--level leaves out what the level does not need, and asks for the level."""
    status, text, found = run("--level", "boots")
    assert status == 0, text
    assert found["level"] == "boots"
    assert "level: boots" in text
    assert {name for name, counts in found["areas"].items() if counts.get("passed")} == {
        area.name for area in areas.areas_up_to("boots")
    }


def test_expected_failures_are_strict(run: Any) -> None:
    """A pass and a past date fail, with file, line and reason; a line that names no test is remembered."""
    gaps = """
        test_values[softmax-float32]  # too coarse
        test_values[softmax-float64]  # not looked at [until=2020-01-01]
        test_values[softmax-float128]  # no such dtype
    """
    status, text, found = run(*SOME, "--thorough", gaps=gaps)  # every dtype
    assert status == 1
    assert "unexpected pass: expected to fail because too coarse (gaps.txt:2); remove that line" in text
    assert "expected failure expired on 2020-01-01: not looked at (gaps.txt:3)" in text
    assert sum(case["outcome"] == "failed" for case in found["cases"]) == 2
    assert found["unused_expected_failures"] == ["gaps.txt:4: test_values[softmax-float128]"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--level", "perfect"), "invalid choice: 'perfect'"),
        (("--areas", "copies,dreams"), "--areas: expected some of capabilities, slots, bounds, .*, got 'dreams'"),
        (("--timeout", "0"), "expected a positive number of seconds"),
        (("--expected-failures", "/nowhere/gaps.txt"), "/nowhere/gaps.txt"),
        (("-k", "and and"), "Wrong expression"),
    ],
)
def test_wrong_arguments(run: Any, arguments: tuple[str, ...], message: str) -> None:
    """Status 2, and what is wrong."""
    status, text, _ = run(*arguments)
    assert status == 2
    assert re.search(message, text)
    assert "Traceback" not in text


def test_malformed_expected_failures(run: Any) -> None:
    """The file and the line."""
    status, text, _ = run(gaps="test_values*\n")
    assert status == 2
    assert "gaps.txt:1: expected 'pattern # reason" in text


def test_a_device_that_is_not_there(run: Any) -> None:
    """Says what to install."""
    status, text, _ = run(name="nosuch")
    assert status == 2
    assert "no backend named 'nosuch' is installed" in text


def test_missing_packages_are_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is imported that needs them."""
    monkeypatch.setattr(conform, "_NEEDED", ("numpy", "no_such_package"))
    status, text, _ = run()
    assert status == 2
    assert "no_such_package not installed; try: pip install 'tesserack[test]'" in text
