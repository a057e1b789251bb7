"""Programs written for PyTorch, run as they are: the same losses from the same weights."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest
import tesserack as ts

pytest.importorskip("sklearn")
FOLDER = Path(__file__).parent / "programs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "common")
AT_ONCE = 12  # of them in one run, another choice for each commit; all with FULL=1
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch to compare with")


def chosen():
    if os.environ.get("FULL"):
        return NAMES
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=FOLDER)
    return sorted(random.Random(asked.stdout).sample(NAMES, AT_ONCE))


def losses(done):
    assert done.returncode == 0, done.stderr
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("loss")]


@needs_torch
@pytest.mark.parametrize("name", chosen())
def test_losses_are_those_of_torch(program, name):
    shutil.copytree(FOLDER, program.folder, dirs_exist_ok=True)
    environment = {"OMP_NUM_THREADS": "1"}
    ours = losses(program.start("-m", "tesserack", "run", f"{name}.py", **environment))
    theirs = losses(program.start(f"{name}.py", **environment))
    assert len(ours) == len(theirs) > 3
    assert ours == pytest.approx(theirs, rel=2e-3, abs=2e-4)
    assert ours[:3] == pytest.approx(theirs[:3], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["cnn_digits", "lr_finder", "nano_gpt"])
def test_programs_that_ask_for_cuda_run_on_another_card(program, name):
    if ts.backends.why_unavailable("opencl"):
        pytest.skip("no OpenCL device")
    shutil.copytree(FOLDER, program.folder, dirs_exist_ok=True)
    plain = losses(program.start("-m", "tesserack", "run", f"{name}.py"))
    done = program.start("-m", "tesserack", "run", "--device", "opencl", "--as-cuda", f"{name}.py")
    assert losses(done) == pytest.approx(plain, rel=1e-3, abs=1e-4)
    assert "fallback" not in done.stderr


def test_what_names_no_device_stays_on_the_host_beside_a_card(program):
    if ts.backends.why_unavailable("opencl"):
        pytest.skip("no OpenCL device")
    text = "import torch; print(torch.ones(2).device, torch.ones(2).cuda().device, torch.randperm(3).numpy().sum())"
    (program.folder / "where.py").write_text(text)
    done = program.start("-m", "tesserack", "run", "--device", "opencl", "--as-cuda", "where.py")
    assert done.stdout.split() == ["cpu", "cuda:0", "3"], done.stderr


@pytest.mark.parametrize("name", ["cnn_digits", "char_rnn"])
def test_programs_run_where_a_device_stands_for_a_card(program, name):
    shutil.copytree(FOLDER, program.folder, dirs_exist_ok=True)
    plain = losses(program.start("-m", "tesserack", "run", f"{name}.py"))
    as_card = losses(program.start("-m", "tesserack", "run", "--device", "cpu", "--as-cuda", f"{name}.py"))
    assert as_card == pytest.approx(plain, rel=1e-3)
