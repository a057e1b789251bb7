"""Random calls never crash, hang, or raise what no user would catch. Seeds are fixed; each batch is a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts

COUNT = {"operators": 3000, "methods": 1500, "indexing": 2500}
BATCHES = [(kind, start) for kind in COUNT for start in (0, 1_000_000)]


@pytest.mark.parametrize(("kind", "start"), BATCHES)
def test_calls(kind: str, start: int, device: ts.device) -> None:
    """A batch ends by itself; otherwise its last line names the call."""
    command = [sys.executable, "-X", "faulthandler", str(Path(__file__).with_name("calls.py"))]
    try:
        done = subprocess.run(
            [*command, str(start), str(COUNT[kind]), kind, str(device)], capture_output=True, text=True, timeout=300
        )
    except subprocess.TimeoutExpired as error:
        pytest.fail(f"hangs: {(error.stdout or b'').decode().splitlines()[-1:]}")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-1] == "finished", (
        f"exit status {done.returncode} after\n" + "\n".join(lines[-2:]) + f"\n{done.stderr[-3000:]}"
    )
