"""The seed of a run: from the commit, the same for every process of the run, and given back by one option."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.testing import seeds

CASES = """
import pytest
from tesserack.testing import seeds

@pytest.mark.parametrize("case", seeds.turn(range(1000), 10))
def test_case(case):
    print("case", case, seeds.generator("draws").randrange(10**9))
"""


def chosen(folder: Path, *options: str, text: str = CASES) -> list[str]:
    (folder / "test_cases.py").write_text(text)
    environment = dict(os.environ, PYTHONPATH=str(Path(ts.__file__).parents[1]))
    command = [sys.executable, "-m", "pytest", "-q", "-rP", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line for line in done.stdout.splitlines() if line.startswith("case "))


def test_a_run_is_repeated_by_its_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FULL", raising=False)
    first = chosen(tmp_path, "--tesserack-seed=12")
    assert len(first) == 100 and first[0].startswith("case 102 ")
    assert chosen(tmp_path, "--tesserack-seed=12", "-n", "2") == first
    assert not set(first) & set(chosen(tmp_path, "--tesserack-seed=7"))
    monkeypatch.setenv("FULL", "1")
    assert len(chosen(tmp_path)) == 1000


def test_the_seed_is_the_commits(tmp_path: Path) -> None:
    assert seeds.of_commit(tmp_path) == seeds.of_commit(tmp_path / "..")  # the version's, outside of a repository
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for command in (["init", "-q"], [*who, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert f"{seeds.of_commit(tmp_path):08x}" == head.stdout[:8]


DRAWS = """
import hypothesis
from hypothesis import strategies as st

@hypothesis.settings(max_examples=5)
@hypothesis.given(st.integers(0, 10**9))
def test_draws(number):
    print("case", number)
"""


@pytest.mark.parametrize("ci", ["", "1"])
def test_the_seed_reaches_hypothesis_where_ci_runs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ci: str
) -> None:
    """Hypothesis by itself draws the same every time where it sees CI."""
    monkeypatch.setenv("CI", ci)
    if not ci:
        monkeypatch.delenv("CI")
    shutil.copy(Path(__file__).parents[1] / "conftest.py", tmp_path)
    options = ("-p", "tesserack.testing.pytest_plugin")
    one, other, again = (chosen(tmp_path, *options, f"--tesserack-seed={n}", text=DRAWS) for n in (1, 2, 1))
    assert one == again != other
