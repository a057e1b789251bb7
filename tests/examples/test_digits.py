"""The digits example, run as a user runs it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits.py"


def run(*arguments):
    return subprocess.run([sys.executable, str(EXAMPLE), *arguments], capture_output=True, text=True, timeout=600)


def test_it_learns_saves_and_reloads(device, tmp_path):
    path = tmp_path / "digits.safetensors"
    done = run("--device", str(device), "--save", str(path))
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"^epoch \d+/20  loss [\d.]+", done.stdout, re.MULTILINE)) == 20
    (accuracy,) = re.findall(r"^test accuracy +([\d.]+)%", done.stdout, re.MULTILINE)
    assert float(accuracy) >= 98
    assert re.search(r"^reloaded in a new process +predicts the same", done.stdout, re.MULTILINE)
    for line in ("device", "training time", "images/s", "peak memory", "fallbacks"):
        assert re.search(rf"^{line} ", done.stdout, re.MULTILINE)
    assert path.stat().st_size > 100_000


def test_an_unknown_device_is_explained_without_a_traceback():
    done = run("--device", "nosuch")
    assert done.returncode == 2
    assert "nosuch" in done.stderr and "Traceback" not in done.stderr and done.stdout == ""


@pytest.mark.parametrize("arguments", [("--epochs", "0"), ("--batch-size", "x"), ("--colour", "red")])
def test_bad_arguments_are_refused(arguments):
    done = run(*arguments)
    assert done.returncode == 2 and "usage:" in done.stderr and "Traceback" not in done.stderr
