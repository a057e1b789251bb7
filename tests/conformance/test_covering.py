"""What stands for what: every operator, dtype and layout is tried, and each dtype in each layout by some operator."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tesserack.testing import cases, samples
from tesserack.testing.conformance.areas import REQUIRED, entry_point
from tesserack.testing.conformance.covering import is_covered, layouts_of, leads_quickly, stands_beside_many

NAMES = [*samples.records()]
EVERY_LAYOUT = (*cases.LAYOUTS, "expanded")


def test_each_dtype_meets_each_layout() -> None:
    met = {(dtype, layout) for name in NAMES for dtype in cases.DTYPES for layout in layouts_of(name, dtype)}
    assert met == {(dtype, layout) for dtype in cases.DTYPES for layout in EVERY_LAYOUT}


@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_each_dtype_meets_many_operators(dtype: str) -> None:
    others = [name for name in NAMES if not entry_point(name)]
    tried = [name for name in others if is_covered(name, dtype)]
    assert len(tried) > len(others) / 6
    assert all(is_covered(name, dtype) for name in NAMES if entry_point(name))


def test_each_operator_is_tried_in_each_layout_somewhere() -> None:
    for name in NAMES:
        assert layouts_of(name, "int64", lead="int64") == EVERY_LAYOUT == layouts_of(name, "float32")


def test_a_quick_run_tries_each_kernel_in_each_layout() -> None:
    leading = {entry_point(name) for name in NAMES if leads_quickly(name)}
    assert {entry for entry in REQUIRED if entry_point(REQUIRED[entry][0])} <= leading
    beside = [name for name in NAMES if stands_beside_many(name)]
    assert len(beside) / 5 < sum(map(leads_quickly, beside)) < len(beside) / 2


def _ids(*options: str) -> set[str]:
    kit = ["--pyargs", "tesserack.testing.conformance.test_operators", "-p", "tesserack.testing.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-k", "test_values", *kit, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {line.rpartition("::")[2] for line in done.stdout.splitlines() if "::test_values[" in line}


def test_what_is_thinned_runs_thoroughly() -> None:
    """The option brings back what others stand for, and nothing that stands for a required kernel was left out."""
    usual, thorough = _ids(), _ids("--tesserack-thorough")
    assert usual < thorough and len(usual) < 0.7 * len(thorough)
    missing = {one[len("test_values[") : -1].rpartition("-")[0] for one in thorough - usual}
    assert not [name for name in missing if entry_point(name)]


def test_a_quick_run_is_a_sample() -> None:
    """Each operator of a required kernel at float32, other dtypes for each kernel, not for each of its operators: a
    card that compiles every kernel is done in minutes."""
    quick = [one[len("test_values[") : -1].rpartition("-") for one in _ids("--tesserack-quick")]
    required = [(name, dtype) for name, _, dtype in quick if entry_point(name)]
    named = {name for name in NAMES if entry_point(name)}
    assert {name for name, dtype in required if dtype == "float32"} >= {"exp", "add", "cumsum", "gather"}
    assert {entry_point(name) for name, dtype in required if dtype == "int64"} >= {
        "reduce",
        "scan",
        "sort",
        "pointwise",
    }
    beside = [name for name, dtype in required if dtype != "float32" and stands_beside_many(name)]
    assert len(beside) < len([name for name in named if stands_beside_many(name)])
