"""The log of what a run depended on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tesserack as ts
from tesserack.utils import reproducibility

PROGRAM = """
import sys, tesserack as ts
from tesserack.utils.reproducibility import log_run
ts.manual_seed(42)
ts.ones(2).sum()
log_run(sys.argv[1], arguments={"epochs": 3})
"""


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, "-C", str(folder), *words], check=True, capture_output=True)


def test_of_a_program_in_a_repository(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-qm", "First")

    def run() -> dict:
        subprocess.run([sys.executable, str(program), str(tmp_path.parent / "run.json")], check=True)
        return json.loads((tmp_path.parent / "run.json").read_text())

    first = run()
    assert first["seeds"]["tesserack"] == 42
    assert first["notes"] == {"arguments": {"epochs": 3}}
    assert first["versions"]["tesserack"] == ts.__version__ and first["packages"]["tesserack"]
    assert [*first["devices"]] == ["cpu"] and first["devices"]["cpu"]["devices"]
    assert first["command"][1] == str(program)
    assert first["git"]["clean"] and first["git"]["changed"] == [] and len(first["git"]["commit"]) == 40
    program.write_text(PROGRAM + "\n# changed\n")
    second = run()
    assert second["git"]["commit"] == first["git"]["commit"]
    assert not second["git"]["clean"] and second["git"]["changed"] == ["train.py"]
    assert second["git"]["diff_sha256"] not in (None, first["git"]["diff_sha256"])


def test_switches_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    ts.use_deterministic_algorithms(True)
    try:
        found = reproducibility.describe_run()
    finally:
        ts.use_deterministic_algorithms(False)
    assert found["switches"]["deterministic_algorithms"] is True
    assert found["environment"]["OMP_NUM_THREADS"] == "3"


def test_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "x.py")])
    assert reproducibility.describe_run()["git"] is None
    with pytest.raises(TypeError):
        reproducibility.log_run(tmp_path / "run.json", device=ts.device("cpu"))
    assert not (tmp_path / "run.json").exists()


def test_doctor_writes_one(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.json"
    done = subprocess.run(
        [sys.executable, "-m", "tesserack", "doctor", "--log", str(path)], capture_output=True, text=True
    )
    assert f"log: {path}" in done.stdout, done.stderr
    found = json.loads(path.read_text())
    assert found["git"] is None or found["git"]["commit"]
    assert {backend["name"] for backend in found["doctor"]["backends"]} >= {"cpu"}
    assert found["versions"]["python"] == found["doctor"]["python"]["version"]
