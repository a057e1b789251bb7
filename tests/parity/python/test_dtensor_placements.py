"""How results of operators on DTensors lie, beside PyTorch's."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
PROGRAM = Path(__file__).parents[2] / "distributed" / "programs" / "torch_placements.py"

# Sums that stay unfinished where PyTorch finishes them, triangles of what is cut by the batch, and norms that are
# finished at once.
OTHERS = {
    "mean P(sum)": "P(sum)",
    "mean1 P(sum)": "P(sum)",
    "clone P(sum)": "P(sum)",
    "tril P(sum)": "P(sum)",
    "cumsum P(sum)": "P(sum)",
    "tril S(0)": "S(0)",
    "norm S(0)": "R",
    "norm S(1)": "R",
    "norm S(2)": "R",
}


def _placements(*words: str) -> dict[str, str]:
    done = subprocess.run([sys.executable, *words, str(PROGRAM)], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_results_lie_as_pytorch_has_them() -> None:
    theirs, ours = _placements(), _placements("-m", "tesserack", "run")
    assert set(ours) == set(theirs) and len(ours) > 250
    assert ours == theirs | OTHERS
    assert all(theirs[key] != value for key, value in OTHERS.items()), "a difference is gone"
