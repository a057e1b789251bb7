"""Training by actors of Ray, in a network of nothing but the loopback.

``make test-ranks`` makes the environment ``build/ranks/ray``.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tesserack.testing import seeds

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).parent / "programs" / "training.py"
PYTHON = ROOT / "build" / "ranks" / "ray" / "bin" / "python"

# In a process namespace too: nothing that Ray starts stays behind.
ALONE = ["unshare", "-n", "-p", "-f", "--mount-proc", "--kill-child", "bash", "-c", 'ip link set lo up && "$@"', "x"]

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no Ray in build/ranks; make test-ranks brings it")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of each training, all in one cluster."""
    folder = tmp_path_factory.mktemp("ray")
    return dict(json.loads(driven(folder, PROGRAM, folder)[-1]))


def driven(folder: Path, *words: Any) -> list[str]:
    """What a driver prints, in a network and among processes of its own."""
    alone = ALONE if os.geteuid() == 0 else []
    told = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "HOME": str(folder)}
    # Ray's own waits, of a busy machine.
    told |= {"RAY_worker_register_timeout_seconds": "900", "RAY_gcs_server_request_timeout_seconds": "300"}
    told |= {"RAY_health_check_timeout_ms": "300000"}
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "MASTER_ADDR")} | told
    done = subprocess.run(
        [*alone, str(PYTHON), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=7200 if seeds.full() else 1800,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_reports_are_kept_with_the_last_checkpoints(found: dict[str, Any]) -> None:
    plain = found["plain"]
    assert [m["step"] for m in plain["history"]] == list(range(8)) and {m["rank"] for m in plain["history"]} == {0}
    assert plain["kept"] == ["checkpoint_000005", "checkpoint_000007"] and plain["last"].endswith("checkpoint_000007")


@pytest.mark.parametrize("how", ["killed", "stopped", "silent", "shrinking"])
def test_a_killed_worker_costs_no_more_than_steps(found: dict[str, Any], how: str) -> None:
    history = found[how]["history"]
    assert [m["step"] for m in history] == list(range(8))
    ranks = [m["ranks"] for m in history]
    assert ranks == ([3] * 4 + [2] * 4 if how == "shrinking" else [2] * 8), ranks
    losses = [m["loss"] for m in history]
    assert losses == pytest.approx([m["loss"] for m in found["plain"]["history"]], abs=1e-5)


def test_a_training_of_the_same_name_goes_on_from_its_end(found: dict[str, Any]) -> None:
    assert found["again"] == found["killed"]


def test_what_a_train_loop_raises_is_told(found: dict[str, Any]) -> None:
    told = found["raising"]["error"]
    assert "raising failed 1 time, the last with" in told
    assert "ValueError: planted" in told or "rank 1 has ended" in told, told


def test_ranks_that_report_unequally_are_told(found: dict[str, Any]) -> None:
    assert "expected every rank to report equally often" in found["uneven"]["error"]


def test_the_example_goes_on_to_the_losses_of_one_process(tmp_path: Path) -> None:
    """Where a worker fails at some step in some way: two of them, chosen by the run's seed; ``FULL=1``: 100."""
    pytest.importorskip("sklearn", reason="the scans come with scikit-learn")
    examples = ROOT / "examples"
    words = [sys.executable, str(examples / "digits_ranks.py"), "--alone", "--epochs", "1"]
    alone = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    rng = random.Random(seeds.seed())
    ways = ["killed", "raising"] if not seeds.full() else ["killed", "raising", "killed", "stopped", "raising"] * 20
    runs = [
        # One failure is planted; a busy machine may be late within a short timeout, too.
        f"--epochs 1 --kill {rng.randrange(23)} --rank {rng.randrange(2)} --how {how} --failures 5 "
        f"--timeout {30 if how == 'stopped' else 1800}"
        for how in ways
    ]
    told = driven(tmp_path, PROGRAM.parent / "digits.py", examples / "digits_ray.py", tmp_path, " -- ".join(runs))
    expected = [line for line in alone.splitlines() if line.startswith("epoch")]
    assert expected and [line for line in told if line.startswith("epoch")] == expected * len(runs), (runs, told)


def test_tasks_of_a_program_for_pytorch_see_what_it_sees(tmp_path: Path) -> None:
    program = PROGRAM.parent / "plain_tasks.py"
    assert driven(tmp_path, "-m", "tesserack", "run", program)[-1] == "([1.0, 4.0], '2.13.0+tesserack') (4, 3)"
