"""Ranks with a card each: their collectives are NCCL's, and wait no longer than they may."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PLACES = (HERE, ROOT / "plugins/kernelgen/tests", ROOT / "tests/distributed/programs/matrix")


@pytest.mark.parametrize(
    ("what", "says"), [("collectives", ["WENT BY NCCL"] * 2), ("training", ["WENT BY NCCL"] * 2), ("failing", ["TOLD"])]
)
def test_ranks_with_a_card_each(what: str, says: list[str]) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "TESSERACK_COMM")}
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, PLACES)), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "tesserack", "launch", "--no-torch", "--standalone", "--nproc-per-node", "2"]
    command = [*words, str(HERE / "card_ranks.py"), what]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment)
    assert done.returncode == 0 and done.stdout.splitlines() == says, done.stdout + done.stderr[-3000:]
