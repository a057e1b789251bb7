"""Ranks that fail at a random step, in a random way: all begin again and come to what they would have.

Two of a hundred, chosen by the run's seed; ``FULL=1``: all. ``pytest -s`` shows what each took.
"""

import random
import re
from pathlib import Path
from typing import Any

import rank_faults
from tesserack.testing import seeds

WAYS = ("killed", "stopped", "raising", "leaving")
RUNS = 100
STEPS, PRIME = 12, 1_000_003


def expected(ranks: int) -> str:
    value = 1
    for step in range(STEPS):
        value = (31 * value + sum(7 * step + rank for rank in range(ranks))) % PRIME
    return str(value)


def test_training_survives_ranks_that_fail(launch: Any, tmp_path: Path) -> None:
    runs = range(RUNS) if seeds.full() else random.Random(seeds.seed()).sample(range(RUNS), 2)
    for run in runs:
        rng = random.Random(run)
        ranks, how, engine = rng.randint(2, 3), WAYS[run % len(WAYS)], ("local", "tcp")[run // len(WAYS) % 2]
        arguments = how, rng.randrange(STEPS), rng.randrange(ranks)
        folder = tmp_path / str(run)
        folder.mkdir()
        temporary = folder / "tmp"
        temporary.mkdir()
        options = ("--max-restarts", "1")
        variables = {"TESSERACK_COMM": engine, "TMPDIR": str(temporary), "FAULT_RUN": str(folder)}
        done = launch("surviving.py", ranks, folder, *arguments, options=options, variables=variables)
        told = f"run {run}: {engine}, {ranks} ranks, {arguments}"
        print(told, *rank_faults.survivors(done.stdout, folder), sep="\n  ")
        told += f"\n{done.stdout}{done.stderr[-2000:]}"
        assert done.returncode == 0, told
        assert re.findall(r"CAME TO (\d+)", done.stdout) == [expected(ranks)] * ranks, told
        assert "starting again" in done.stderr, told
        assert not rank_faults.marked(f"FAULT_RUN={folder}") and not list(temporary.iterdir()), told
