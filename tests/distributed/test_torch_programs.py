"""Programs that were written for PyTorch's sharded training run as they are."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs" / "torch"
LOSSES = [
    ("0", "0.5002"),
    ("1", "0.5002"),
    ("2", "0.5002"),
    ("3", "0.5002"),
    ("4", "0.5002"),
    ("5", "0.5002"),
]


def test_wrapped_models_train(launch: Any) -> None:
    done = launch("torch/fsdp1_train.py", 2, torch=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert float(re.search(r"images loss \S+ accuracy (\S+)", done.stdout)[1]) > 0.95, done.stdout
    assert float(re.search(r"text loss (\S+)", done.stdout)[1]) < 0.5, done.stdout


@pytest.mark.parametrize("api", ["dcp", "dtensor"])
def test_divided_models_go_on_from_files(launch: Any, tmp_path: Path, api: str) -> None:
    shown = []
    for _ in range(2):
        done = launch("torch/fsdp2_train.py", 2, tmp_path, "--api", api, "--mixed-precision", torch=True)
        assert done.returncode == 0, done.stderr[-3000:]
        shown.append(re.search(r"loss (\S+) steps (\d+)", done.stdout).groups())
    assert [steps for _, steps in shown] == ["10", "20"] and float(shown[1][0]) < float(shown[0][0])


def test_processes_that_a_program_spawns_save_and_load(tmp_path: Path) -> None:
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = str(found.getsockname()[1])
    words = [sys.executable, "-m", "tesserack", "run", str(PROGRAMS / "dcp_spawn.py"), str(tmp_path), port]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0 and "resumed 3" in done.stdout, done.stderr[-3000:]


def test_a_crashed_rank_goes_on_from_the_snapshot(launch: Any, tmp_path: Path) -> None:
    options = ("--max-restarts", "2")
    done = launch("torch/elastic_snapshot.py", 2, 6, 1, "--snapshot", tmp_path / "s.pt", torch=True, options=options)
    assert done.returncode == 0 and "RuntimeError: crash" in done.stderr, done.stderr[-3000:]
    assert done.stdout.count("Resuming training from snapshot at Epoch 4") == 2, done.stdout
    # What PyTorch prints under torchrun.
    told = re.findall(r"\[1\] Epoch (\d) \| Steps: 4 \| loss (\d\.\d{4})", done.stdout)
    assert told == LOSSES, told


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_reduced_in_every_way(launch: Any, tmp_path: Path, ranks: int) -> None:
    done = launch("torch/reducing.py", ranks, tmp_path / "whole.pt", torch=True)
    assert done.returncode == 0 and done.stdout.count("is done") == ranks, done.stderr[-3000:]


def test_what_a_recorded_main_raises_is_written_down(launch: Any, tmp_path: Path) -> None:
    told = {"FAIL": "1", "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json")}
    done = launch("torch/reducing.py", 1, tmp_path / "whole.pt", torch=True, variables=told)
    assert done.returncode != 0 and "ValueError: told to fail" in done.stderr, done.stderr[-3000:]
    assert json.loads((tmp_path / "error.json").read_text())["message"]["message"] == "ValueError: told to fail"
