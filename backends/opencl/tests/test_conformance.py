"""The conformance kit on OpenCL: the areas that need few kernels; with FULL=1 all of them, to the level *complete*."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tesserack.testing import seeds

FEW_KERNELS = "views,memory,slots,streams,threads,saving,training"


WITH_STREAMS = "slots,streams"


def test_the_kit(tmp_path: Path) -> None:
    wanted = ["--level", "complete"] if seeds.full() else ["--areas", FEW_KERNELS]
    command = [sys.executable, "-m", "tesserack.testing.conform", "opencl", *wanted, "--timeout", "1500"]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_kit_where_the_driver_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERACK_OPENCL_COMMAND_BUFFERS", "1")
    command = [sys.executable, "-m", "tesserack.testing.conform", "opencl", "--areas", WITH_STREAMS]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
