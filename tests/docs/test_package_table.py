"""The page of packages is what the counts say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_written_from_the_counts():
    command = [sys.executable, str(ROOT / "tools" / "package_table.py"), "page", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_the_page_says_of_a_package(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import package_table

    row = {
        "version": "1.0",
        "tests": "doctests, 1 in 4",
        "torch": "2.13.0",
        "torch_passed": 8,
        "passed": 6,
        "date": "2026-11-23",
        "causes": {"a | b": 1, "ended the process": 1},
    }
    last = package_table.page({"thing": row}).splitlines()[-1]
    assert last == (
        "| thing | 1.0 | doctests, 1 in 4 | 6 of 8 | 75.0 % | 2026-11-23 | `a / b` (1); `ended the process` (1) |"
    )


def test_outcomes_of_a_run_that_was_cut_short(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import package_table

    results = tmp_path / "thing.torch"
    rows = [("t.py::a", "started"), ("t.py::a", "passed"), ("t.py::b", "started"), ("u.py", "error")]
    results.write_text(
        "\n".join(f'{{"test": "{test}", "outcome": "{outcome}", "why": "no u"}}' for test, outcome in rows)
    )
    found = package_table._outcomes(results)
    assert {test: row["outcome"] for test, row in found.items()} == {
        "t.py::a": "passed",
        "t.py::b": "started",
        "u.py": "error",
    }
    assert package_table._cause(found, "t.py::b") == "ended the process"
    assert package_table._cause(found, "u.py::c") == "not collected: no u"
    assert package_table._cause(found, "v.py::d") == "not reached"
