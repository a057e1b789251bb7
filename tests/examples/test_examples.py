"""The examples in their quick form, run as a user runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts

EXAMPLES = Path(__file__).parents[2] / "examples"
# What the data comes with, and what is said at the end.
PROGRAMS = {
    "char_gpt": (None, "bits a character"),
    "vae": ("sklearn", "test loss"),
    "dcgan": ("sklearn", "brightness of drawings"),
    "time_series": ("matplotlib", "fifty steps ahead"),
    "reinforce": (None, "balanced for"),
    "karate": ("networkx", "sides told right"),
}


def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments], capture_output=True, text=True, timeout=600
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs_and_leaves_model_plot_and_log(name: str, device: ts.device, tmp_path: Path) -> None:
    package, said = PROGRAMS[name]
    if package:
        pytest.importorskip(package)
    done = run(name, "--quick", "--device", str(device), "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert said in done.stdout + done.stderr
    log = json.loads((tmp_path / f"{name}.json").read_text())
    history = log["notes"]["history"]
    assert all(values and all(abs(v) < 1e6 for v in values) for values in history.values())
    assert log["notes"]["options"]["device"].startswith(device.type)
    state = ts.load(tmp_path / f"{name}.safetensors")
    assert state and all(bool(value.isfinite().all()) for value in state.values())
    if "no plot" not in done.stderr:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_two_labels_tell_most_of_the_club(tmp_path: Path) -> None:
    pytest.importorskip("networkx")
    done = run("karate", "--out", str(tmp_path))
    log = json.loads((tmp_path / "karate.json").read_text())
    assert log["notes"]["history"]["accuracy"][-1] >= 0.9, done.stdout


def test_a_pole_is_balanced_longer_after_practice(tmp_path: Path) -> None:
    run("reinforce", "--epochs", "25", "--out", str(tmp_path))
    steps = json.loads((tmp_path / "reinforce.json").read_text())["notes"]["history"]["steps balanced"]
    assert max(steps[-5:]) > 2 * steps[0]


@pytest.mark.parametrize("arguments", [("--epochs", "0"), ("--device", "nosuch")])
def test_wrong_arguments_are_explained(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run("karate", *arguments, "--out", str(tmp_path))
    assert done.returncode == 2 and "Traceback" not in done.stderr and arguments[1] in done.stderr
