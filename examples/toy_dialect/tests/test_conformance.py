"""The device passes the conformance kit at the level it claims."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

LEVEL = "boots"  # raise it to "trains", then "complete"
EXPECTED_FAILURES = Path(__file__).resolve().parents[1] / "expected_failures.txt"


def test_level() -> None:
    """Prints the kit's table when it fails: run pytest -s to see it in any case."""
    command = [sys.executable, "-m", "tesserack.testing.conform", "toy", "--level", LEVEL]
    subprocess.run([*command, "--expected-failures", str(EXPECTED_FAILURES)], check=True)
