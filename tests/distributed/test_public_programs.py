"""Programs in the manner of public repositories, written for PyTorch; each compares itself with one process.

Two of them, chosen by the run's seed; ``FULL=1``: all, on two and on four ranks.
"""

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tesserack.testing import seeds

PUBLIC = Path(__file__).parent / "programs" / "public"
EVERY = [
    (program.stem, ranks)
    for program in sorted(PUBLIC.glob("*.py"))
    for ranks in (2, 4)
    if program.stem not in ("common", "spawned")
]
SAMPLE = EVERY if seeds.full() else random.Random(seeds.seed()).sample(EVERY, 2)


@pytest.mark.parametrize(("program", "ranks"), SAMPLE)
def test_launched_programs_come_to_what_one_process_does(launch: Any, program: str, ranks: int) -> None:
    done = launch(f"public/{program}.py", ranks, torch=True)
    assert done.returncode == 0 and f"PASS {program}" in done.stdout, done.stderr[-3000:]


def test_a_program_that_spawns_comes_to_what_one_process_does() -> None:
    words = [sys.executable, "-m", "tesserack", "run", str(PUBLIC / "spawned.py"), "2"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and "PASS spawned" in done.stdout, done.stderr[-3000:]
