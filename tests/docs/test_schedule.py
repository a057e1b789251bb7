"""The plugin that hands out the suite: what takes longest first, of many cases a part, and nothing twice or never."""

from __future__ import annotations

import collections
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NODES = [f"tests/a.py::test_many[{k}-{word}]" for k in range(20) for word in ("x", "y")]
NODES += [f"tests/a.py::test_few[{k}]" for k in range(11)] + ["tests/b.py::test_one"]
MANY = """
import pytest

@pytest.mark.parametrize("k", range(60))
def test_many(k):
    pass

def test_one():
    pass
"""


@pytest.fixture
def schedule() -> Any:
    """The module."""
    spec = importlib.util.spec_from_file_location("schedule", ROOT / "tools" / "schedule.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_case_has_its_turn(schedule: Any) -> None:
    """One after another the shares are the whole; of each test there is something in each; few cases are no many."""
    turns = [schedule.whose_turn(NODES, 3, seed) for seed in range(3)]
    assert set.union(*turns) == set(NODES)
    counts = collections.Counter(nodeid for turn in turns for nodeid in turn)
    assert {counts[nodeid] for nodeid in NODES if "many" in nodeid} == {1}
    assert {counts[nodeid] for nodeid in NODES if "many" not in nodeid} == {3}
    for turn in turns:  # of each word
        assert all(any(nodeid.endswith(f"-{word}]") for nodeid in turn) for word in "xy")
    assert schedule.whose_turn(NODES, 1, 5) == set(NODES)


def test_dear_files_have_their_turn_test_by_test(schedule: Any) -> None:
    """As many of all of them as of the cases of one test, at least one of a file."""
    assert [name for name in schedule.DEAR if not (ROOT / name).exists()] == []
    nodes = [f"{schedule.DEAR[0]}a.py::test_{k}" for k in range(20)]
    turns = [schedule.whose_turn(nodes, 3, seed) for seed in range(3)]
    assert set.union(*turns) == set(nodes) and sum(map(len, turns)) == len(nodes) and all(len(t) > 2 for t in turns)
    assert schedule.whose_turn(nodes, 1, 5) == set(nodes)
    alone = [f"{schedule.DEAR[0]}b.py::test_alone"]
    assert all(schedule.whose_turn(alone, 3, seed) == set(alone) for seed in range(9))


def test_at_least_one_case_is_left(schedule: Any) -> None:
    assert all(schedule.whose_turn(NODES[:40], 1000, seed) for seed in range(50))


def test_long_files_come_first_and_stay_whole(schedule: Any) -> None:
    first, last = schedule.LONG[0], schedule.LONG[-1]
    nodes = ["tests/b.py::test_one", *NODES[:3], f"{last}x.py::test_x", f"{first}::test_b", f"{first}::test_a"]
    placed = [nodes[place] for place in schedule.in_order(nodes)]
    assert placed == [f"{first}::test_b", f"{first}::test_a", f"{last}x.py::test_x", *NODES[:3], "tests/b.py::test_one"]


def test_long_files_are_there(schedule: Any) -> None:
    assert [name for name in (*schedule.LONG, *schedule.SPLIT) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(("full", "fewest", "most"), [("", 10, 30), ("1", 62, 62)])
def test_a_run(full: str, fewest: int, most: int, tmp_path: Path) -> None:
    """In two processes, with the same choice in both."""
    folder = tmp_path / "tests" / "docs"
    folder.mkdir(parents=True)
    (folder / "test_pages.py").write_text(MANY)  # one of those that are split
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    options = ["-p", "no:cacheprovider", "-p", "tools.schedule", "-n", "2", "--dist", "loadfile", "--one-of", "3", "-v"]
    command = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path)]
    environment = {**os.environ, "FULL": full, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"PASSED (\S+)", done.stdout)
    assert fewest <= len(ran) <= most and len({*ran}) == len(ran), done.stdout
    assert "test_other.py::test_other" in ran and any(name.startswith("tests/docs/test_pages.py::") for name in ran)
