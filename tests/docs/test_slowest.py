"""The tool that lists the slowest tests reads pytest's own words and keeps the rest of the page."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "slowest.py"
TESTS = """
import time, pytest

@pytest.fixture
def late():
    time.sleep(0.05)

def test_quick():
    pass

def test_slow(late):
    pass

@pytest.mark.parametrize("word", ["a b"])
def test_words(word):
    time.sleep(0.05)
"""
LOG = """
============================= slowest 20 durations =============================
2.50s call     tests/test_a.py::test_slow
1.25s setup    tests/test_a.py::test_slow
3.00s call     tests/test_b.py::test_words[a b]

(1 durations < 1s hidden.  Use -vv to show these durations.)
======================== 3 passed in 2.09s (0:00:02) ===========================
"""


def test_the_slowest_of_a_run_are_written_down(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("slowest", TOOL)
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    (tmp_path / "test_sleeps.py").write_text(TESTS)
    options = ["-p", "no:cacheprovider", "--durations=20", "--durations-min=0.04"]
    run = [sys.executable, "-m", "pytest", *options, "test_sleeps.py"]
    log = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path).stdout
    assert {"test_sleeps.py::test_slow", "test_sleeps.py::test_words[a b]"} <= {test for test, _ in tool.slowest([log])}
    found = tool.slowest([LOG])
    assert found == [("tests/test_a.py::test_slow", 3.75), ("tests/test_b.py::test_words[a b]", 3.0)]
    assert tool.slowest([LOG, LOG], most=1) == [("tests/test_a.py::test_slow", 7.5)]
    page = f"# tests\n\n{''.join(tool.MARKS)}after\n"
    once = tool.written(page, found)
    assert (
        once.startswith("# tests\n\n")
        and once.endswith("after\n")
        and "| 3.8 | `tests/test_a.py::test_slow` |\n" in once
    )
    assert tool.written(once, found) == once
