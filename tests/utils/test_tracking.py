"""Runs written to the places where people look."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tesserack as ts
from tesserack.utils.tracking import Tracker, track, trackers

OPTIONS = {"lr": 0.1, "model": {"width": 8, "act": None}, "quick": True}
FLAT = {"lr": 0.1, "model.width": 8, "model.act": "None", "quick": True}


def steps(run: Any) -> None:
    run.log({"loss": 0.5, "accuracy": 0.25}, step=3)
    run.log({"loss": ts.tensor(0.25)})


def test_json(tmp_path: Path) -> None:
    (tmp_path / "model.txt").write_text("weights")
    with track("json", project="digits", name="first", folder=tmp_path, options=OPTIONS) as run:
        steps(run)
        run.file(tmp_path / "model.txt")
    assert run.folder == tmp_path / "digits" / "first" and (run.folder / "model.txt").read_text() == "weights"
    assert [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()] == [
        {"project": "digits", "name": "first", "options": FLAT},
        {"step": 3, "loss": 0.5, "accuracy": 0.25},
        {"step": 4, "loss": 0.25},
        {"ended": "done"},
    ]


def test_an_error_marks_the_run(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), track("json", folder=tmp_path) as run:
        run.log({"x": 1 / 0})
    assert json.loads((run.folder / "log.jsonl").read_text().splitlines()[-1]) == {"ended": "failed"}
    with pytest.raises(RuntimeError, match="ended"):
        run.log({"x": 1})


def test_values_are_numbers_tensors_and_metrics(tmp_path: Path, device: Any) -> None:
    accuracy = ts.metrics.Accuracy()
    accuracy.update(ts.tensor([[0.1, 0.9]], device=device), ts.tensor([1], device=device))
    with track("json", folder=tmp_path) as run:
        run.log({"accuracy": accuracy, "one": ts.ones(1, device=device), "count": 3})
        for value in ("many", ts.ones(2, device=device), None, [1]):
            with pytest.raises(TypeError, match="'bad': expected a number"):
                run.log({"bad": value})
    assert json.loads((run.folder / "log.jsonl").read_text().splitlines()[1]) == {
        "step": 1,
        "accuracy": 1.0,
        "one": 1.0,
        "count": 3,
    }


def test_tensorboard_beside_json(tmp_path: Path) -> None:
    with track("json", "tensorboard", folder=tmp_path, options=OPTIONS) as run:
        steps(run)
    kinds = sorted(path.name.partition(".")[0] for path in run.folder.iterdir())
    assert kinds == ["events", "log"] and any(b"loss" in p.read_bytes() for p in run.folder.glob("events*"))


def test_nothing_is_written_without_a_name(tmp_path: Path) -> None:
    with track(folder=tmp_path / "runs", options=OPTIONS) as run:
        steps(run)
    assert not (tmp_path / "runs").exists()


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="there is no tracker 'tensorbord'; there are json, mlflow, tensorboard, wandb"
    ):
        track("tensorbord", folder=tmp_path)
    with track("json", folder=tmp_path) as run, pytest.raises(FileNotFoundError, match="no file"):
        run.file(tmp_path / "none")


def test_places_of_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Board(Tracker):
        def __init__(self, **given: Any) -> None:
            made.append(given)

        def log(self, values: Any, step: int) -> None:
            made.append((values, step))

        def file(self, path: Path) -> None:
            made.append(path)

        def close(self, failed: bool) -> None:
            made.append(failed)

    monkeypatch.setattr("tesserack.plugins.trackers", lambda: {"board": Board})
    assert "board" in trackers() and "json" in trackers()
    with track("board", name="n", folder=tmp_path, options=OPTIONS) as run:
        steps(run)
    assert made[0] == {"folder": run.folder, "project": "tesserack", "name": "n", "options": OPTIONS}
    assert made[1:] == [({"loss": 0.5, "accuracy": 0.25}, 3), ({"loss": 0.25}, 4), False]


@pytest.mark.filterwarnings("ignore")
def test_mlflow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    pytest.importorskip("sqlalchemy", reason="MLflow's store of files needs it")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "model.txt").write_text("weights")
    for _ in range(2):  # the second time the experiment is there
        with track("mlflow", project="digits", folder=tmp_path, options=OPTIONS) as run:
            steps(run)
            run.file(tmp_path / "model.txt")
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("digits")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 2 and runs[0].info.status == "FINISHED"
    assert runs[0].data.params == {key: str(value) for key, value in FLAT.items()}
    history = client.get_metric_history(runs[0].info.run_id, "loss")
    assert [(m.step, m.value) for m in history] == [(3, 0.5), (4, 0.25)]
    assert [artifact.path for artifact in client.list_artifacts(runs[0].info.run_id)] == ["model.txt"]


WANDB = """
import sys
from tesserack.utils.tracking import track
with track("wandb", project="digits", name="first", folder=sys.argv[1], options={"lr": 0.1}) as run:
    run.log({"loss": 0.5}, step=3)
    run.log({"loss": 0.25})
"""


def test_wandb_offline(tmp_path: Path) -> None:
    """In a process of its own, since it starts threads and services."""
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    done = subprocess.run([sys.executable, "-c", WANDB, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (folder,) = tmp_path.glob("digits/first/wandb/offline-run-*")
    (file,) = folder.glob("*.wandb")
    assert b"loss" in file.read_bytes()


def test_missing_packages_say_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("mlflow", "mlflow"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(ModuleNotFoundError, match=f"pip install {package}"):
            track("json", name, folder=tmp_path, name="gone")
        assert json.loads((tmp_path / "tesserack/gone/log.jsonl").read_text().splitlines()[-1]) == {"ended": "failed"}
