"""Programs that run are right: tried without data, none of their modules is found wrong."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tesserack.testing import seeds

pytest.importorskip("sklearn")
HERE = Path(__file__).parent
NAMES = sorted(path.stem for path in (HERE / "programs").glob("*.py") if path.stem not in ("common", "utils"))
# Some in one run, another choice with every seed; all with FULL=1.
CHOSEN = NAMES if seeds.full() else seeds.generator("shapes").sample(NAMES, 4)


@pytest.mark.parametrize("name", CHOSEN)
def test_nothing_is_found_in_what_runs(program: Any, name: str) -> None:
    shutil.copytree(HERE / "programs", program.folder, dirs_exist_ok=True)
    shutil.copy(HERE / "watch_shapes.py", program.folder)
    words = ("-m", "tesserack", "run", "watch_shapes.py", f"{name}.py")
    done = program.start(*words, OMP_NUM_THREADS="1", LOSSES="2")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith("wrong")] == []
    assert lines[-1].startswith("right ")
