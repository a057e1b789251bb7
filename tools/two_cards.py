"""Ranks with a GPU each, over NCCL: ``python tools/two_cards.py``. Says so where there are no two."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "distributed" / "programs"
RUNS = (("cards.py", "cuda"), ("matrix/matrix.py", "cuda", "0", "20"), ("matrix/matrix.py", "cuda", "100", "4"))


def main() -> int:
    """The status of the first program that fails, else 0."""
    import tesserack as ts

    cuda: Any = getattr(ts, "cuda")  # noqa: B009 - a backend's, which type checkers do not see
    count = cuda.device_count() if cuda.is_available() else 0
    if count < 2:
        why = ts.backends.why_unavailable("cuda") if not count else "there is one"
        print(f"NCCL was driven against a simulated library alone: no two GPUs here ({why})")
        return 0
    launch = [sys.executable, "-m", "tesserack", "launch", "--no-torch", "--standalone", "--nproc-per-node", "2"]
    for program, *words in RUNS:
        print(program, *words, flush=True)
        status = subprocess.run([*launch, str(PROGRAMS / program), *words]).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
